from __future__ import annotations

import errno
import json
import math
import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from agents.holding.holder import BROKEN_WINDOWS
from agents.host.machine import Host
from tests.builders import START, window
from tests.errors import raised
from tests.fakes import Rig, failing, refused
from tests.unit.agents.holding.orders import BUSY, DEVICE, HELD, LIMIT, holder, order
from tuner.core import (
    POWER_PROFILES,
    ActuationError,
    Estimate,
    Level,
    Limit,
    Measurement,
    Plan,
    Row,
    StoreError,
)


def seen(latency_ms: float, rate: float = 50.0) -> Measurement:
    arrivals = {"arrival_rate_per_s": Estimate.of_mean(rate, 0.01)}
    return window(latency_p99_ms=latency_ms, rate=rate, extra=arrivals)


def test_an_order_is_applied_and_journalled(rig: Rig) -> None:
    keeper = holder(rig)
    keeper.take(order())
    assert rig.setting == HELD
    entry = rig.journal.get(DEVICE)
    assert entry is not None and entry.level == "hold"
    keeper.end("over")
    assert rig.setting == rig.target.space.default


def test_a_restart_takes_the_hold_up_from_disk(rig: Rig) -> None:
    holder(rig).take(order())
    rig.target.apply(BUSY)
    again = holder(rig)
    rig.time.sleep(600.0)
    assert again.lapsed() == ""
    again.enforce()
    assert rig.setting == HELD


def test_a_hold_ends_when_its_time_has_passed_in_the_same_boot(rig: Rig) -> None:
    holder(rig).take(order(valid_for_s=100.0))
    rig.time.sleep(99.0)
    assert holder(rig).lapsed() == ""
    rig.time.sleep(1.0)
    assert "unreachable for 100 s" in holder(rig).lapsed()


def test_the_tuners_repeated_word_renews_the_time(rig: Rig) -> None:
    keeper = holder(rig)
    keeper.take(order(valid_for_s=100.0))
    rig.time.sleep(60.0)
    keeper.take(order(valid_for_s=100.0))
    rig.time.sleep(60.0)
    assert holder(rig).lapsed() == ""
    assert len(rig.log) == 2


@pytest.mark.parametrize(
    ("passed_s", "valid"), [(50.0, True), (99.0, True), (100.0, False), (-1.0, False)]
)
def test_after_a_reboot_only_wall_time_counts(rig: Rig, passed_s: float, valid: bool) -> None:
    holder(rig).take(order(valid_for_s=100.0))
    rig.boot = "boot-2"
    rig.time.at = START + timedelta(seconds=passed_s)
    assert (holder(rig).lapsed() == "") is valid


def test_an_unknown_boot_is_another_one(rig: Rig) -> None:
    rig.boot = ""
    holder(rig).take(order(valid_for_s=100.0))
    current = holder(rig).current
    assert current is not None
    later = START + timedelta(seconds=30.0)
    assert current.left_s(Host("host", "", 2), later, -1e9) == pytest.approx(70.0)


def test_a_changed_driver_or_workload_ends_the_hold(rig: Rig) -> None:
    holder(rig).take(order())
    rig.driver = "driver 2"
    assert holder(rig).lapsed() == "the driver changed from driver 1 to driver 2"
    rig.driver, rig.workload = "driver 1", False
    assert "the workload changed from model 1 to" in holder(rig).lapsed()


def test_an_slo_broken_in_windows_in_a_row_ends_the_hold(rig: Rig) -> None:
    keeper = holder(rig)
    keeper.take(order())
    assert [keeper.observed(seen(60.0)) for _ in range(BROKEN_WINDOWS - 1)] == ["", ""]
    assert keeper.observed(seen(40.0)) == ""
    assert [keeper.observed(seen(60.0)) for _ in range(BROKEN_WINDOWS - 1)] == ["", ""]
    again = holder(rig)
    why = again.observed(seen(60.0))
    assert why == "latency_p99_ms was 60, the limit is <= 50 in 3 windows in a row"


def test_power_profiles_that_change_end_the_hold(rig: Rig) -> None:
    # NVIDIA's workload power profiles (Blackwell): set by nvidia-smi, DCGM or another cap applies.
    def under(profiles: str) -> Measurement:
        return replace(seen(40.0), sources={POWER_PROFILES: profiles} if profiles else {})

    keeper = holder(rig)
    keeper.take(order(valid_for_s=100.0))
    assert [keeper.observed(under(p)) for p in ("", "max-q", "", "max-q")] == [""] * 4
    rig.time.sleep(60.0)
    keeper.take(order(valid_for_s=100.0))
    why = holder(rig).observed(under("max-p"))
    assert "max-q" in why and "max-p" in why


def test_an_uncertain_window_is_not_a_broken_limit(rig: Rig) -> None:
    keeper = holder(rig)
    keeper.take(order())
    assert all(keeper.observed(seen(50.2)) == "" for _ in range(2 * BROKEN_WINDOWS))


def test_windows_that_break_a_limit_are_counted_and_judged_by_row(rig: Rig) -> None:
    plan = Plan((Row(100.0, HELD), Row(math.inf, BUSY)), "arrival_rate_per_s", 0.1)
    loose = Limit("latency_p99_ms", "<=", 500.0)
    keeper = holder(rig)
    keeper.take(order(plan=plan, limits=((LIMIT,), (loose,))))

    def at(row: int) -> str:
        hold = keeper.current
        assert hold is not None
        if hold.row != row:
            keeper.follow(hold, row)
        return keeper.observed(seen(60.0))

    assert [at(row) for row in (0, 0, 1)] == ["", "", ""]
    assert [holder(rig).current.broken[row] for row in (0, 1)] == [2, 0]  # type: ignore[union-attr]
    assert "in 3 windows in a row" in at(0)


