"""The limits of exploring: a freeze, a maintenance window, used shares, and the least saving."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tests.builders import START, Time, applied, device, setting, study, trial, window
from tests.stores import memory_store
from tests.unit.tuner.cli import worlds
from tuner.core import (
    Exploration,
    InvalidInput,
    Level,
    MaintenanceWindow,
    Metric,
    MetricUnavailable,
    Mode,
    Phase,
    Terms,
)
from tuner.service.operations import Operations
from tuner.study.exploring import check_windows, over_budget, wait_for_window
from tuner.study.loop import Loop
from tuner.wire import (
    Assignment,
    Change,
    ExplorationChange,
    HoldOrder,
    Idle,
    Poll,
    Renewal,
    StudyDraft,
)

NIGHTS = Exploration(windows=(MaintenanceWindow("0 22 * * *", 2.0),))


def order(verbs: Operations, holding: str = "") -> object:
    at = applied(level=Level.HOLD, at=setting(600)) if holding else applied()
    return verbs.loop.order("sim", Poll(agent="host", applied=at, holding=holding))


def test_a_frozen_study_starts_no_trial_and_ends_running_ones() -> None:
    verbs = worlds.operations()
    name = worlds.created(verbs)
    running = order(verbs)
    assert isinstance(running, Assignment)
    verbs.freeze(name, Change(who="ann", why="release day"))
    assert order(verbs) == Idle(why="frozen: release day")
    (ended,) = verbs.trials(name)
    assert (ended.state, ended.reason) == ("aborted", "frozen: release day")
    with pytest.raises(Exception, match=r"lease|token|trial"):
        verbs.loop.renew(Renewal(device="sim", token=running.token, nonce=running.nonce))
    assert verbs.thaw(name, Change(who="ann")).waits == ""
    assert isinstance(order(verbs), Assignment)


def test_a_frozen_study_keeps_its_hold() -> None:
    verbs, name = worlds.held()
    verbs.freeze(name, Change(who="ann"))
    held = order(verbs, name)
    assert isinstance(held, HoldOrder)
    assert held.plan.rows[0].setting == setting(600)
    assert verbs.study(name).phase is Phase.HOLDING


def test_a_repeated_freeze_counts_once() -> None:
    verbs = worlds.operations()
    name = worlds.created(verbs)
    first = verbs.freeze(name, Change(who="ann", why="x"))
    assert verbs.freeze(name, Change(who="bob", why="x")).revision == first.revision


def test_trials_wait_for_their_window_and_the_study_names_it() -> None:
    clock = Time()
    loop = Loop(memory_store(), worlds.policies, clock.now)
    loop.register(device())
    verbs = Operations(loop)
    name = worlds.created(verbs)
    view = verbs.set_exploration(name, ExplorationChange(exploration=NIGHTS, who="ann"))
    assert view.waits == "waits for window Thu 2026-01-01 22:00 UTC"
    assert order(verbs) == Idle(why=view.waits)
    clock.at += timedelta(hours=10)
    assert isinstance(order(verbs), Assignment)


def test_exploring_keeps_to_its_share_of_the_time() -> None:
    tuned = replace(study(), phase=Phase.TUNING, exploration=Exploration(max_time_share=0.1))
    ends = START + timedelta(seconds=60)
    tried = replace(trial(1, setting(600), window()), ended_at=ends)
    assert over_budget(tuned, [tried], START + timedelta(seconds=599)) == (
        "exploring used 10.0% of the time (limit 10.0%); "
        "the next trial may start at 2026-01-01 12:10:00Z"
    )
    assert over_budget(tuned, [tried], START + timedelta(seconds=600)) == ""
    confirming = replace(tuned, phase=Phase.TUNING, exploration=Exploration())
    assert over_budget(confirming, [tried], ends) == ""


def test_exploring_keeps_to_its_share_of_the_baselines_energy() -> None:
    """A trial at twice the baseline's power counts as twice its time."""
    tuned = replace(study(), phase=Phase.TUNING, exploration=Exploration(max_energy_share=0.1))
    baselines = [trial(n, setting(), window(10.0), phase=Phase.BASELINE, reason="") for n in (1, 2)]
    tried = trial(3, setting(600), window(20.0, seconds=30.0))
    assert "of the energy" in over_budget(
        tuned, [*baselines, tried], START + timedelta(seconds=590)
    )
    assert over_budget(tuned, [*baselines, tried], START + timedelta(seconds=610)) == ""


def test_a_setting_below_the_least_saving_is_not_held() -> None:
    verbs = worlds.operations()
    name = worlds.created(verbs)
    least = Exploration(min_saving=0.5)
    verbs.set_exploration(name, ExplorationChange(exploration=least, who="ann"))
    worlds.tune(verbs)
    held = verbs.study(name)
    assert held.plan is not None
    assert held.plan.rows[0].setting == setting(), "40 % is less than half"
    assert "below min_saving (50.0%)" in held.phase_why


