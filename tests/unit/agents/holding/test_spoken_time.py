"""The time for which a held window counts, at loads whose requests are known."""

from __future__ import annotations

import math
import random
from bisect import bisect
from pathlib import Path

import pytest

from tests.fakes import Rig
from tests.unit.agents.holding.orders import Seen, billed, holder, order, watched


@pytest.mark.parametrize(
    ("every_s", "window_s", "report_s"),
    [(1.0, 2.0, 0.0), (10.0, 30.0, 300.0), (60.0, 10.0, 0.0), (60.0, 10.0, 240.0), (300.0, 30.0, 120.0)],
)  # fmt: skip
def test_requests_are_billed_once_however_rare_they_are(
    tmp_path: Path, every_s: float, window_s: float, report_s: float
) -> None:
    rig, rng, at = Rig(tmp_path), random.Random(1), [0.0]
    end = 200.0 / -math.expm1(-window_s / every_s) * (60.0 + window_s)
    while at[-1] < end:
        at.append(at[-1] + rng.expovariate(1.0 / every_s))

    def pass_s(seconds: float) -> Seen:
        before = bisect(at, rig.time.monotonic())
        rig.time.sleep(seconds)
        return bisect(at, rig.time.monotonic()) - before or None

    of = holder(rig)
    of.take(order(window_s=window_s, report_s=report_s, valid_for_s=1e8))
    watch, kept = watched(rig, of, pass_s)
    while rig.time.monotonic() < end:
        rig.time.sleep(watch.due_in_s() + 1e-3)
        watch.mind()
    assert billed(kept) == pytest.approx(len(at), rel=0.2)


@pytest.mark.parametrize(
    ("windows", "report_s", "late", "seconds"),
    [
        ([5, 5, 5], 0.0, None, [10, 70, 70]),
        ([5, None, 5, "foreign", 5, "capped", 5], 0.0, None, [10, 70, 70, 70]),
        ([5, 0, 5, "parked", 5], 0.0, None, [10, 0, 70, 70]),
        ([5, 5, None, 5, 5], 200.0, None, [10, 140]),
        ([5, 5, 0, 5], 200.0, None, [10, 140]),
        ([5, 5, "broken", 5, 5, 5], 200.0, None, [10, 70, 210]),
        ([5, 5, 5], 0.0, 1, [10, 70, 30]),
    ],
)
def test_a_window_speaks_for_itself_and_for_like_windows_that_nobody_wanted(
    tmp_path: Path, windows: list[Seen], report_s: float, late: int | None, seconds: list[float]
) -> None:
    rig, each = Rig(tmp_path), iter(seen for seen in windows if seen != "parked")
    of = holder(rig)
    of.take(order(report_s=report_s))

    def pass_s(seconds: float) -> Seen:
        rig.time.sleep(seconds)
        return next(each)

    watch, kept = watched(rig, of, pass_s)
    for number, seen in enumerate(windows):
        rig.time.sleep(watch.due_in_s() + (400.0 if number == late else 0.0))
        if seen == "parked":
            of.park({"fake": {"gpu.clock_mhz": 400}})
        watch.mind()
        assert watch.due_in_s() > 0.0, "left out while parked: at a request the rate is too high"
        of.unpark()
        if number == late:
            rig.time.sleep(40.0)
            watch.speak_from_now()
    assert [one.speaks_s for one in kept] == seconds
