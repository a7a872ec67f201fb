"""A simulated M/D/1 server: windows at one load inform predictions at others, and the plan."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from policies.polythrottle.policy import Polythrottle
from tests.builders import START, knob, study, trial
from tuner.bo.encoding import enumerate_grid
from tuner.bo.load import over_loads
from tuner.bo.prior import physical_hypotheses
from tuner.bo.queueing import under_load
from tuner.bo.suggest import suggest
from tuner.core import (
    Done,
    Estimate,
    Kind,
    LoadHistory,
    Measurement,
    Past,
    Phase,
    Setting,
    Signal,
    Space,
    Study,
    Suggestion,
    Terms,
    Trial,
    Try,
    Wait,
    setting_key,
)
from tuner.core import Load as WindowLoad

BY = "arrival_rate_per_s"
CLOCKS = tuple(range(500, 1501, 100))
SPACE = Space((knob("gpu.clock_mhz", CLOCKS, 1500),))
LIMIT_MS = 60.0
HISTORY = LoadHistory.of([(15.0, 100.0), (30.0, 100.0), (60.0, 100.0)])


def truth(setting: Setting, load: float) -> tuple[float, float]:
    """Return joules per item and p99 in ms, by a queue with one server."""
    clock = float(setting["gpu.clock_mhz"]) / 1500.0
    service_s = 0.010 * (0.8 / clock + 0.2)
    busy = min(load * service_s, 0.985)
    power_w = 40.0 + 30.0 * clock + busy * 250.0 * clock**2.2
    return power_w / min(load, 1.0 / service_s), 1000.0 * service_s * (
        1.0 + 2.3 * busy / (1 - busy)
    )


def shown(setting: Setting, load: float) -> Measurement:
    energy_j, p99_ms = truth(setting, load)
    return Measurement(
        estimates={
            "energy_j": Estimate.of_mean(energy_j, 0.01 * energy_j, 10),
            "latency_p99_ms": Estimate.of_mean(p99_ms, 0.02 * p99_ms, 500),
            "power_w": Estimate.of_mean(energy_j * load, 0.01 * energy_j * load, 10),
            "throughput_per_s": Estimate.of_mean(load, 0.01 * load, 10),
        },
        started_at=START,
        seconds=10.0,
        load=WindowLoad(completed=int(10.0 * load)),
        context={BY: load},
    )


def asked(trials: int = 40, *, askable: bool = False, limit: str = f"<= {LIMIT_MS}") -> Study:
    return study(
        constraints=(f"latency_p99_ms {limit}",),
        space=SPACE,
        signals=(Signal(BY, "1/s", askable),),
        terms=Terms(trials=trials, plan_by=BY),
    )


def at_baseline(load: float = 30.0) -> list[Trial]:
    return [
        trial(n, SPACE.default, shown(SPACE.default, load), phase=Phase.BASELINE) for n in (1, 2)
    ]


def past(at: Study, trials: Sequence[Trial], now: float, loads: LoadHistory = HISTORY) -> Past:
    return Past(study=at, trials=tuple(trials), context={BY: now}, loads=loads)


def followed(at: Study, loads: Sequence[float]) -> tuple[list[Trial], Suggestion]:
    """Return the trials of a study under this course of the load, and the last answer."""
    trials, answer = at_baseline(loads[0]), None
    for now in loads:
        answer = Polythrottle().suggest(past(at, trials, now))
        if isinstance(answer, Try):
            load = answer.context.get(BY, now)
            made = trial(len(trials) + 1, answer.setting, shown(answer.setting, load))
            trials.append(replace(made, context=dict(answer.context)))
    assert answer is not None
    return trials, answer


def test_at_one_load_it_decides_as_without_a_plan() -> None:
    at = asked(12)
    plain = replace(at, terms=replace(at.terms, plan_by=""))
    trials = at_baseline()
    while isinstance(answer := Polythrottle().suggest(past(at, trials, 30.3)), Try):
        other = suggest(Past(study=plain, trials=tuple(trials)))
        assert isinstance(other, Try) and other.setting == answer.setting
        load = 30.0 * (1.0 + 0.02 * (-1) ** len(trials))
        trials.append(trial(len(trials) + 1, answer.setting, shown(answer.setting, load)))
    done = suggest(Past(study=plain, trials=tuple(trials)))
    assert isinstance(done, Done) and isinstance(answer, Done)
    assert answer.plan.rows[0].setting == done.plan.rows[0].setting
    assert [row.setting for row in answer.plan.rows[1:]] == [SPACE.default]


def test_a_plan_has_slower_rows_at_lower_loads_and_all_keep_the_limit() -> None:
    at = asked()
    trials, _ = followed(at, [30.0] * 6 + [60.0] * 6 + [15.0] * 4 + [30.0] * 3)
    answer = Polythrottle().suggest(
        past(replace(at, terms=replace(at.terms, trials=1)), trials, 30.0)
    )
    assert isinstance(answer, Done)
    plan = answer.plan
    held = [plan.rows[plan.row({BY: load})].setting for load in (15.0, 30.0, 60.0)]
    clocks = [int(str(setting["gpu.clock_mhz"])) for setting in held]
    assert clocks == sorted(clocks) and clocks[0] < clocks[2]
    for setting, load in zip(held, (15.0, 30.0, 60.0), strict=True):
        assert truth(setting, load)[1] <= LIMIT_MS
        assert truth(setting, load)[0] <= truth(SPACE.default, load)[0]
    assert plan.rows[plan.row({BY: 120.0})].setting == SPACE.default


def test_at_a_new_load_the_baseline_is_measured_first() -> None:
    answer = Polythrottle().suggest(past(asked(), at_baseline(30.0), 60.0))
    assert isinstance(answer, Try) and answer.setting == SPACE.default and not answer.context


@pytest.mark.parametrize("load", [40.0, 45.0, 50.0])
def test_evidence_at_one_load_makes_the_first_trial_at_another_safe(load: float) -> None:
    trials, _ = followed(asked(), [30.0] * 6)
    trials.append(trial(len(trials) + 1, SPACE.default, shown(SPACE.default, load)))
    answer = Polythrottle().suggest(past(asked(), trials, load))
    assert isinstance(answer, Try) and answer.setting != SPACE.default
    assert truth(answer.setting, load)[1] <= LIMIT_MS


def test_nothing_is_tried_where_even_the_baseline_breaks_the_limit_by_far() -> None:
    trials, _ = followed(asked(), [30.0] * 4)
    trials.append(trial(len(trials) + 1, SPACE.default, shown(SPACE.default, 97.0)))
    assert isinstance(Polythrottle().suggest(past(asked(), trials, 97.0)), Done)


def test_an_unmeasurable_baseline_is_not_requested_endlessly() -> None:
    window = shown(SPACE.default, 3.0)
    blind = replace(window, estimates={"throughput_per_s": window.estimates["throughput_per_s"]})
    trials = [*at_baseline(), *(trial(n, SPACE.default, blind) for n in (3, 4))]
    assert not isinstance(Polythrottle().suggest(past(asked(), trials, 3.0)), Try)


def test_where_a_trial_may_ask_for_a_load_the_loads_that_come_most_are_asked_for() -> None:
    often = LoadHistory.of([(30.0, 10.0), (60.0, 100.0), (15.0, 50.0)])
    trials = at_baseline(30.0)
    answer = Polythrottle().suggest(past(asked(askable=True), trials, 30.0, often))
    assert isinstance(answer, Try)
    assert answer.context[BY] == pytest.approx(60.0, rel=0.06)


def test_a_relative_limit_is_one_beside_the_baseline_at_the_same_load() -> None:
    at = asked(limit="<= 1.6x baseline")
    trials, _ = followed(at, [30.0] * 6 + [15.0] * 6)
    answer = Polythrottle().suggest(
        past(replace(at, terms=replace(at.terms, trials=1)), trials, 30.0)
    )
    assert isinstance(answer, Done)
    for load in (15.0, 30.0):
        held = answer.plan.rows[answer.plan.row({BY: load})].setting
        assert truth(held, load)[1] <= 1.6 * truth(SPACE.default, load)[1]


def test_the_same_past_gives_the_same_answer() -> None:
    at = asked()
    trials, _ = followed(at, [30.0] * 3 + [60.0] * 3)
    first, second = (Polythrottle().suggest(past(at, trials, 45.0)) for _ in range(2))
    assert first == second


def test_without_a_baseline_it_waits() -> None:
    assert isinstance(Polythrottle().suggest(past(asked(), [], 30.0)), Wait)


def test_an_explanation_says_that_it_is_of_one_load() -> None:
    text = Polythrottle().explain(past(asked(), at_baseline(), 30.0)).text
    assert BY in text and "it would try" not in text


def test_a_load_that_is_not_reported_is_waited_for() -> None:
    silent = replace(past(asked(), at_baseline(), 30.0), context={})
    answer = Polythrottle().suggest(silent)
    assert isinstance(answer, Wait) and BY in answer.why


def test_a_space_too_large_to_enumerate_is_searched_by_loads_too() -> None:
    wide = Space((*(knob(f"k{n}", tuple(range(1, 41)), 40) for n in range(2)), *SPACE.knobs))
    at = replace(asked(), space=wide)
    trials = [
        trial(n + 1, wide.default, shown(wide.default, load), phase=Phase.BASELINE)
        for n, load in enumerate((30.0, 60.0))
    ]
    answer = Polythrottle().suggest(past(at, trials, 60.0))
    assert isinstance(answer, Try) and setting_key(answer.setting) != setting_key(wide.default)


def test_laws_of_load_change_nothing_at_the_reference() -> None:
    draws = iter(
        torch.rand(4, 8, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    )
    one = torch.ones(8, 1, dtype=torch.float64)
    work, step, power = under_load(one, one, one, 0.3 * one, one[:1], lambda: next(draws))
    for same in (work, step, power):
        assert torch.allclose(same, one)


def test_more_load_means_more_waiting_more_power_and_less_energy_an_item() -> None:
    draws = iter(
        torch.rand(4, 64, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    )
    one, load = torch.ones(64, 3, dtype=torch.float64), torch.tensor([[0.5, 1.0, 1.5]]).double()
    work, step, power = under_load(one, one, one, 0.3 * one[:, :1], load, lambda: next(draws))
    assert (step.diff(dim=1) >= 0.0).all() and (power.diff(dim=1) >= -1e-12).all()
    assert ((work * power).diff(dim=1) <= 1e-9).all()


def test_laws_that_are_kept_for_a_load_predict_as_new_ones() -> None:
    grid = enumerate_grid(SPACE)
    windows = [(t.ran_at[BY], t) for t in at_baseline()]
    views = [over_loads(grid, 60.0, windows, kept)[0] for kept in (False, True)]
    plain, kept = (physical_hypotheses(over, (Kind.ENERGY, Kind.TIME)) for over in views)
    for one, other in zip(plain, kept, strict=True):
        assert torch.equal(one.centres, other.centres)
        assert torch.equal(one.features, other.features)


def test_a_load_a_little_above_all_windows_has_a_suggestion() -> None:
    low = trial(3, SPACE.default, shown(SPACE.default, 25.0))
    answer = Polythrottle().suggest(past(asked(), [*at_baseline(60.0), low], 30.0))
    assert isinstance(answer, Try) and answer.setting != SPACE.default


def test_near_a_measured_load_the_baseline_there_serves() -> None:
    answer = Polythrottle().suggest(past(asked(), at_baseline(30.0), 42.0))
    assert isinstance(answer, Try) and answer.setting != SPACE.default
    relative = Polythrottle().suggest(
        past(asked(limit="<= 1.6x baseline"), at_baseline(30.0), 42.0)
    )
    assert isinstance(relative, Try) and relative.setting == SPACE.default


def test_a_setting_whose_load_did_not_come_is_not_asked_for_again_at_once() -> None:
    """The load alternates from window to window: no trial runs at the load for which it was meant."""
    trials, tried = at_baseline(30.0), list[Setting]()
    for load in (60.0, 30.0) * 8:
        answer = Polythrottle().suggest(past(asked(), trials, trials[-1].ran_at[BY]))
        if not isinstance(answer, Try):
            break
        tried.append(answer.setting)
        trials.append(trial(len(trials) + 1, answer.setting, shown(answer.setting, load)))
    assert tried and max(map(tried.count, tried)) <= 4
    assert all(a != b for a, b in itertools.pairwise(tried) if a != SPACE.default)
    assert not isinstance(answer, Try), "it ends"


def test_baselines_that_never_meet_a_load_are_not_asked_for_without_end() -> None:
    trials = at_baseline(30.0)
    trials += [
        replace(trial(n, SPACE.default, shown(SPACE.default, 30.0)), number=n) for n in (3, 4)
    ]
    answer = Polythrottle().suggest(past(asked(), trials, 90.0))
    assert not isinstance(answer, Try) or answer.setting != SPACE.default


def test_a_load_gets_a_share_of_the_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    trials = [*at_baseline(30.0), trial(3, SPACE.default, shown(SPACE.default, 60.0))]
    assert isinstance(Polythrottle().suggest(past(asked(), trials, 60.0)), Try)
    monkeypatch.setattr("tuner.bo.load.OF_A_LOAD", 0)
    monkeypatch.setattr("tuner.bo.load.OF_A_LOAD_S", 0.0)
    assert isinstance(Polythrottle().suggest(past(asked(), trials, 60.0)), Done)
    assert isinstance(Polythrottle().suggest(past(asked(askable=True), trials, 60.0)), Try)
