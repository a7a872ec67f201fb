"""A real pair on this machine: an inference server under load, and a torch fine-tuning beside it.

The arms take turns window by window, with one job each: without fine-tuning, unpaced, in static slices of
the time, and paced by its limit.
"""

from __future__ import annotations

import math
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial

from agents.finetuning.beside import FineTuningWindow, Pacer, fine_tune_beside
from agents.finetuning.job import FineTuningJob
from agents.finetuning.pacing import FineTuningPacer
from agents.host.host import HostClock
from agents.load.generator import LoadShape
from agents.load.http_caller import HttpCaller
from agents.load.meter import LoadMeter
from tuner.core import Limit

METRIC = "latency_p99_ms"
RATE_PER_S, WINDOW_S = 80.0, 6.0
ALONE, KEPT, HEADROOM = 20, 0.95, 1.25
"""The limit: a quarter above what 95 % of so many windows without fine-tuning keep, before the arms."""
SLICES = (0.25, 0.5)
NONE = "without fine-tuning"


@dataclass(slots=True)
class TimeSlices:
    """Lets fine-tuning run for a fixed share of the time."""

    share: float
    _owed: float = 0.0

    def look(self, tail: float | None) -> bool:
        """Return whether it is its turn."""
        self._owed += self.share
        self._owed -= (turn := self._owed >= 1.0)
        return turn

    def window(self, tail: float | None, *, ran: bool) -> None:
        """Do nothing: slices do not change."""


@contextmanager
def _inference() -> Iterator[int]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.admission.inference"],
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


def live(rounds: int, report: Callable[[str], None]) -> dict[str, object]:
    """Return what each arm came to, and the limit, as JSON has it."""
    clock = HostClock()
    with _inference() as port, ExitStack() as stack:
        connect = partial(HttpCaller, "127.0.0.1", port, "/infer", body=b"{}")
        meter = LoadMeter(connect, LoadShape(rate_per_s=RATE_PER_S), lambda: _no_totals, clock, 0)
        report("windows without fine-tuning")
        job = _job(stack, clock)
        unlimited = Limit(METRIC, "<=", 1e9)
        first = fine_tune_beside(
            meter, job, TimeSlices(0.0), unlimited, clock, WINDOW_S, lambda: False
        )
        tails = [next(first).tail for _ in range(ALONE)]
        limit = Limit(METRIC, "<=", HEADROOM * kept_by(KEPT, tails))
        pacers: dict[str, Pacer] = {
            NONE: TimeSlices(0.0),
            "unpaced": TimeSlices(1.0),
            **{f"static slices, {share:.0%} of the time": TimeSlices(share) for share in SLICES},
            "paced by the limit": FineTuningPacer(limit.value),
        }
        arms = {
            name: fine_tune_beside(
                meter, _job(stack, clock), pacer, limit, clock, WINDOW_S, lambda: False
            )
            for name, pacer in pacers.items()
        }
        windows: dict[str, list[FineTuningWindow]] = {name: [] for name in arms}
        for turn in range(rounds):
            report(f"round {turn + 1} of {rounds}")
            for name, arm in arms.items():
                windows[name].append(next(arm))
    return {
        "limit_ms": limit.value,
        "headroom": HEADROOM,
        "alone": {"windows": ALONE, "share": KEPT, "median_ms": statistics.median(tails)},
        "window_s": WINDOW_S,
        "arms": _told(windows),
    }


def kept_by(share: float, tails: Sequence[float]) -> float:
    """Return the least limit that at least this share of windows keeps."""
    return sorted(tails)[math.ceil(share * len(tails)) - 1]


def _no_totals() -> Mapping[str, float]:
    """Return nothing: what our callers saw is enough."""
    return {}


def _job(stack: ExitStack, clock: HostClock) -> FineTuningJob:
    command = [sys.executable, "-m", "tests.bench.admission.training"]
    job = FineTuningJob(["env", "OMP_NUM_THREADS=2", *command], clock)
    stack.callback(job.close)
    job.let(run=True)  # its start is not part of what is judged
    while not (job.totals()["steps"] or job.ended):
        clock.sleep(0.1)
    job.let(run=False)
    return job


def _told(windows: Mapping[str, list[FineTuningWindow]]) -> list[dict[str, object]]:
    kept = {name: statistics.fmean(one.kept for one in seen) for name, seen in windows.items()}
    return [
        {
            "arm": name,
            "windows": len(seen),
            "kept": kept[name],
            "kept_of_none": kept[name] / kept[NONE] if kept[NONE] else None,
            "tail_median_ms": statistics.median(one.tail for one in seen),
            "steps_per_s": statistics.fmean(one.finetuning_steps_per_s for one in seen),
            "share": statistics.fmean(one.finetuning_share for one in seen),
            "last": asdict(seen[-1]),
        }
        for name, seen in windows.items()
    ]
