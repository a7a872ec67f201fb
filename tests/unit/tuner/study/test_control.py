"""Control windows: their times, the studies without them, and their effect on the computed saving."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta

import pytest

from tests.builders import START, completed, device, past, saved, setting, study, trial, window
from tests.unit.tuner.study.worlds import World, truth
from tuner.config import Subject
from tuner.core import (
    Bill,
    Estimate,
    FleetStop,
    Outcome,
    Phase,
    Plan,
    Setting,
    Signal,
    Terms,
    Trial,
    TrialState,
)
from tuner.service.clock.schedule import Maintenance
from tuner.service.notices.notifications import BY_KIND
from tuner.service.operations import Operations
from tuner.study.control import (
    LastControl,
    baseline_shifts,
    control,
    interval_s,
    last_control,
)
from tuner.study.loop import MOST_TRUSTED_S
from tuner.wire import Assignment, Change, HoldOrder, HoldReport, Idle, Release, StudyReport

TERMS = Terms(trials=4, window_s=10.0, max_window_s=30.0, control_share=0.05)
DUE_S = 1400.0
"""A held window takes 10 s and the next is due 60 s after it; one in twenty is a control window."""


def holding(terms: Terms = TERMS) -> tuple[World, HoldOrder]:
    """Return a world whose study holds 600 MHz, and the order to hold it."""
    world = World()
    world.start(terms=terms)
    return world, world.run(truth)


def test_the_share_of_control_windows_determines_their_interval() -> None:
    assert interval_s(TERMS) == pytest.approx(DUE_S)
    assert interval_s(replace(TERMS, window_s=40.0, max_window_s=40.0)) == pytest.approx(2000.0)
    assert interval_s(replace(TERMS, control_share=0.0)) == float("inf")


def test_a_hold_in_longer_windows_is_measured_again_more_rarely() -> None:
    def rare(at: Setting) -> Outcome:
        few = window(0.01 * int(at["gpu.clock_mhz"]), 105.0, rate=0.3, seconds=30.0)
        return Outcome(state=TrialState.COMPLETED, measurement=few)

    world = World()
    world.start(terms=TERMS)
    hold = world.run(rare)
    due_s = interval_s(replace(TERMS, window_s=hold.window_s))
    world.time.sleep(due_s - 1.0)
    assert due_s > DUE_S and world.ask_holding(hold) == hold
    world.time.sleep(1.0)
    assert isinstance(world.ask_holding(hold), Assignment)


def test_a_hold_is_measured_at_the_baseline_now_and_then_and_goes_on() -> None:
    world, hold = holding()
    world.time.sleep(DUE_S - 1.0)
    assert world.ask_holding(hold) == hold
    for number in (9, 10):
        world.time.sleep(1.0 if number == 9 else DUE_S)
        order = world.ask_holding(hold)
        assert isinstance(order, Assignment)
        assert (order.trial, order.phase, order.setting) == (number, Phase.HOLDING, setting())
        assert (order.limits, order.expected, order.context) == ((), {}, {})
        assert order.why == "control window: measuring the baseline again"
        assert world.report(order, completed(10.0, 100.0)) == "closed"
        assert world.ask_holding(hold) == hold
    stored = world.store.studies.get("s1")
    assert (stored.phase, stored.revision) == (Phase.HOLDING, hold.revision)


def test_studies_without_control_windows_are_not_measured_again() -> None:
    world, hold = holding(replace(TERMS, control_share=0.0))
    world.time.sleep(30 * 86400.0)
    assert world.ask_holding(hold) == hold


def test_a_tuner_started_anew_measures_at_the_same_time() -> None:
    world, hold = holding()
    world.time.sleep(DUE_S - 1.0)
    world.loop = world.restarted()
    assert world.ask_holding(hold) == hold
    world.time.sleep(1.0)
    order = world.ask_holding(hold)
    assert isinstance(order, Assignment)
    world.loop = world.restarted()
    assert world.ask_holding(hold) == order, "the same trial, not another"
    world.report(order, completed(10.0, 100.0))
    world.loop = world.restarted()
    assert world.ask_holding(hold) == hold


def test_an_agent_killed_in_a_control_window_gets_it_again_and_the_hold_after_it() -> None:
    world, hold = holding()
    world.time.sleep(DUE_S)
    assert isinstance(world.ask_holding(hold), Assignment)
    again = world.ask_holding(hold, agent="host/2")
    assert isinstance(again, Assignment)
    assert (again.trial, again.attempt) == (9, 2)
    world.report(again, completed(10.0, 100.0))
    assert world.ask_holding(hold, agent="host/2") == hold


def test_control_windows_that_are_abandoned_end_no_hold() -> None:
    world, hold = holding()
    for start in range(4):
        world.time.sleep(DUE_S)
        assert isinstance(world.ask_holding(hold, agent=f"host/{start + 2}"), Assignment)
        assert world.wait(world.patience_s) == 1
    assert world.store.studies.get("s1").phase is Phase.HOLDING
    assert [t.state for t in world.store.trials.list("s1")[8:]] == [TrialState.ABORTED] * 4


@pytest.mark.parametrize("state", [TrialState.FAILED, TrialState.CONTAMINATED])
def test_a_control_window_that_shows_nothing_is_not_repeated_before_its_time(
    state: TrialState,
) -> None:
    world, hold = holding()
    world.time.sleep(DUE_S)
    order = world.ask_holding(hold)
    assert isinstance(order, Assignment)
    world.report(order, Outcome(state=state, reason="the meter is gone"))
    assert world.ask_holding(hold) == hold
    world.time.sleep(DUE_S)
    assert isinstance(world.ask_holding(hold), Assignment)


def test_a_device_that_may_not_be_disturbed_is_left_alone() -> None:
    world, hold = holding()
    verbs = Operations(world.loop)
    world.time.sleep(DUE_S)
    assert isinstance(world.ask_holding(hold, unable="the actuator has paused it"), Idle)
    world.ask_holding(hold, unable="it is at its original")
    assert isinstance(world.ask(), HoldOrder), "what is not in force yet comes first"
    world.store.stops.order(FleetStop(at=world.time.now(), who="ann"))
    assert isinstance(world.ask_holding(hold), Release)
    world.store.stops.lift()
    verbs.pause("s1", Change())
    assert isinstance(world.ask_holding(hold), Release)
    assert len(world.store.trials.list("s1")) == 8


def test_a_stop_ends_a_control_window_at_once() -> None:
    world, hold = holding()
    world.time.sleep(DUE_S)
    assert isinstance(world.ask_holding(hold), Assignment)
    world.store.stops.order(FleetStop(at=world.time.now(), who="ann"))
    assert isinstance(world.ask_holding(hold), Release)
    assert world.store.trials.list("s1")[-1].state is TrialState.ABORTED


def test_control_windows_keep_to_their_hours_and_to_those_of_all_trials() -> None:
    hour = START.astimezone().hour
    later = f"{(hour + 2) % 24}-{(hour + 3) % 24 or 24}"
    world, hold = holding(replace(TERMS, control_hours=later))
    world.time.sleep(7000.0)
    assert world.ask_holding(hold) == hold
    world.time.sleep(250.0)
    world.loop.hours = lambda _: False
    assert world.ask_holding(hold) == hold
    world.loop.hours = lambda _: True
    world.time.sleep(MOST_TRUSTED_S)
    assert isinstance(world.ask_holding(hold), Assignment)


def test_an_answer_is_not_remembered_past_the_time_of_a_control_window() -> None:
    """A repeated poll without news is answered from memory, but not once a control window is due."""
    world, hold = holding()
    while (world.time.now() - START).total_seconds() < DUE_S - 60.0:
        world.time.sleep(60.0)
        assert world.ask_holding(hold) == hold
    world.time.sleep(60.0)
    assert isinstance(world.ask_holding(hold), Assignment)


@pytest.mark.parametrize(
    ("minutes", "left_s"), [(0.0, DUE_S), (20.0, 200.0), (24.0, 36 * 60.0), (70.0, 50 * 60.0)]
)
def test_a_due_change_waits_for_the_next_hour_at_most(minutes: float, left_s: float) -> None:
    began = START.astimezone().replace(minute=0)
    now = began + timedelta(minutes=minutes)
    assert LastControl(TERMS, began).due_in_s(now) == pytest.approx(left_s)


def test_a_study_without_control_windows_is_remembered_as_long_as_any() -> None:
    held = study(Phase.HOLDING, plan=Plan.single(setting(600)))
    never = LastControl(held.terms, last_control(held, [], START))
    assert not never.is_due(START)
    assert never.due_in_s(START) == float("inf")


@pytest.mark.parametrize("step", [timedelta(days=-365), timedelta(days=365)])
def test_a_step_of_the_wall_clock_stops_no_control_windows(step: timedelta) -> None:
    now = START + step
    assert LastControl(TERMS, START).is_due(now)
    assert not LastControl(TERMS, now).is_due(now + timedelta(seconds=DUE_S - 1.0))


def test_where_the_baseline_is_held_there_is_nothing_to_measure_again() -> None:
    world = World()
    world.start(terms=TERMS)
    hold = world.run(lambda _: completed(10.0, 100.0))
    world.time.sleep(DUE_S)
    assert world.ask_holding(hold) == hold


def test_a_baseline_that_breaks_a_limit_is_not_measured_again() -> None:
    held = study(
        Phase.HOLDING, ("latency_p99_ms <= 90",), terms=TERMS, plan=Plan.single(setting(600))
    )
    base = [trial(n, setting(), window(10.0, 100.0), phase=Phase.BASELINE) for n in (1, 2)]
    assert last_control(held, base, START) is None
    kept = replace(held, constraints=study().constraints)
    assert last_control(kept, base, START) == START


def test_a_control_window_that_breaks_a_limit_is_the_last_and_reported() -> None:
    world, hold = holding()
    world.time.sleep(DUE_S)
    order = world.ask_holding(hold)
    assert isinstance(order, Assignment)
    world.report(order, completed(10.0, 140.0))
    world.time.sleep(10 * DUE_S)
    assert world.ask_holding(hold) == hold
    texts = [e.text for e in world.store.events.list("s1") if e.kind == "control windows ended"]
    assert len(texts) == 1
    assert texts[0].startswith("the baseline breaks latency_p99_ms <= 120")


def test_a_row_is_measured_again_at_the_load_it_was_confirmed_at() -> None:
    asking = (Signal("requests_in_system", askable=True),)
    plan = Plan(
        (
            replace(Plan.single(setting(600)).rows[0], below=3.0, at=2.0),
            replace(Plan.single(setting(800)).rows[0], at=4.0),
        ),
        by="requests_in_system",
    )
    held = study(Phase.HOLDING, plan=plan, signals=asking)
    assert control(held, plan, setting(600)).context == {"requests_in_system": 2.0}
    assert control(held, plan, setting(800)).context == {"requests_in_system": 4.0}
    assert control(replace(held, signals=()), plan, setting(800)).context == {}


def test_control_windows_change_no_limit_and_no_hold() -> None:
    held = study(Phase.HOLDING, plan=Plan.single(setting(600)))
    base = [trial(n, setting(), phase=Phase.BASELINE) for n in (1, 2)]
    fresh = trial(3, setting(), window(5.0, 300.0, rate=10.0), phase=Phase.HOLDING)
    assert past(held, [*base, fresh]).evidence == past(held, base).evidence


def test_several_devices_have_no_control_windows() -> None:
    held = study(Phase.HOLDING, devices=("a", "b"), terms=TERMS, plan=Plan.single(setting(600)))
    base = [trial(n, setting(), phase=Phase.BASELINE) for n in (1, 2)]
    assert last_control(held, base, START) is None


# A device whose true baseline uses 10 % less from the middle of a hold on.

HELD_J, FIRST_J, DRIFTED_J, RATE = 6.0, 10.0, 9.0, 50.0
HOURS = 12.0


class Drifting:
    """A device with its own clock, windows of 1 % noise, and the true saving in joules."""

    def __init__(self, share: float, seed: int = 0) -> None:
        self.world = World()
        self.rng = random.Random(seed)
        self.world.start(terms=replace(TERMS, control_share=share))
        self.hold = self.world.run(self.shown)
        self.middle = self.world.time.now() + timedelta(hours=HOURS / 2.0)
        self.controls = 0
        self.truly_j = 0.0

    def baseline_j(self) -> float:
        drifted = hasattr(self, "middle") and self.world.time.now() >= self.middle
        return DRIFTED_J if drifted else FIRST_J

    def shown(self, at: Setting) -> Outcome:
        true_j = {1000: self.baseline_j(), 800: 8.0, 600: HELD_J}[int(at["gpu.clock_mhz"])]
        noisy = completed(true_j * (1.0 + self.rng.gauss(0.0, 0.01)), 105.0)
        assert noisy.measurement is not None
        self.world.time.sleep(10.0)
        began = self.world.time.now() - timedelta(seconds=10.0)
        return replace(noisy, measurement=replace(noisy.measurement, started_at=began))

    def pass_s(self, seconds: float) -> None:
        """Advance the time, and add the true saving of the hold."""
        self.truly_j += (self.baseline_j() - HELD_J) * RATE * seconds
        self.world.time.sleep(seconds)

    def hold_for(self, hours: float) -> None:
        end = self.world.time.now() + timedelta(hours=hours)
        while self.world.time.now() < end:
            self.truly_j += (self.baseline_j() - HELD_J) * RATE * 10.0
            seen = self.shown(setting(600)).measurement
            self.world.loop.hold_reports.observe(
                HoldReport.of(self.hold, device="sim", setting=setting(600), measurement=seen)
            )
            order = self.world.ask_holding(self.hold)
            if isinstance(order, Assignment):
                self.world.time.sleep(15.0)
                self.world.report(order, self.shown(order.setting))
                self.controls += 1
            self.pass_s(60.0)

    def report(self) -> StudyReport:
        return Operations(self.world.loop).report("s1")


def off_by(bill: Bill, truly_j: float) -> tuple[float, float]:
    """Return the error of a bill's saving and its standard error, both as shares of the true saving."""
    whole = saved(bill)
    assert whole.saved_j is not None and whole.stderr_j is not None
    return whole.saved_j / truly_j - 1.0, whole.stderr_j / truly_j


