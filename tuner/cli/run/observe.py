"""`jouletune observe`: measure a target without setting anything."""

from __future__ import annotations

import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated

import typer

from agents.config import Attachment, filesystem_root
from agents.host.machine import Host, HostClock, suspended_s
from agents.main import open_target
from agents.target.observe import MeasuredWindow, Observer, too_few
from agents.target.window import Usage
from tuner import moments
from tuner.cli.answers import Answer, Rows, with_json
from tuner.cli.asking import ApiAddress, place, reached
from tuner.cli.options import LoadTrace, TokenFile, TunerUrl
from tuner.cli.run.llm import usual_device
from tuner.cli.run.observed import (
    ObservedMetric,
    ObservedTarget,
    ObservedWindow,
    RefusedWindow,
    forecasts,
    observation,
    observed,
)
from tuner.cli.run.targets import (
    SPECS,
    Command,
    GenerateLoad,
    Llm,
    Metrics,
    Runs,
    TypedTarget,
    Workload,
)
from tuner.core import (
    Conflict,
    InvalidInput,
    MeasurementError,
    TuningError,
    by_reason,
    quantity_of,
)
from tuner.presentation.figures import amount, duration, how_many, percent

NO_STUDY = "no study of this board and workload holds a setting"
WINDOWS, WINDOW_S = 3, 10.0
"""The windows without --for, and their length in s: our choice."""


@with_json
def observe(
    device: Annotated[
        str, typer.Option(metavar="SPEC", help=f"{SPECS}. Default: the first GPU, else cpu.")
    ] = "",
    workload: Workload = "",
    command: Command = "",
    llm: Llm = "",
    generate_load: GenerateLoad = "",
    metric: Metrics = None,
    runs: Runs = None,
    load: LoadTrace = None,
    for_: Annotated[
        str,
        typer.Option(
            "--for",
            metavar="TIME",
            help="Measure for this time, like 10m (default: three windows).",
        ),
    ] = "",
    window_s: Annotated[
        float, typer.Option("--window", metavar="S", min=0.5, help="Seconds per window.")
    ] = WINDOW_S,
    seed: Annotated[int, typer.Option(help="Fixes the generated load.")] = 0,
    tuner: TunerUrl = "",
    token_file: TokenFile = None,
) -> Answer:
    """Measure energy, CPU time and latencies; set nothing.

    Needs no actuator. Ctrl-C ends it early and prints what was measured. With a tuner it adds what a study
    of the same board and workload saves elsewhere, as a forecast.
    """
    typed = TypedTarget(
        device=device or usual_device(),
        workload=workload,
        command=command,
        llm=llm,
        generate_load=generate_load,
        metric=metric,
        runs=runs,
        load=load,
        seed=seed,
    )
    seconds = moments.seconds("--for", for_) if for_ else 0.0
    if for_ and not seconds:
        raise InvalidInput(f"--for cannot be {for_!r}", hint="write 90s, 30m, 2h or 1d")
    with tempfile.TemporaryDirectory(prefix="jouletune-") as folder:
        spec, served = typed.written(Path(folder))
        seen = look(spec, served, Path(folder), seconds, window_s, seed)
    where = place(tuner, token_file, "", last_run=False)
    seen = with_forecasts(seen, where) if where.tuner else seen
    return Answer(seen, lines(seen))


def with_forecasts(seen: ObservedTarget, where: ApiAddress) -> ObservedTarget:
    """Add the savings of similar devices at a tuner, or the reason why it gave none."""
    try:
        with reached(where) as api:
            held = tuple(forecasts(api, seen.board, seen.workload or seen.device))
    except TuningError as error:  # the observation is shown even without forecasts
        return replace(seen, no_forecast=str(error))
    return replace(seen, forecasts=held, no_forecast="" if held else NO_STUDY)