def test_limits_that_cannot_be_kept_are_refused_by_name() -> None:
    blind = device(metrics=(Metric("energy_j"), Metric("latency_p99_ms")))
    verbs = worlds.operations(about=blind)
    draft = StudyDraft(devices=("sim",), constraints=(worlds.LIMIT,), policy="scripted")
    limits = Exploration(max_energy_share=0.1)
    with pytest.raises(MetricUnavailable, match="max_energy_share needs power_w"):
        verbs.create(draft.model_copy(update={"exploration": limits}))
    endless = draft.model_copy(update={"terms": Terms(mode=Mode.CONTINUOUS), "exploration": NIGHTS})
    with pytest.raises(InvalidInput, match="continuous study has no exploration"):
        verbs.create(endless)
    assert verbs.studies() == []


BERLIN = Exploration(windows=(MaintenanceWindow("30 2 * * *", 4.0),), time_zone="Europe/Berlin")


def opening(exploration: Exploration, since: datetime, hours: int = 24) -> list[datetime]:
    """Return the moments, in steps of ten minutes, at which trials may run."""
    moments = [since + timedelta(minutes=10 * n) for n in range(6 * hours)]
    return [at for at in moments if not wait_for_window(exploration, at)]


@pytest.mark.parametrize(
    ("day", "opens"),
    [
        (datetime(2026, 3, 27, 12, tzinfo=UTC), datetime(2026, 3, 28, 1, 30, tzinfo=UTC)),
        # 02:30 is skipped: the window opens at 03:30, which is the same moment.
        (datetime(2026, 3, 28, 12, tzinfo=UTC), datetime(2026, 3, 29, 1, 30, tzinfo=UTC)),
        (datetime(2026, 3, 29, 12, tzinfo=UTC), datetime(2026, 3, 30, 0, 30, tzinfo=UTC)),
        # 02:30 occurs twice: the window opens once, and lasts four hours.
        (datetime(2026, 10, 24, 12, tzinfo=UTC), datetime(2026, 10, 25, 0, 30, tzinfo=UTC)),
        (datetime(2026, 10, 25, 12, tzinfo=UTC), datetime(2026, 10, 26, 1, 30, tzinfo=UTC)),
    ],
)
def test_a_window_opens_once_a_day_and_lasts_its_hours_also_when_clocks_change(
    day: datetime, opens: datetime
) -> None:
    assert opening(BERLIN, day) == [opens + timedelta(minutes=10 * n) for n in range(24)]


def test_the_awaited_window_is_given_in_its_time_zone() -> None:
    saturdays = Exploration(
        windows=(MaintenanceWindow("0 2 * * sat", 4.0),), time_zone="Europe/Berlin"
    )
    friday = datetime(2026, 10, 23, 12, tzinfo=UTC)
    assert wait_for_window(saturdays, friday) == "waits for window Sat 2026-10-24 02:00 CEST"
    assert wait_for_window(saturdays, friday + timedelta(days=7)) == (
        "waits for window Sat 2026-10-31 02:00 CET"
    )
    skipped = datetime(2026, 3, 29, 1, 10, tzinfo=UTC)
    assert wait_for_window(BERLIN, skipped) == "waits for window Sun 2026-03-29 03:30 CEST"


def test_any_of_several_windows_is_enough() -> None:
    both = Exploration(
        windows=(MaintenanceWindow("0 0 * * *", 1.0), MaintenanceWindow("0 12 * * *", 2.0))
    )
    day = datetime(2026, 6, 1, tzinfo=UTC)
    assert {at.hour for at in opening(both, day)} == {0, 12, 13}
    assert wait_for_window(both, day.replace(hour=5)) == "waits for window Mon 2026-06-01 12:00 UTC"


def test_without_windows_nothing_waits() -> None:
    assert wait_for_window(Exploration(), datetime(2026, 1, 1, tzinfo=UTC)) == ""


@pytest.mark.parametrize(
    ("cron", "zone", "words"),
    [
        ("0 2 * * 6", "UTC", "names of days"),
        ("0 2 * *", "UTC", "five fields"),
        ("0 25 * * sat", "UTC", "cron cannot be '0 25"),
        ("0 2 30 feb *", "UTC", "never opens"),
        ("0 2 * * sat", "Europe/Berlyn", "time_zone cannot be"),
        ("0 2 * * sat", "../../etc/passwd", "time_zone cannot be"),
    ],
)
def test_a_window_that_cannot_open_is_refused(cron: str, zone: str, words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_windows(Exploration(windows=(MaintenanceWindow(cron, 1.0),), time_zone=zone))
    assert words in str(caught.value)


@pytest.mark.parametrize("hours", [0.0, -1.0, 169.0, float("nan")])
def test_a_window_of_no_length_is_refused(hours: float) -> None:
    with pytest.raises(InvalidInput, match="hours cannot be"):
        MaintenanceWindow("0 2 * * sat", hours)
