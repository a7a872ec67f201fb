"""`jouletune finetune run`: run a job beside inference within a latency limit."""

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
from agents.host.machine import HostClock
from agents.target.side import Side
from agents.target.window import RATIOS
from agents.workloads import open_workload
from tuner.cli.answers import Answer, with_json
from tuner.core import Constraint, InvalidInput, Limit, MetricUnavailable, TuningError


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


def _limit(text: str) -> Limit:
    """Return a constraint as an absolute upper limit. Raises ConstraintSyntax, InvalidInput."""
    constraint = Constraint.parse(text)
    if constraint.relative or constraint.op != "<=":
        why = "relative to a baseline" if constraint.relative else "not an upper limit"
        raise InvalidInput(f"{text!r} is {why}", hint="give the limit like latency_p99_ms <= 700")
    return Limit(constraint.metric, constraint.op, constraint.bound)


def _refuse_unmeasured(metric: str, side: Side) -> None:
    """Raise MetricUnavailable unless a window of the inference alone gives a metric."""
    names = [each.name for each in side.metrics if each.quantity not in RATIOS]
    if metric not in names:
        raise MetricUnavailable(
            f"{side.name} does not measure {metric}", hint=f"choose one of: {', '.join(names)}"
        )
