"""A pair measured window by window, with a made-up load and a made-up job."""

from __future__ import annotations

import math
from typing import cast

import pytest

from agents.finetuning.beside import fine_tune_beside
from agents.finetuning.job import FineTuningJob
from agents.finetuning.pacing import FineTuningPacer
from tests.builders import Time
from tuner.core import Estimate, Limit, Meter, Reading

LIMIT = Limit("latency_p99_ms", "<=", 20.0)


class MadeUpJob:
    """Makes ten steps a second while it may run."""

    def __init__(self, clock: Time, ends_s: float = math.inf) -> None:
        self.clock, self.running, self._ends_s = clock, False, ends_s
        self.ran_s, self._since = 0.0, clock.monotonic()

    @property
    def ended(self) -> bool:
        return self.clock.monotonic() >= self._ends_s

    def let(self, *, run: bool) -> None:
        now = self.clock.monotonic()
        self.ran_s += now - self._since if self.running else 0.0
        self.running, self._since = run, now

    def totals(self) -> dict[str, float]:
        self.let(run=self.running)
        steps = 10.0 * self.ran_s
        return {"steps": steps, "gflop": 2.0 * steps, "gbyte": 0.5 * steps, "ran_s": self.ran_s}


class MadeUpLoad:
    """A load with a tail of 10 ms; 30 ms if harmful fine-tuning ran in the window."""

    def __init__(self, job: MadeUpJob, *, harms: bool) -> None:
        self._job, self._harms, self._before = job, harms, 0.0

    def start(self) -> MadeUpLoad:
        self._before = self._job.totals()["ran_s"]
        return self

    def read(self) -> Reading:
        ran = self._job.totals()["ran_s"] > self._before
        tail = 30.0 if ran and self._harms else 10.0
        return Reading({"items": 300.0}, {"latency_p99_ms": Estimate.of_mean(tail, 0.1, 300)})

    stop = read


def windows(*, harms: bool, count: int = 40, ends_s: float = math.inf) -> list[tuple[float, bool]]:
    clock = Time()
    job = MadeUpJob(clock, ends_s)
    load = MadeUpLoad(job, harms=harms)
    turns = fine_tune_beside(
        cast("Meter", load),
        cast("FineTuningJob", job),
        FineTuningPacer(LIMIT.value),
        LIMIT,
        clock,
        5.0,
        lambda: False,
    )
    shown = [one for one, _ in zip(turns, range(count), strict=False)]
    assert job.ended or not job.running, "it is paused between windows"
    for one in shown:
        assert one.requests == 300
        if one.finetuning_share:
            assert one.finetuning_gflop == pytest.approx(2.0)
            assert one.finetuning_flop_per_byte == pytest.approx(4.0)
            assert one.finetuning_steps_per_s == pytest.approx(10.0 * one.finetuning_share, rel=0.1)
    return [(one.finetuning_share, one.kept) for one in shown]


def test_a_harmless_job_comes_to_run_all_the_time() -> None:
    shown = windows(harms=False)
    assert shown[-1][0] > 0.95
    assert all(kept for _, kept in shown)


def test_a_harmful_job_hardly_ever_runs() -> None:
    shown = windows(harms=True)
    assert sum(share for share, _ in shown) / len(shown) < 0.01
    assert sum(not kept for _, kept in shown) <= 3


def test_the_loop_ends_with_the_job() -> None:
    assert len(windows(harms=False, ends_s=12.0)) == 3
