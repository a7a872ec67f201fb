"""A real pair on this machine: inference under an open load, and torch fine-tuning on the same device.

Four arms alternate window by window, each with its own job: without fine-tuning, unpaced, in static
slices of the time, and paced by its limit.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial

import psutil

from agents.finetuning.beside import FineTuningWindow, Pacer, fine_tune_beside
from agents.finetuning.job import FineTuningJob
from agents.finetuning.pacing import FineTuningPacer
from agents.host.machine import HostClock
from agents.load.generator import OPEN_LOOP_CALLERS, LoadShape
from agents.load.http_caller import HttpCaller
from agents.load.meter import LoadMeter
from tuner.core import FOREIGN_SHARE, Limit

METRIC = "latency_p99_ms"
UTILISATION, WINDOW_S = 0.3, 5.0
"""The load, as a share of the rate of a closed loop with one caller, and the length of a window in s."""
ALONE, HEADROOM = 24, 2.0
"""The limit: twice the median p99 of this many windows without fine-tuning, measured before the arms. A
median, because other programs slow some windows down, and these must not set the limit.
"""
SLICES = (0.25, 0.5)
NONE = "without fine-tuning"


@dataclass(slots=True)
class TimeSlices:
    """Lets fine-tuning run for a fixed share of the time."""

    share: float
    _owed: float = 0.0

    def look(self, tail: float | None, elapsed: float) -> bool:
        """Return whether the job may run now."""
        self._owed += self.share
        self._owed -= (turn := self._owed >= 1.0)
        return turn

    def window(self, tail: float | None, *, ran: bool) -> None:
        """Do nothing: slices do not change."""


@dataclass(frozen=True, slots=True)
class LiveWindow:
    """One window, and the share of the cores that programs other than the bench's used."""

    shown: FineTuningWindow
    foreign: float

    @property
    def quiet(self) -> bool:
        """Whether a study would count the window."""
        return self.foreign <= FOREIGN_SHARE


def _foreign(arm: Iterator[FineTuningWindow]) -> LiveWindow:
    """Measure the next window of an arm, and the load of other programs meanwhile."""
    began, busy, ours = time.monotonic(), _busy_s(), _own_s()
    shown = next(arm)
    others = (_busy_s() - busy) - (_own_s() - ours)
    capacity_s = (time.monotonic() - began) * (psutil.cpu_count() or 1)
    return LiveWindow(shown, min(1.0, max(0.0, others / capacity_s)))


def _busy_s() -> float:
    now = psutil.cpu_times()
    return float(sum(now) - now.idle - now.iowait - now.guest - now.guest_nice)


def _own_s() -> float:
    """Return the CPU time of this process, of the inference and of the jobs."""
    own = psutil.Process()
    times = [process.cpu_times() for process in (own, *own.children(recursive=True))]
    return float(sum(one.user + one.system for one in times))


@contextmanager
def _accelerator() -> Iterator[int]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.admission.accelerator"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
        process.stdout.close()
    finally:
        process.kill()
        process.wait()


def live(rounds: int, limit_ms: float, report: Callable[[str], None]) -> dict[str, object]:
    """Return the result of each arm, and the limit, as JSON; with `limit_ms` 0 the limit is measured."""
    clock = HostClock()
    with _accelerator() as port, ExitStack() as stack:
        connect = partial(HttpCaller, "127.0.0.1", port, "/infer", body=b"{}")
        rate_per_s = UTILISATION * _answered_per_s(connect, clock)
        shape = LoadShape(OPEN_LOOP_CALLERS, rate_per_s)
        meter = LoadMeter(connect, shape, lambda: _no_totals, clock, 0)
        report("windows without fine-tuning")
        job = _job(stack, clock, port)
        unlimited = Limit(METRIC, "<=", 1e9)
        first = fine_tune_beside(
            meter, job, TimeSlices(0.0), unlimited, clock, WINDOW_S, lambda: False
        )
        median_ms = statistics.median(next(first).tail for _ in range(ALONE))
        limit = Limit(METRIC, "<=", limit_ms or HEADROOM * median_ms)
        pacers: dict[str, Pacer] = {
            NONE: TimeSlices(0.0),
            "unpaced": TimeSlices(1.0),
            **{f"static slices, {share:.0%} of the time": TimeSlices(share) for share in SLICES},
            "paced by the limit": FineTuningPacer(limit.value),
        }
        arms = {
            name: fine_tune_beside(
                meter, _job(stack, clock, port), pacer, limit, clock, WINDOW_S, lambda: False
            )
            for name, pacer in pacers.items()
        }
        windows: dict[str, list[LiveWindow]] = {name: [] for name in arms}
        for turn in range(rounds):
            report(f"round {turn + 1} of {rounds}")
            for name, arm in arms.items():
                windows[name].append(_foreign(arm))
    return {
        "limit_ms": limit.value,
        "headroom": 0.0 if limit_ms else HEADROOM,
        "alone": {"windows": ALONE, "median_ms": median_ms},
        "window_s": WINDOW_S,
        "rate_per_s": rate_per_s,
        "arms": _told(windows),
    }


def _answered_per_s(connect: Callable[[], HttpCaller], clock: HostClock) -> float:
    window = LoadMeter(connect, LoadShape(callers=1), lambda: _no_totals, clock, 0).start()
    clock.sleep(WINDOW_S)
    return float(window.stop().totals["items"]) / WINDOW_S


def _no_totals() -> Mapping[str, float]:
    """Return no totals: the results of our callers suffice."""
    return {}


def _job(stack: ExitStack, clock: HostClock, port: int) -> FineTuningJob:
    command = [sys.executable, "-m", "tests.bench.admission.training", str(port)]
    job = FineTuningJob(command, clock)
    stack.callback(job.close)
    job.let(run=True)  # its start is not judged
    while not (job.totals()["steps"] or job.ended):
        clock.sleep(0.1)
    job.let(run=False)
    return job


def _told(windows: Mapping[str, list[LiveWindow]]) -> list[dict[str, object]]:
    return [_arm(name, seen) for name, seen in windows.items()]


def _arm(name: str, seen: Sequence[LiveWindow]) -> dict[str, object]:
    quiet = [one.shown.kept for one in seen if one.quiet]
    shown = [one.shown for one in seen]
    return {
        "arm": name,
        "windows": len(shown),
        "kept": statistics.fmean(one.kept for one in shown),
        "quiet": len(quiet),
        "kept_quiet": statistics.fmean(quiet) if quiet else None,
        "tail_median_ms": statistics.median(one.tail for one in shown),
        "steps_per_s": statistics.fmean(one.finetuning_steps_per_s for one in shown),
        "share": statistics.fmean(one.finetuning_share for one in shown),
        "last": asdict(shown[-1]),
    }
