"""`jouletune finetune`: run a job beside inference within a limit, or check whether it may start."""

from __future__ import annotations

import signal
import threading
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from agents.finetuning.beside import FineTuningWindow, fine_tune_beside
from agents.finetuning.job import FineTuningJob
from agents.finetuning.pacing import FineTuningPacer
from agents.finetuning.programs import ProgramsSignal
from agents.host.host import HostClock
from agents.target.side import Side
from agents.target.window import RATIOS
from agents.workloads import open_workload
from policies.polythrottle.admission import Demand, Mix, admit
from tuner.cli.answers import Answer, with_json
from tuner.core import Constraint, InvalidInput, Limit, MetricUnavailable, TuningError
from tuner.profiling.finetuning import read_windows


@with_json
def admit_(
    windows: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="CSV of measured windows: batch_size, the metric, finetuning_gflop, "
            "finetuning_flop_per_byte.",
        ),
    ],
    constraint: Annotated[
        str, typer.Option(metavar="TEXT", help='The SLO: "latency_p99_ms <= 700".')
    ],
    gflop: Annotated[float, typer.Option(help="GFLOP of one fine-tuning step.")],
    flop_per_byte: Annotated[float, typer.Option(help="Arithmetic intensity of a step.")],
    batch: Annotated[int, typer.Option(metavar="B", help="Batch size of the inference.")],
) -> Answer:
    """Check whether a fine-tuning job may start now. Exits with 0 if it may, else with 1.

    It may start if the 95 % upper bound of the predicted latency keeps the limit. A job outside the
    measured range is refused. Start one job at a time.
    """
    limit = _limit(constraint)
    samples = read_windows(windows, limit.metric)
    mix = Mix(Demand(), batch, Demand(gflop, flop_per_byte))
    answer = admit(samples, mix, limit, running=False)
    word = "admitted" if answer.admitted else "not admitted"
    summary = f"{word}: {answer.why} ({len(samples)} windows)"
    return Answer(answer, summary, failed=not answer.admitted)


def _limit(text: str) -> Limit:
    """Return an absolute constraint as a limit. Raises ConstraintSyntax, InvalidInput."""
    constraint = Constraint.parse(text)
    if constraint.relative:
        raise InvalidInput(
            f"{text!r} is relative to a baseline, which a table of windows does not have",
            hint="give the limit itself: latency_p99_ms <= 700",
        )
    return Limit(constraint.metric, constraint.op, constraint.bound)


@with_json
def run(
    workload: Annotated[
        str,
        typer.Option(metavar="SPEC", help="The inference: a value of `agent serve --workload`."),
    ],
    constraint: Annotated[
        str, typer.Option(metavar="TEXT", help='The SLO: "latency_p99_ms <= 700".')
    ],
    command: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND …", help="The fine-tuning command.")
    ],
    window_s: Annotated[
        float, typer.Option(min=1.0, metavar="S", help="Seconds per window.")
    ] = 5.0,
) -> Answer:
    """Fine-tune beside inference; pause the job as needed to keep the latency limit.

    The job ends with this command and is never left paused. It may print JSON lines with its totals:
    steps, gflop, gbyte. A service whose file has finetuning_lock has the signal programs, 2 meanwhile.
    Exits with 1 if the job fails.
    """
    limit = _limit(constraint)
    if limit.op != "<=":
        raise InvalidInput(
            f"{constraint!r} is not an upper limit", hint="write it like latency_p99_ms <= 700"
        )
    clock, ended = HostClock(), threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    windows: list[FineTuningWindow] = []
    with TemporaryDirectory() as folder, ExitStack() as stack:
        side = open_workload(workload, seed=0, state_dir=Path(folder), clock=clock)
        stack.callback(side.close)
        _refuse_unmeasured(limit.metric, side)
        signals = [s for s in side.signals if isinstance(s, ProgramsSignal)]
        held = [stack.enter_context(one.beside(clock)) for one in signals]
        job = FineTuningJob(command, clock, held)
        stack.callback(job.close)
        pacer = FineTuningPacer(limit.value)
        turns = fine_tune_beside(side.meter, job, pacer, limit, clock, window_s, ended.is_set)
        try:
            windows.extend(turns)
        except TuningError:
            if not ended.is_set():  # Ctrl-C may end the inference together with this command
                raise
        status = job.close()
    met = sum(window.kept for window in windows)
    ran = sum(window.finetuning_share for window in windows) / max(1, len(windows))
    text = f"{limit.metric} kept in {met} of {len(windows)} windows; fine-tuning ran {ran:.0%} of the time"
    failed = status != 0 and not ended.is_set()
    return Answer({"windows": windows, "status": status}, text, failed=failed)


def _refuse_unmeasured(metric: str, side: Side) -> None:
    """Raise MetricUnavailable unless a window of the inference alone gives a metric."""
    names = [each.name for each in side.metrics if each.quantity not in RATIOS]
    if metric not in names:
        raise MetricUnavailable(
            f"{side.name} does not measure {metric}", hint=f"choose one of: {', '.join(names)}"
        )