@pytest.mark.promise(
    "the baseline drifts while another setting is held",
    "the bill says since when it extrapolates; with control windows it is within its "
    "own error, the drift is an event, and a kill during one does not end the hold",
)
def test_without_control_windows_a_drifted_baseline_falsifies_the_bill_with_a_note() -> None:
    drifting = Drifting(share=0.0)
    drifting.hold_for(HOURS)
    report = drifting.report()
    wrong, doubt = off_by(report.bill, drifting.truly_j)
    # 4 J per item were claimed throughout; the true saving was 4 J and then 3 J.
    assert wrong == pytest.approx(8.0 / 7.0 - 1.0, abs=3.0 * doubt)
    assert wrong > 5.0 * doubt
    assert (report.bill.controls, report.bill.measured_again_at) == (0, None)
    begun = [t.measurement for t in drifting.world.store.trials.list("s1") if t.number == 7]
    assert begun[0] is not None
    assert report.bill.extrapolated_since == begun[0].started_at, "the last window of the baseline"
    assert report.baseline_shift is None
    assert report.saving is not None
    assert report.saving.mean == pytest.approx(0.40, abs=0.02)


@pytest.mark.promise("the baseline drifts while another setting is held")
@pytest.mark.parametrize("seed", range(6))
def test_with_control_windows_the_bill_of_a_drifted_baseline_is_within_its_own_error(
    seed: int,
) -> None:
    drifting = Drifting(share=0.05, seed=seed)
    drifting.hold_for(HOURS)
    bill = drifting.report().bill
    wrong, doubt = off_by(bill, drifting.truly_j)
    assert abs(wrong) <= 2.0 * doubt
    assert doubt < 0.02
    assert bill.controls == drifting.controls == pytest.approx(30, abs=3)
    assert bill.measured_again_at == drifting.world.store.trials.list("s1")[-1].started_at
    assert bill.extrapolated_since is None


