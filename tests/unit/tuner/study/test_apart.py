"""Identical devices of a study that each try a setting: eligibility, scaling to all, and failures."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.builders import completed, device, setting, study, trial, window
from tests.unit.tuner.study.worlds import World, truth
from tuner.core import (
    Done,
    Estimate,
    Mode,
    Outcome,
    Past,
    Phase,
    Plan,
    Report,
    Setting,
    Study,
    Suggestion,
    Terms,
    Trial,
    TrialState,
    Try,
    Wait,
)
from tuner.study import apart
from tuner.study.lifecycle import FAILED_IN_A_ROW
from tuner.study.loop import Loop
from tuner.study.trial_reports import MOST_ABANDONED
from tuner.wire import Assignment, HoldOrder, Idle, Renewal

ORDER = tuple(setting(clock, batch) for batch in (1, 2) for clock in (800, 600, 400))


class Spread:
    """A policy that tries one setting after the other, and proposes the lowest clock."""

    explores_apart = True

    def suggest(self, past: Past) -> Suggestion:
        counted = [t for t in past.trials if t.state is not TrialState.ABORTED]
        left = [at for at in ORDER if not any(t.tries(at) for t in counted)]
        if left and past.left > 0:
            return Try(left[0], f"the next one, {left[0]}")
        if past.running:
            return Wait("the last ones run")
        measured = [t.setting for t in counted if t.phase is Phase.TUNING]
        return Done(
            Plan.single(min(measured, key=lambda at: int(at["gpu.clock_mhz"]))), "the least"
        )


class One(Spread):
    """The same policy, but not for use while trials run."""

    explores_apart = False


class Worlds(World):
    """A world with a policy that spreads settings over devices."""

    policy: Spread = Spread()

    def restarted(self) -> Loop:
        return Loop(self.store, lambda _: self.policy, self.time.now, monotonic=self.time.monotonic)

    def started(self, *names: str, **changes: object) -> Study:
        """Begin a study on devices on separate hosts."""
        orders = self.start(*names, **changes)
        for name in names:
            self.loop.register(device(name, agent=name))
        return orders

    def tune(self, *names: str, **changes: object) -> Study:
        """Run a study on these devices up to its tuning phase."""
        terms = Terms(trials=6, window_s=10.0, max_window_s=30.0)
        started = self.started(*names, **{"terms": terms, **changes})
        for _ in range(2):
            self.step(truth, *names)
        return started

    def told(self, name: str, order: Assignment, level: float = 1.0) -> str:
        shown = truth(order.setting).measurement
        assert shown is not None
        energy = shown.estimates["energy_j"].mean * level
        return self.report(order, completed(energy, shown.estimates["latency_p99_ms"].mean), name)


@pytest.fixture
def world() -> Worlds:
    return Worlds()


def places(*orders: Assignment) -> list[int]:
    """Return the indices in `ORDER` of the settings to try."""
    return [ORDER.index(order.setting) for order in orders]


@pytest.mark.parametrize("names", [("a", "b"), ("a", "b", "c", "d")])
def test_like_devices_try_different_settings_at_once(world: Worlds, names: tuple[str, ...]) -> None:
    world.tune(*names)
    orders = [world.assigned(name) for name in names]
    assert places(*orders) == list(range(len(names)))
    assert [t.device for t in world.store.trials.running("s1")] == list(names)
    assert [world.told(n, o) for n, o in zip(names, orders, strict=True)] == ["closed"] * len(names)
    assert places(world.assigned(names[-1])) == [len(names)]


def test_baseline_and_confirming_are_of_all_devices(world: Worlds) -> None:
    names = ("a", "b", "c")
    world.tune(*names)
    for _ in range(30):
        orders = world.step(truth, *names)
    assert all(isinstance(order, HoldOrder) for order in orders.values())
    made = world.store.trials.list("s1")
    assert {t.phase for t in made if t.device} == {Phase.TUNING}
    assert {t.phase for t in made if not t.device} == {Phase.BASELINE, Phase.CONFIRMING}
    assert all(len(world.store.trials.reports("s1", t.number)) == 3 for t in made if not t.device)


def test_no_more_trials_are_made_than_were_given(world: Worlds) -> None:
    world.tune("a", "b", terms=Terms(trials=3, window_s=10.0, max_window_s=30.0))
    a, b = world.assigned("a"), world.assigned("b")
    world.told("a", a)
    world.assigned("a")
    world.told("b", b)
    waits = world.ask("b")
    assert isinstance(waits, Idle)
    assert waits.why == "the last ones run"


@pytest.mark.parametrize(
    "changes",
    [
        {"agent": "a"},
        {"board": "H100"},
        {"driver": "2"},
        {"workload_version": "2"},
        {"shared": "somebody else"},
    ],
)
def test_devices_that_differ_share_each_trial(world: Worlds, changes: dict[str, object]) -> None:
    world.started("a", "b")
    world.loop.register(device("b", **{"agent": "b", **changes}))
    for _ in range(2):
        world.step(truth, "a", "b")
    orders = [world.assigned(name) for name in ("a", "b")]
    assert orders[0].trial == orders[1].trial
    assert world.store.trials.list("s1")[-1].device == ""


def test_a_policy_that_was_not_made_for_it_has_each_trial_shared(world: Worlds) -> None:
    world.policy = One()
    world.tune("a", "b")
    assert places(world.assigned("a"), world.assigned("b")) == [0, 0]


def test_a_single_device_runs_every_trial(world: Worlds) -> None:
    world.tune("sim")
    assert places(world.assigned()) == [0]
    assert [t.device for t in world.store.trials.list("s1")] == ["", "", ""]


def test_a_continuous_study_shares_each_step() -> None:
    rounds = study(devices=("a", "b"), terms=Terms(mode=Mode.CONTINUOUS))
    like = [device(name, agent=name) for name in "ab"]
    assert not apart.may_explore(rounds, like, Spread())
    assert apart.may_explore(replace(rounds, terms=Terms()), like, Spread())


def test_a_device_that_comes_back_gets_its_own_trial_again(world: Worlds) -> None:
    world.tune("a", "b")
    before = {name: world.assigned(name) for name in ("a", "b")}
    world.loop = world.restarted()
    for name in ("b", "a"):
        again = world.assigned(name, agent="host/2")
        assert (again.trial, again.setting) == (before[name].trial, before[name].setting)
        assert (again.attempt, again.limits) == (2, before[name].limits)


def test_an_answer_that_got_lost_is_given_again_beside_others(world: Worlds) -> None:
    world.tune("a", "b")
    first, other = world.assigned("a"), world.assigned("b")
    assert (world.assigned("a"), world.assigned("b")) == (first, other)


def test_only_one_of_two_tuners_that_decide_at_once_begins_a_trial(
    world: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one decides again, with the first one's trial in its past."""
    world.tune("a", "b")
    world.told("a", world.assigned("a"))
    other, begin = world.restarted(), world.store.trials.begin
    overtaken: list[Assignment] = []

    def overtake(*arguments: object) -> Trial:
        monkeypatch.setattr(world.store.trials, "begin", begin)
        own, world.loop = world.loop, other
        overtaken.append(world.assigned("b"))
        world.loop = own
        return begin(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(world.store.trials, "begin", overtake)
    assert places(world.assigned("a"), *overtaken) == [2, 1]


def test_the_others_go_on_while_one_is_gone(world: Worlds) -> None:
    world.tune("a", "b")
    lost = world.assigned("a")
    for _ in range(8):
        order = world.ask("b")
        if isinstance(order, Assignment):
            world.told("b", order)
    assert isinstance(order, Idle)
    assert world.store.studies.get("s1").phase is Phase.TUNING
    assert world.wait(world.patience_s) == 1
    given_up = next(t for t in world.store.trials.list("s1") if t.number == lost.trial)
    assert given_up.state is TrialState.ABORTED
    assert places(world.assigned("b")) == places(lost), "what nobody measured is tried elsewhere"


def test_a_device_that_stays_away_pauses_the_study_by_its_name(world: Worlds) -> None:
    world.tune("a", "b")
    for _ in range(MOST_ABANDONED):
        world.assigned("a", agent="host/1")
        world.wait(world.patience_s)
    paused = world.store.studies.get("s1")
    assert paused.phase is Phase.PAUSED
    assert "check the agent of a" in world.store.studies.latest("s1").why
    assert world.store.trials.running("s1") == ()


def test_a_report_that_comes_late_closes_nothing(world: Worlds) -> None:
    world.tune("a", "b")
    first, other = world.assigned("a"), world.assigned("b")
    again = world.assigned("a", agent="host/2")
    assert world.told("a", first, 2.0) == "late"
    assert world.told("a", again) == "closed"
    assert world.told("a", again) == "duplicate"
    assert [t.number for t in world.store.trials.running("s1")] == [other.trial]


def test_a_device_cannot_report_another_devices_trial(world: Worlds) -> None:
    world.tune("a", "b")
    order = world.assigned("a")
    world.assigned("b")
    assert world.told("b", order) == "late"
    assert {t.device for t in world.store.trials.running("s1")} == {"a", "b"}


def test_a_device_that_takes_no_orders_loses_its_own_trial_only(world: Worlds) -> None:
    world.tune("a", "b")
    lost, kept = world.assigned("a"), world.assigned("b")
    assert isinstance(world.ask("a", unable="it is paused"), Idle)
    states = {t.number: t.state for t in world.store.trials.list("s1")}
    assert (states[lost.trial], states[kept.trial]) == (TrialState.ABORTED, TrialState.RUNNING)
    world.loop.renew(Renewal(device="b", token=kept.token, nonce=kept.nonce))
    assert world.told("b", kept) == "closed"
    assert isinstance(world.ask("b"), Idle), "the study waits for all of its devices"


def test_a_device_that_fails_at_everything_pauses_the_study_beside_one_that_works(
    world: Worlds,
) -> None:
    world.tune("a", "b", terms=Terms(trials=20, window_s=10.0, max_window_s=30.0))
    world.told("b", world.assigned("b"))
    other = world.assigned("b")
    for _ in range(FAILED_IN_A_ROW + 1):
        order = world.assigned("a")
        world.report(order, Outcome(state=TrialState.FAILED, reason="no meter"), "a")
    assert order.setting == setting(), "the baseline is asked whether anything works"
    world.told("b", other)
    world.ask("a")
    paused = world.store.studies.get("s1")
    assert paused.phase is Phase.PAUSED
    assert "at the baseline too" in world.store.studies.latest("s1").why


def test_a_changed_driver_ends_the_trials_of_all_devices(world: Worlds) -> None:
    world.tune("a", "b")
    world.assigned("a")
    world.assigned("b")
    world.loop.register(device("a", agent="a", driver="2"))
    assert world.store.trials.running("s1") == ()
    assert world.store.studies.get("s1").phase is Phase.BASELINE


def test_a_step_but_a_further_trial_waits_for_those_that_run(world: Worlds) -> None:
    class Hasty(Spread):
        def suggest(self, past: Past) -> Suggestion:
            return Done(Plan.single(setting(800)), "now") if past.running else super().suggest(past)

    world.policy = Hasty()
    world.tune("a", "b")
    order = world.assigned("a")
    waits = world.ask("b")
    assert isinstance(waits, Idle)
    assert waits.why == f"waits for trial {order.trial} on a"
    assert world.store.studies.get("s1").phase is Phase.TUNING


def test_results_of_one_device_are_scaled_to_all(world: Worlds) -> None:
    """One device used a tenth more than the other at the baseline."""
    world.started("a", "b")
    for _ in range(2):
        for name, level in (("a", 1.1), ("b", 0.9)):
            world.told(name, world.assigned(name), level)
    order = world.assigned("a")
    assert places(order) == [0]
    world.told("a", order, 1.1)
    made = world.store.trials.list("s1")
    (kept,) = world.store.trials.reports("s1", order.trial)
    assert kept.outcome.measurement is not None
    assert kept.outcome.measurement.estimates["energy_j"].mean == pytest.approx(8.8)
    shown = made[-1].shown["energy_j"]
    assert shown.mean == pytest.approx(16.0, rel=0.01), "0.8 of the baseline, which is 20 J"
    assert made[-1].shown["latency_p99_ms"].mean == pytest.approx(105.0, rel=0.001)


def test_limits_are_sent_to_a_device_in_its_own_terms(world: Worlds) -> None:
    """Each device gets about half of the energy limit; the latency limit is that of the slowest device."""
    limits = ("energy_j <= 1.5x baseline", "latency_p99_ms <= 1.2x baseline")
    world.tune("a", "b", constraints=limits)
    order = world.assigned("a")
    assert [x.value for x in order.limits] == pytest.approx([15.0, 120.0])


def test_a_censored_window_is_reported_with_the_limit_of_all(world: Worlds) -> None:
    world.tune("a", "b", constraints=("energy_j <= 1.5x baseline",))
    order = world.assigned("a")
    broke = order.limits[0]
    cut = Outcome(state=TrialState.COMPLETED, measurement=window(18.0), broke=broke)
    world.report(order, cut, "a")
    last = world.store.trials.list("s1")[-1]
    assert last.broke is not None
    assert last.broke.value == pytest.approx(30.0)
    assert last.shown["energy_j"].mean == pytest.approx(36.0)
    assert math.isinf(last.shown["energy_j"].high)


def reports(*energies: tuple[float, ...]) -> Callable[[int], list[Report]]:
    """Return a function that gives the reports of two devices on a baseline window, by their energies."""

    def of(number: int) -> list[Report]:
        at = trial(number).started_at
        return [
            Report(
                study="s1", trial=number, device=name, attempt=1, token=1, nonce="n",
                outcome=completed(energy), received_at=at,
            )
            for name, energy in zip("ab", energies[number - 1], strict=True)
        ]  # fmt: skip

    return of


def share(*energies: tuple[float, float]) -> Estimate:
    both = study(devices=("a", "b"))
    windows = [
        trial(n, None, window(sum(x)), phase=Phase.BASELINE) for n, x in enumerate(energies, 1)
    ]
    return apart.shares(both, windows, "a", reports(*energies))["energy_j"]


def test_devices_that_differ_by_noise_alone_count_as_equal() -> None:
    assert share((10.0, 10.05), (10.05, 10.0)).mean == pytest.approx(2.0, rel=0.001)


def test_devices_that_differ_beyond_noise_keep_their_own_level() -> None:
    assert share((8.0, 12.0), (8.0, 12.0)).mean == pytest.approx(2.5, rel=0.01)


def test_the_doubt_of_a_level_is_counted_in() -> None:
    share_of = {"energy_j": Estimate(2.0, 0.2)}
    measurement = apart.scaled(completed(10.0), share_of).measurement
    assert measurement is not None
    assert measurement.estimates.keys() == {"energy_j"}
    shown = measurement.estimates["energy_j"]
    assert shown.stderr == pytest.approx(math.hypot(0.2, 2.0))
    assert shown.low < 20.0 - 1.6 * 2.0 < 20.0 + 1.6 * 2.0 < shown.high


def test_unmeasured_values_stay_unmeasured() -> None:
    failed = Outcome(state=TrialState.FAILED, reason="refused")
    assert apart.scaled(failed, {}) == failed


def test_no_sum_is_given_before_every_device_has_a_baseline() -> None:
    both = study(devices=("a", "b"))
    windows = [trial(1, None, window(), phase=Phase.BASELINE)]
    share_of = apart.shares(both, windows, "a", lambda _: [])
    assert share_of == {}
    assert not apart.is_scalable(both, share_of)


def test_the_trials_of_a_single_device_name_no_device(world: Worlds) -> None:
    """A study of one device has the same trials as without this feature, and each as it was reported."""
    world.tune("sim")
    surface: Callable[[Setting], Outcome] = truth
    world.run(surface)
    made = world.store.trials.list("s1")
    assert {t.device for t in made} == {""}
    for each in made:
        (kept,) = world.store.trials.reports("s1", each.number)
        assert each.measurement == kept.outcome.measurement