def look(
    device: str, workload: str, folder: Path, seconds: float, window_s: float, seed: int
) -> ObservedTarget:
    """Measure a target for a time, or for three windows if it is 0. SIGINT and SIGTERM end it early.

    Raises:
        InvalidInput, ActuationError: as `open_target`.
        MeasurementError: every window was refused.
        KeyboardInterrupt: a signal came before the first window's end.
    """
    opened = open_target(Attachment(device, workload), "observed", seed, folder, filesystem_root())
    outcomes: list[MeasuredWindow | RefusedWindow] = []
    try:
        target = opened.measured
        observer = Observer(
            target=target,
            host_clock=HostClock(),
            now=lambda: datetime.now(timezone.utc),
            usage=Usage(Host.here(filesystem_root()).cores, time.process_time, suspended_s),
            seed=str(seed),
            foreign_share=1.0,  # the host's other work is a part of what is observed
        )
        with _ended_by_signals() as ended:

            def check() -> None:
                if ended:
                    raise Conflict("it was ended by a signal")

            until_s = observer.clock.monotonic() + seconds
            count = 0 if seconds else WINDOWS
            with suppress(Conflict):  # the windows before it are in the list already
                outcomes.extend(observed(observer, window_s, count, until_s, check))
        if ended and not outcomes:
            raise KeyboardInterrupt
    finally:
        opened.close()
    if not any(isinstance(one, MeasuredWindow) for one in outcomes):
        whys = dict.fromkeys(one.why for one in outcomes if isinstance(one, RefusedWindow))
        raise MeasurementError(
            f"nothing was measured: {'; '.join(whys) or 'no window was complete'}",
            hint="`jouletune doctor` lists the sensors of this host",
        )
    return observation(target, outcomes)


@contextmanager
def _ended_by_signals() -> Iterator[list[int]]:
    """Collect SIGINT and SIGTERM within the block, instead of their effects."""
    caught: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {n: signal.signal(n, lambda number, _: caught.append(number)) for n in numbers}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def lines(seen: ObservedTarget) -> Iterator[str | Rows]:
    """Yield an observation for people."""
    what = f"{seen.workload} on {seen.device}" if seen.workload else seen.device
    length = duration(sum(window.seconds for window in seen.windows))
    yield f"observed {what}: {how_many(len(seen.windows), 'window')}, {length}; nothing was set"
    rows = [
        (
            name,
            amount(one.unit, one.value, 0.0 if _unbounded(name, one) else one.stderr),
            one.origin,
            one.scope,
            one.source,
            ", ".join(one.judged_by) or "–",
        )
        for name, one in seen.metrics.items()
    ]
    columns = ("metric", "value ± stderr", "origin", "scope", "source", "judged by")
    yield Rows(columns, rows, "no metric was measured")
    for name in (name for name, one in seen.metrics.items() if _unbounded(name, one)):
        least = min((w.metrics[name].n, w.seconds) for w in seen.windows if name in w.metrics)
        yield f"no bound  {too_few(name, *least)}; give a longer --window"
    yield from _circumstances(seen.windows)
    unjudged = {r: why for one in seen.metrics.values() for r, why in one.not_judged_by.items()}
    for names, why in by_reason(unjudged):
        yield f"one witness  {names}: {why}"
    for forecast in seen.forecasts:
        yield f"forecast  {forecast.text}"
    if seen.no_forecast:
        yield f"forecast  none: {seen.no_forecast}"
    for names, why in by_reason(seen.unavailable):
        yield f"unavailable  {names}: {why}"
    for why in dict.fromkeys(one.why for one in seen.refused):
        count = sum(one.why == why for one in seen.refused)
        yield f"refused  {how_many(count, 'window')}: {why}"


def _unbounded(name: str, metric: ObservedMetric) -> bool:
    """Return whether a metric has no upper bound, so that its standard error would mislead."""
    return metric.high is None and (metric.stderr > 0.0 or quantity_of(name).tail)


def _circumstances(windows: Sequence[ObservedWindow]) -> Iterator[str]:
    """Yield the load, the joules and the disturbances of all windows."""
    completed, failed = (sum(w.completed for w in windows), sum(w.failed for w in windows))
    yield f"load  {how_many(completed, 'item')} completed, {failed} failed"
    joules = [w.joules for w in windows if w.joules is not None]
    if len(joules) == len(windows):
        yield f"energy  {amount('J', sum(joules))} in all windows, of all that ran on the device"
    busy = [w.busy for w in windows if w.busy is not None]
    if busy:
        yield f"cpu  {percent(sum(busy) / len(busy))} of the host's cores were busy"
    foreign = [w.foreign for w in windows if w.foreign is not None]
    if foreign and max(foreign) > 0.0:
        yield f"others  other programs used up to {percent(max(foreign))} of the machine"
    throttled = sorted({reason for w in windows for reason in w.throttled})
    if throttled:
        yield f"throttled  {', '.join(throttled)}"