def test_a_hold_that_ended_is_not_taken_up_again(rig: Rig) -> None:
    keeper = holder(rig)
    keeper.take(order())
    keeper.end("broken")
    for each in (keeper, holder(rig)):
        assert each.current is None
        assert each.refuses(order()) == "broken"
        assert each.refuses(order(revision=2)) == ""
    keeper.take(order(revision=2))
    assert rig.setting == HELD and keeper.current is not None


def test_the_end_is_reported_once(rig: Rig) -> None:
    keeper = holder(rig)
    keeper.take(order())
    assert keeper.unreported is None
    keeper.end("broken")
    unreported = holder(rig).unreported
    assert unreported is not None and unreported.ended == "broken"
    keeper.mark_reported()
    assert holder(rig).unreported is None


def test_a_hold_ends_also_where_the_device_does_not_go_back(rig: Rig) -> None:
    keeper = holder(rig)
    keeper.take(order())
    rig.device.refuse = lambda s: refused("stuck")
    with raised(ActuationError, "stuck"):
        keeper.end("broken")
    assert holder(rig).current is None
    assert rig.journal.get(DEVICE) is not None


def test_a_crash_before_the_hold_is_applied_applies_it_at_the_next_start(rig: Rig) -> None:
    rig.device.refuse = lambda s: refused("power cut")
    with pytest.raises(ActuationError):
        holder(rig).take(order())
    rig.device.refuse = lambda s: None
    again = holder(rig)
    again.enforce()
    assert rig.setting == HELD
    again.end("over")
    assert rig.setting == rig.target.space.default


def test_a_damaged_hold_is_ignored(rig: Rig) -> None:
    holder(rig).take(order())
    (path,) = (rig.folder / "holds").glob("*.json")
    path.write_text(path.read_text()[:100])
    assert holder(rig).current is None


def test_a_hold_by_the_hour_is_ignored(rig: Rig) -> None:
    """No agent tells the hour any more, so a row would be held at all hours."""
    holder(rig).take(order())
    (path,) = (rig.folder / "holds").glob("*.json")
    stored = json.loads(path.read_text())
    stored["order"]["plan"]["by"] = "hour"
    path.write_text(json.dumps(stored))
    assert holder(rig).current is None


FULL = failing(errno.ENOSPC)


def test_on_a_full_disk_a_hold_ends_too(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    keeper = holder(rig)
    keeper.take(order())
    with monkeypatch.context() as full:
        full.setattr(os, "fsync", FULL)
        keeper.end("broken")
        assert rig.setting == rig.target.space.default
        assert keeper.current is None and keeper.refuses(order()) == "broken"
        assert "event=hold_not_written" in caplog.text
        killed = holder(rig)
        assert "already been restored" in killed.lapsed(), (
            "a restart takes up nothing that has ended"
        )
    keeper.persist()
    unreported = holder(rig).unreported
    assert unreported is not None and unreported.ended == "broken"


def test_a_hold_that_ended_is_not_resumed_although_disk_and_device_failed(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = holder(rig)
    keeper.take(order())
    rig.device.refuse = lambda s: refused("stuck")
    monkeypatch.setattr(os, "replace", FULL)
    monkeypatch.setattr(Path, "replace", FULL)
    with raised(ActuationError, "stuck"):
        keeper.end("broken")
    assert holder(rig).current is None
    assert rig.journal.get(DEVICE) is not None


def test_broken_windows_count_also_where_they_cannot_be_written(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = holder(rig)
    keeper.take(order())
    monkeypatch.setattr(os, "fsync", FULL)
    reasons = [keeper.observed(seen(60.0)) for _ in range(BROKEN_WINDOWS)]
    assert reasons[:-1] == [""] * (BROKEN_WINDOWS - 1)
    assert "in 3 windows in a row" in reasons[-1]


def test_a_hold_that_cannot_be_stored_is_not_applied(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper, before = holder(rig), rig.setting
    rig.journal.record(DEVICE, rig.target, Level.HOLD, rig.boot, {})
    with monkeypatch.context() as full:
        full.setattr(os, "fsync", FULL)
        with pytest.raises(StoreError):
            keeper.take(order())
        assert (rig.setting, keeper.current) == (before, None)
        assert "host cannot write" in rig.journal.unable("host")
    assert rig.journal.unable("host") == ""


def test_a_dropped_hold_may_be_ordered_again(rig: Rig) -> None:
    keeper = holder(rig)
    keeper.take(order())
    keeper.drop()
    assert rig.setting == rig.target.space.default
    assert (
        holder(rig).current is None and keeper.refuses(order()) == "" and keeper.unreported is None
    )
    keeper.take(order())
    assert rig.setting == HELD


def test_new_limits_for_the_same_plan_leave_its_row_in_force(rig: Rig) -> None:
    plan = Plan((Row(8.0, HELD), Row(math.inf, BUSY)), "requests_in_system")
    keeper = holder(rig)
    keeper.take(order(plan=plan))
    assert keeper.current is not None and keeper.follow(keeper.current, 0)
    applied = len(rig.log)
    tighter = Limit("latency_p99_ms", "<=", 40.0)
    keeper.take(order(revision=2, plan=plan, limits=((tighter,), (tighter,))))
    assert keeper.current.row == 0 and rig.setting == HELD
    assert all(dict(setting).items() <= HELD.items() for _, setting in rig.log[applied:])
