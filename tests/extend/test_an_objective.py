"""An objective of your own: one file (`priced.py` beside this), and an entry point that names it.

    [project.entry-points."jouletune.devices"]
    priced = "priced:open_priced"

Its price of a joule depends on the hour: the same device is tuned to be slow and frugal at noon, and
fast at night.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from agents.devices.catalogue import open_device
from agents.target.side import Side
from agents.target.target import Target
from tests.builders import Time
from tests.extend import priced
from tests.extend.lab import DEVICE, lab
from tests.fakes import FakeActuator, FakeMeter, side_of, steady
from tests.packages import install
from tuner.core import (
    Done,
    InvalidInput,
    Knob,
    Past,
    Plan,
    Space,
    Suggestion,
    Try,
    Wait,
    incumbent,
    setting_key,
)
from tuner.wire import StudyDraft

CLOCK = Knob("core.clock_mhz", (600, 1200), 1200)
SHOWN = {600: steady(watts=120.0, per_s=60.0), 1200: steady(watts=300.0, per_s=100.0)}
NOON, NIGHT = 0, 12
"""Hours after the lab's start."""


class Both:
    """Tries the untried settings, then proposes the best by the objective."""

    def suggest(self, past: Past) -> Suggestion:
        if past.limits is None:
            return Wait("the baseline has not been measured yet")
        tried = {setting_key(t.setting) for t in past.trials}
        untried = (s for s in past.study.space.grid() if setting_key(s) not in tried)
        if (following := next(untried, None)) is not None:
            return Try(following, "not tried yet")
        best = incumbent(past.study, past.evidence)
        return Done(Plan.single(best.setting if best else past.study.baseline), "all are tried")


def board(time: Time, *metrics: str) -> Side:
    clock = FakeActuator("device", Space((CLOCK,)), [])
    meter = FakeMeter(time, lambda *at: SHOWN[int(clock.now["core.clock_mhz"])](*at))
    return side_of("board", clock, clock.space, meter, *metrics)


@pytest.mark.parametrize(("hours", "best"), [(NOON, 600), (NIGHT, 1200)])
def test_the_best_setting_depends_on_the_price_of_a_joule(
    tmp_path: Path, hours: int, best: int
) -> None:
    time = Time()
    time.step(timedelta(hours=hours))
    side = priced.priced(board(time, "energy_j", "throughput_per_s"), time.now, time)
    with lab(tmp_path, Target((side,)), time, lambda _: Both()) as opened:
        draft = StudyDraft(devices=(DEVICE,), constraints=(), objective="cost_ueur")
        plan = opened.tune(draft).plan
    assert plan is not None
    assert plan.rows[0].setting == {"core.clock_mhz": best}


def test_an_installed_package_offers_it(site: Path) -> None:
    entry = "[jouletune.devices]\npriced = priced:open_priced\n"
    install(site, "priced", entry, Path(priced.__file__).read_text())
    side = open_device("priced:simulated:a100", seed=0, state_dir=None)
    assert "cost_ueur" in [metric.name for metric in side.metrics]
    side.close()


def test_without_joules_there_is_no_price() -> None:
    with pytest.raises(InvalidInput, match="tells no joules"):
        priced.priced(board(Time(), "throughput_per_s"), Time().now, Time())