@pytest.mark.promise("the baseline drifts while another setting is held")
def test_a_drift_of_the_baseline_is_reported_once_and_changes_the_claim() -> None:
    drifting = Drifting(share=0.05, seed=1)
    drifting.hold_for(HOURS)
    report = drifting.report()
    shift = report.baseline_shift
    assert shift is not None
    assert shift.change.mean == pytest.approx(-0.10, abs=2.0 * shift.change.stderr)
    assert abs(shift.since - drifting.middle) <= timedelta(seconds=2.0 * DUE_S)
    assert report.saving is not None
    assert report.saving.mean == pytest.approx(1.0 - HELD_J / DRIFTED_J, abs=0.02)
    assert report.bill.saving_w == pytest.approx(3.0 * RATE, rel=0.1)
    texts = [e.text for e in drifting.world.store.events.list("s1") if e.kind == "baseline drifted"]
    assert len(texts) == 1
    assert "% lower than the study's first baseline" in texts[0]
    Maintenance(drifting.world.loop, keep_days=90).watch_drift()
    assert drifting.world.store.studies.get("s1").phase is Phase.HOLDING, "what is held has not"


def controls(*energies: float) -> list[Trial]:
    """Return a first baseline of 10 J an item, and control windows an hour apart."""
    first = [trial(n, setting(), phase=Phase.BASELINE) for n in (1, 2)]
    again = [
        replace(
            trial(n, setting(), window(energy_j), phase=Phase.HOLDING),
            started_at=START + timedelta(hours=n),
        )
        for n, energy_j in enumerate(energies, 3)
    ]
    return [*first, *again]


HELD = study(Phase.HOLDING, plan=Plan.single(setting(600)), terms=TERMS, phase_since=3)


@pytest.mark.parametrize("seed", range(5))
def test_a_constant_baseline_is_never_reported_as_drifted(seed: int) -> None:
    rng = random.Random(seed)
    off = 1.0 + rng.gauss(0.0, 0.007)  # the first baseline itself has an error
    steady = controls(*(10.0 * off * (1.0 + rng.gauss(0.0, 0.02)) for _ in range(600)))
    assert baseline_shifts(HELD, steady) == ()


def test_a_baseline_that_comes_back_has_drifted_twice() -> None:
    there, back = baseline_shifts(HELD, controls(*[10.0] * 5, *[8.0] * 10, *[10.0] * 10))
    assert there.change.mean == pytest.approx(-0.2, abs=1e-9)
    assert (there.since, there.windows) == (START + timedelta(hours=8), 10)
    assert back.change.mean == pytest.approx(0.0, abs=1e-9)
    assert (back.since, back.windows) == (START + timedelta(hours=18), 10)


def test_each_load_is_compared_with_the_first_baseline_at_that_load() -> None:
    def at(load: float, energy_j: float, number: int, phase: Phase) -> Trial:
        loaded = window(energy_j, context={"requests_in_system": load})
        return trial(number, setting(), loaded, phase=phase)

    first = [at(1.0, 20.0, 1, Phase.BASELINE), at(8.0, 10.0, 2, Phase.BASELINE)]
    steady = [at(*((1.0, 20.0) if n % 2 else (8.0, 10.0)), n, Phase.HOLDING) for n in range(3, 40)]
    assert baseline_shifts(HELD, [*first, *steady]) == ()
    elsewhere = [at(64.0, 1.0, n, Phase.HOLDING) for n in range(40, 60)]
    assert baseline_shifts(HELD, [*first, *elsewhere]) == (), "never measured there at first"


def test_a_new_driver_makes_older_control_windows_count_no_more() -> None:
    drifting = Drifting(share=0.05)
    drifting.hold_for(2.0)
    assert drifting.report().bill.controls > 0
    drifting.world.loop.register(device(driver="2"))
    assert drifting.report().bill.controls == 0
    drifting.hold = drifting.world.run(drifting.shown)
    drifting.hold_for(2.0)
    assert 0 < drifting.report().bill.controls < drifting.controls


def test_a_kept_limit_needs_no_bounds_of_an_estimate() -> None:
    unbounded = Estimate(110.0, 1.0, 40, 100.0, float("inf"))
    base = [trial(n, setting(), phase=Phase.BASELINE) for n in (1, 2)]
    seen = trial(3, setting(), window(extra={"latency_p99_ms": unbounded}), phase=Phase.HOLDING)
    held = study(Phase.HOLDING, terms=TERMS, plan=Plan.single(setting(600)), phase_since=3)
    assert last_control(held, [*base, seen], START) == seen.started_at


def test_destinations_of_drift_also_get_shifts_of_the_baseline() -> None:
    assert BY_KIND["baseline drifted"].subject is Subject.DRIFT
