"""The evidence of trials: baseline, limits, candidates, the bill."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import START, metric_sample, past, saved, setting, study, trial, window
from tests.unit.tuner.bo.served import BY, CLOCKS, SPACE, asked, shown, truth
from tuner.core import (
    ANYWHERE,
    UNDECLARED,
    BaselineCourse,
    Better,
    Bill,
    Constraint,
    Context,
    Estimate,
    InvalidInput,
    Limit,
    LoadTrend,
    MeasurementError,
    MetricSample,
    Objective,
    Outcome,
    OverDevices,
    OverWindows,
    Phase,
    Plan,
    Quantity,
    Revision,
    Row,
    SettingKey,
    Trial,
    TrialState,
    Try,
    Verdict,
    at_equal_load,
    billed_windows,
    comparable,
    draw_up,
    held_since,
    incumbent,
    is_at,
    load_trend,
    merged,
    peak_name,
    pool_windows,
    quantity_of,
    ranked,
    setting_key,
    unlike,
    weigh,
)

BASE = trial(1, setting(), window(10.0, 100.0), phase=Phase.BASELINE)


def test_limits_follow_the_baseline_windows() -> None:
    evidence = weigh(study(), [BASE, trial(2, setting(), window(10.0, 110.0))])
    assert evidence.limits is not None
    assert evidence.limits[0].value == pytest.approx(1.2 * evidence.baseline["latency_p99_ms"].mean)
    assert 100.0 < evidence.baseline["latency_p99_ms"].mean < 110.0


def test_without_a_baseline_nothing_is_judged() -> None:
    evidence = weigh(study(), [trial(1, setting(600), window(5.0, 50.0))])
    assert evidence.limits is None
    assert incumbent(study(), evidence) is None


def test_a_baseline_of_another_rate_band_does_not_set_the_limit() -> None:
    old = trial(1, setting(), window(10.0, 50.0, rate=10.0), phase=Phase.BASELINE)
    new = trial(2, setting(), window(10.0, 100.0, rate=50.0), phase=Phase.BASELINE)
    evidence = weigh(study(), [old, new])
    assert evidence.baseline["latency_p99_ms"].mean == pytest.approx(100.0)


def test_a_changed_constraint_judges_history_anew() -> None:
    trials = [BASE, trial(2, setting(600), window(7.0, 130.0))]
    strict = study()
    assert weigh(strict, trials).of(setting(600)).verdict is Verdict.INFEASIBLE  # type: ignore[union-attr]
    loose = replace(strict, constraints=(Constraint.parse("latency_p99_ms <= 1.5x baseline"),))
    assert weigh(loose, trials).of(setting(600)).verdict is Verdict.FEASIBLE  # type: ignore[union-attr]


def test_only_proven_feasible_settings_are_ranked_best_first() -> None:
    trials = [
        BASE,
        trial(2, setting(800), window(8.0, 105.0)),
        trial(3, setting(600), window(6.0, 110.0)),
        trial(4, setting(400), window(4.0, 160.0)),
        trial(5, setting(600, 2), window(5.0, 120.0)),
    ]
    order = [c.setting for c in ranked(study(), weigh(study(), trials))]
    assert order == [setting(600), setting(800), setting()]


@pytest.mark.parametrize("state", [TrialState.FAILED, TrialState.ABORTED, TrialState.CONTAMINATED])
def test_trials_without_evidence_are_ignored(state: TrialState) -> None:
    poor = trial(2, setting(600), window(1.0, 10.0), state=state)
    assert weigh(study(), [BASE, poor]).of(setting(600)) is None


def test_inconclusive_windows_are_kept_but_not_deployable() -> None:
    vague = trial(2, setting(600), window(6.0, 90.0), state=TrialState.INCONCLUSIVE)
    evidence = weigh(study(), [BASE, vague])
    assert evidence.of(setting(600)) is not None
    assert [c.setting for c in ranked(study(), evidence)] == [setting()]


CUT = trial(
    2, setting(400), window(4.0, 135.0), broke=Limit("latency_p99_ms", "<=", 120.0), reason="cut"
)


def test_a_window_cut_short_proves_only_the_limit_that_it_broke() -> None:
    evidence = weigh(study(), [BASE, CUT])
    assert evidence.verdict(CUT) is Verdict.INFEASIBLE
    candidate = evidence.of(setting(400))
    assert candidate is not None
    assert (candidate.verdict, candidate.deployable) == (Verdict.INFEASIBLE, False)
    assert candidate.estimates["latency_p99_ms"].high == math.inf


def test_a_window_cut_short_is_judged_anew_when_the_limit_is_loosened() -> None:
    loose = replace(study(), constraints=(Constraint.parse("latency_p99_ms <= 1000"),))
    evidence = weigh(loose, [BASE, CUT])
    assert evidence.verdict(CUT) is Verdict.UNSURE
    assert [c.setting for c in ranked(loose, evidence)] == [setting()]


def test_one_lucky_window_does_not_outweigh_windows_cut_short() -> None:
    cuts = [replace(CUT, number=n) for n in (2, 3, 4)]
    lucky = trial(5, setting(400), window(4.0, 90.0))
    candidate = weigh(study(), [BASE, *cuts, lucky]).of(setting(400))
    assert candidate is not None
    assert candidate.verdict is not Verdict.FEASIBLE


def test_results_by_night_do_not_count_by_day() -> None:
    trials = [
        trial(1, setting(), window(10.0, 40.0, rate=10.0), phase=Phase.BASELINE),
        trial(2, setting(600), window(6.0, 45.0, rate=10.0)),
        trial(3, setting(), window(10.0, 100.0, rate=50.0), phase=Phase.BASELINE),
    ]
    evidence = weigh(study(), trials)
    assert evidence.of(setting(600)) is None


def test_trials_before_a_fresh_start_do_not_count() -> None:
    fresh = study(since_trial=2)
    assert weigh(fresh, [BASE]).baseline == {}


def test_a_trial_of_one_of_four_devices_is_billed_as_one() -> None:
    alone = replace(trial(2, setting(600), window(6.0, 110.0)), device="b")
    trials = [BASE, alone]
    evidence = weigh(study(), trials)
    bill = draw_up(trials, evidence.baseline, {}, devices=4)
    assert bill.explored_j == pytest.approx(5000.0 + 3000.0 / 4)
    assert bill.overhead_j == pytest.approx(-2000.0 / 4)


def test_the_bill_adds_up() -> None:
    trials = [BASE, trial(2, setting(600), window(6.0, 110.0))]
    evidence = weigh(study(), trials)
    best = evidence.of(setting(600))
    assert best is not None
    bill = draw_up(trials, evidence.baseline, best.estimates)
    # 50 items per second for 10 s, at 10 J per item, then at 6 J.
    assert bill.explored_j == pytest.approx(5000.0 + 3000.0)
    assert bill.overhead_j == pytest.approx(-2000.0)
    assert bill.saving_w == pytest.approx(4.0 * 50.0)
    assert bill.break_even_s == pytest.approx(8000.0 / 200.0)
    assert bill.whole is None


def test_the_bill_of_a_shared_device_has_only_the_ascribed_part() -> None:
    trials = [BASE, trial(2, setting(600), window(6.0, 110.0))]
    evidence = weigh(study(), trials)
    best = evidence.of(setting(600))
    assert best is not None
    whole = draw_up(trials, evidence.baseline, best.estimates, held_at(1.0, 2.0))
    part = whole.ascribed(0.25)
    for name in ("explored_j", "overhead_j", "saving_w"):
        assert getattr(part, name) == pytest.approx(0.25 * getattr(whole, name))
    for name in ("saved_j", "stderr_j", "baseline_j"):
        assert getattr(saved(part), name) == pytest.approx(0.25 * getattr(saved(whole), name))
    assert (part.break_even_s, part.share, whole.share) == (whole.break_even_s, 0.25, 1.0)


def held_at(*minutes: float) -> list[MetricSample]:
    """Return windows of 10 s with 6 J per item and 50 items per second."""
    return [metric_sample(minute, 6.0) for minute in minutes]


def history(*phases: tuple[float, Phase]) -> list[Revision]:
    """Return the revisions of a study that entered these phases at these minutes."""
    plan = Plan.single(setting(600))
    return [
        Revision(
            study=study(phase, plan=plan, paused_from=HELD if phase is Phase.PAUSED else None),
            who="ann",
            why="",
            at=START + timedelta(minutes=minute),
        )
        for minute, phase in phases
    ]


HELD = Phase.HOLDING


def billed_for(held: list[MetricSample], revisions: list[Revision]) -> Bill:
    return draw_up(
        [BASE], {"energy_j": Estimate(10.0)}, {"energy_j": Estimate(6.0)}, held, revisions
    )


def test_a_held_window_represents_the_time_since_the_previous_one() -> None:
    bill = billed_for(held_at(1, 2, 3, 600), history((0, Phase.TUNING), (1, HELD), (2.5, HELD)))
    # 4 J saved per item at 50 items per second: for 10 s, two whole minutes, and at most five.
    assert saved(bill).saved_j == pytest.approx(4.0 * 50.0 * (10 + 60 + 60 + 300))
    assert saved(bill).since == START + timedelta(minutes=1)


def test_a_held_window_represents_the_time_that_its_agent_reports() -> None:
    told = (10.0, 40.0, 500.0, None)
    each = zip(held_at(1, 2, 3, 20), told, strict=True)
    bill = billed_for([replace(w, speaks_s=s) for w, s in each], history((0, HELD)))
    assert saved(bill).seconds == pytest.approx(10 + 40 + 60 + 300)


def test_a_window_that_is_not_billed_keeps_its_time() -> None:
    wild, course = (
        replace(held_at(1)[0], mean=6e4),
        BaselineCourse(lambda _: weigh(study(), [BASE]).baseline),
    )
    each = [wild, *held_at(2)]
    told = billed_windows([BASE], each, history((0, HELD)), UNDECLARED, course)
    assert [(s, bool(parts)) for _, s, parts in told] == [(10.0, False), (60.0, True)]


@pytest.mark.parametrize("away", [Phase.PAUSED, Phase.BASELINE])
def test_time_off_the_hold_saves_nothing(away: Phase) -> None:
    bill = billed_for(held_at(1, 2, 4, 5), history((0, HELD), (2.5, away), (3, HELD)))
    assert saved(bill).saved_j == pytest.approx(4.0 * 50.0 * (10 + 60 + 10 + 60))


def test_windows_outside_every_hold_count_with_their_own_length() -> None:
    bill = billed_for(held_at(-2, -1, 1, 2), history((0, Phase.BASELINE)))
    assert saved(bill).saved_j == pytest.approx(4.0 * 50.0 * 40)


def test_a_held_window_is_compared_with_the_baseline_at_its_own_load() -> None:
    baselines: dict[float, dict[str, Estimate]] = {
        4.0: {"energy_j": Estimate(10.0)},
        1.0: {"energy_j": Estimate(7.0)},
    }
    held = [
        replace(window, context={"requests_in_system": at})
        for window, at in zip(held_at(-4, -3, -2), (4.0, 1.0, 16.0), strict=True)
    ]
    bill = draw_up(
        [BASE],
        baselines[4.0],
        {},
        held,
        history((0, Phase.BASELINE)),
        course=BaselineCourse(lambda load: baselines.get(load.get("requests_in_system", 4.0), {})),
    )
    # Each took 6 J per item; the baseline's energy at sixteen requests is unknown.
    assert saved(bill).saved_j == pytest.approx((4.0 + 1.0) * 50.0 * 10)


def test_no_joules_are_invented_where_a_window_has_none() -> None:
    blind = trial(2, setting(600), window(6.0, 110.0))
    assert blind.measurement is not None
    seen = {k: v for k, v in blind.measurement.estimates.items() if k != "power_w"}
    blind = replace(blind, measurement=replace(blind.measurement, estimates=seen))
    assert draw_up([BASE, blind], {"energy_j": Estimate(10.0)}, {}).explored_j is None


def test_a_setting_that_does_not_save_never_breaks_even() -> None:
    bill = draw_up(
        [BASE],
        {"energy_j": Estimate(10.0), "throughput_per_s": Estimate(50.0)},
        {"energy_j": Estimate(11.0)},
    )
    assert bill.saving_w == pytest.approx(-50.0)
    assert bill.break_even_s is None


def test_like_devices_sum_their_energy_and_the_slowest_rules() -> None:
    both = merged(
        [
            Outcome(state=TrialState.COMPLETED, measurement=window(10.0, 100.0)),
            Outcome(state=TrialState.COMPLETED, measurement=window(12.0, 140.0)),
        ]
    )
    assert both.measurement is not None
    assert both.measurement.estimates["energy_j"].mean == pytest.approx(22.0)
    assert both.measurement.estimates["latency_p99_ms"].mean == pytest.approx(140.0)


def test_a_joint_metric_keeps_its_declared_quantity() -> None:
    declared = {
        "heat": Quantity("J", over_devices=OverDevices.SUM),
        "frames": Quantity("1/s", Better.MORE, over_devices=OverDevices.LEAST),
    }
    shown = [{"heat": Estimate(x), "frames": Estimate(x), "lag": Estimate(x)} for x in (2.0, 3.0)]
    windows = [window(extra=extra) for extra in shown]
    both = merged([Outcome(state=TrialState.COMPLETED, measurement=w) for w in windows], declared)
    assert both.measurement is not None
    seen = both.measurement.estimates
    assert [seen[m].mean for m in ("heat", "frames", "lag")] == [5.0, 2.0, 3.0]


def test_a_declared_tail_is_pooled_like_one() -> None:
    windows = [{"slowest": Estimate(x, 0.1, 500, x - 1.0, x + 1.0)} for x in (9.0, 11.0)]
    tail = {"slowest": Quantity("ms", over_windows=OverWindows.TAIL)}
    assert pool_windows(windows, tail)["slowest"].high == 12.0
    assert pool_windows(windows)["slowest"].high < 12.0


def test_the_bill_uses_metrics_of_energy_power_and_capacity() -> None:
    names = {"energy_j": "a", "power_w": "b", "throughput_per_s": "c", "latency_p99_ms": "d"}
    trials = [BASE, trial(2, setting(600), window(7.0, 100.0))]
    evidence = weigh(study(), trials)
    best = evidence.candidates[-1].estimates

    def renamed(shown: Mapping[str, Estimate]) -> dict[str, Estimate]:
        return {names[m]: e for m, e in shown.items()}

    blind = [
        replace(t, measurement=replace(t.measurement, estimates=renamed(t.measurement.estimates)))
        for t in trials
        if t.measurement is not None
    ]
    declared = {x: quantity_of(m) for m, x in names.items()}
    bill = draw_up(trials, evidence.baseline, best)
    assert bill.saving_w is not None
    shown = renamed(evidence.baseline), renamed(best)
    assert draw_up(blind, *shown, declared=declared) == bill


def test_a_target_is_as_certain_as_its_least_certain_device() -> None:
    tight = {"latency_p99_ms": Estimate(48.0, 1.0, 300, 47.0, 49.0)}
    loose = {"latency_p99_ms": Estimate(47.0, 5.0, 300, 30.0, 90.0)}
    both = merged(
        [
            Outcome(state=TrialState.COMPLETED, measurement=window(extra=tight)),
            Outcome(state=TrialState.COMPLETED, measurement=window(extra=loose)),
        ]
    )
    assert both.measurement is not None
    p99 = both.measurement.estimates["latency_p99_ms"]
    assert (p99.mean, p99.high) == (48.0, 90.0)


def test_the_gravest_device_decides_how_a_trial_ended() -> None:
    both = merged(
        [
            Outcome(state=TrialState.COMPLETED, measurement=window()),
            Outcome(state=TrialState.FAILED, reason="clock refused"),
        ]
    )
    assert (both.state, both.reason) == (TrialState.FAILED, "clock refused")


@pytest.mark.parametrize(("limit", "broken"), [("95", True), ("99.5", False), ("120", False)])
def test_a_baseline_breaks_only_what_it_is_proven_to_break(limit: str, broken: bool) -> None:
    at = study(constraints=(f"latency_p99_ms <= {limit}",))
    evidence = weigh(at, [BASE, trial(2, setting(600), window(7.0, 80.0))])
    assert (evidence.broken is not None) == broken


class Weighted(Objective):
    """An objective over two metrics: energy and latency combined."""

    __slots__ = ()

    def score(self, shown: Mapping[str, Any], context: Context = ANYWHERE) -> Any:  # noqa: ANN401
        energy, latency = shown.get("energy_j"), shown.get("latency_p99_ms")
        return energy and latency and Estimate(energy.mean + latency.mean)


def test_settings_are_ranked_by_the_objective() -> None:
    trials = [
        BASE,
        trial(2, setting(600), window(6.0, 110.0)),
        trial(3, setting(800), window(8.0, 90.0)),
    ]
    at = study(objective=Weighted("energy_j"))
    order = [c.setting["gpu.clock_mhz"] for c in ranked(at, weigh(at, trials))]
    assert order == [800, 1000, 600]


HELD_WINDOWS = st.builds(
    lambda minute, energy_j, seconds, items, heard: replace(
        metric_sample(minute, energy_j),
        seconds=seconds,
        completed=items,
        at=START + timedelta(minutes=heard),
    ),
    st.floats(-60.0, 60.0),
    st.floats(1e-9, 1e9),
    st.sampled_from([1.0, 10.0, 60.0, 86400.0]),
    st.sampled_from([0, 1, 500, 3_000, 10**15]),
    st.floats(1.0, 61.0),
)


@given(st.lists(HELD_WINDOWS, max_size=40))
@settings(max_examples=60)
def test_no_agent_can_claim_more_than_the_baseline_would_have_used(
    held: list[MetricSample],
) -> None:
    """The baseline of 10 J at 50 items per second draws 500 W; a window may show three times the rate."""
    bill = billed_for(held, history((0, HELD)))
    assert (
        -3.0 * 3.0 * 500.0 * (3660 + 300)
        <= ((bill.whole and bill.whole.saved_j) or 0.0)
        <= 3.0 * 500.0 * (3660 + 300)
    )


def test_windows_that_overlap_are_billed_once() -> None:
    """200 windows of a minute each, begun within a second."""
    within = [
        replace(w, seconds=60.0, completed=3000, at=START + timedelta(hours=1))
        for w in held_at(*(1.0 + n / 12_000 for n in range(200)))
    ]
    bill = billed_for(within, history((0, HELD)))
    assert saved(bill).saved_j == pytest.approx(4.0 * 50.0 * 61, rel=0.01)


def test_a_window_of_a_quadrillion_items_is_not_billed() -> None:
    absurd = replace(metric_sample(1.0, 6.0), completed=10**15)
    assert saved(billed_for([absurd], history((0, HELD)))).saved_j is None


def test_windows_reported_together_do_not_stretch_the_passed_time() -> None:
    reported_at = START + timedelta(minutes=2)
    held = [replace(w, at=reported_at) for w in held_at(*range(1, 200))]
    bill = billed_for(held, history((0, HELD)))
    assert saved(bill).saved_j == pytest.approx(4.0 * 50.0 * (120 + 10))


@pytest.mark.parametrize("shown", [9.0, 10.0, 11.0])
def test_at_the_baseline_nothing_is_saved(shown: float) -> None:
    held = [replace(w, mean=shown, setting=setting_key(setting())) for w in held_at(1, 2, 3)]
    bill = draw_up(
        [BASE],
        {"energy_j": Estimate(10.0)},
        {},
        held,
        history((0, HELD)),
        rests=setting_key(setting()),
    )
    assert (saved(bill).saved_j, saved(bill).stderr_j) == (0.0, 0.0)


def test_a_stored_window_that_lasted_for_ever_leaves_the_bill_as_it_was() -> None:
    whole = billed_for(held_at(1, 2), history((0, HELD)))
    for_ever = trial(2, setting(600), replace(window(6.0, 110.0), overhead_s=1e308))
    twice = [BASE, for_ever, replace(for_ever, number=3)]
    bill = draw_up(twice, {"energy_j": Estimate(10.0)}, {}, held_at(1, 2), history((0, HELD)))
    assert (bill.explored_j, bill.whole) == (whole.explored_j, whole.whole)


def test_a_periods_saving_comes_from_its_windows_and_is_unknown_without_any() -> None:
    after = {
        name: START + timedelta(minutes=m) for name, m in (("all", 0), ("last", 3), ("new", 9))
    }
    bill = draw_up(
        [BASE],
        {"energy_j": Estimate(10.0)},
        {"energy_j": Estimate(6.0)},
        held_at(1, 2, 3, 4),
        history((0, HELD)),
        periods=after,
    )
    whole, last, new = bill.periods
    assert (whole.saved_j, whole.windows) == (saved(bill).saved_j, 4)
    assert last.saved_j == pytest.approx(4.0 * 50.0 * (60 + 60))
    assert last.windows == 2 and last.seconds == pytest.approx(120.0)
    assert (new.saved_j, new.stderr_j, new.windows) == (None, None, 0)
    assert [p.saved_j for p in bill.ascribed(0.5).periods[:2]] == [
        pytest.approx(0.5 * (whole.saved_j or 0.0)), pytest.approx(0.5 * (last.saved_j or 0.0))
    ]  # fmt: skip


def test_a_held_baseline_saves_nothing_in_any_period_however_it_is_measured() -> None:
    bill = draw_up(
        [BASE], {"energy_j": Estimate(10.0)}, {}, held_at(1, 2), history((0, HELD)),
        rests=setting_key(setting(600)), periods={"all": START},
    )  # fmt: skip
    assert [(p.saved_j, p.windows) for p in bill.periods] == [(0.0, 2)]


def test_since_when_a_study_holds_is_the_start_of_its_present_hold() -> None:
    assert held_since([]) is None
    again = history((0, HELD), (1, Phase.PAUSED), (2, HELD), (3, HELD))
    assert held_since(again) == START + timedelta(minutes=2)
    assert held_since(history((0, HELD), (1, Phase.TUNING))) is None


CONTEXTS = st.dictionaries(st.sampled_from("abc"), st.floats(-1e9, 1e9), max_size=3)


@pytest.mark.parametrize(
    ("one", "other", "differs"),
    [
        ({"rate": 50.0}, {"rate": 60.0}, None),
        ({"rate": 50.0}, {"rate": 70.0}, "rate"),
        ({"rate": 50.0}, {"inside": 4}, None),
        ({"rate": 50.0, "inside": 4}, {"rate": 50.0, "inside": 8}, "inside"),
        ({"rate": 0.0}, {"rate": 0.0}, None),
        ({"rate": 0.0}, {"rate": 1.0}, "rate"),
        ({"price": -0.1}, {"price": 0.1}, "price"),
        ({}, {"rate": 1.0}, None),
        ({"rate": 5.0, "rate_peak": 9.0}, {"rate": 5.0, "rate_peak": 1.0}, None),
    ],
)
def test_common_numbers_of_both_must_be_equal(
    one: Context, other: Context, differs: str | None
) -> None:
    assert unlike(one, other) == differs


@given(CONTEXTS, CONTEXTS)
def test_comparing_goes_both_ways(one: Context, other: Context) -> None:
    assert comparable(one, one)
    assert comparable(one, other) is comparable(other, one)


@given(CONTEXTS, CONTEXTS)
def test_additional_loads_match_and_missing_ones_do_not(more: Context, at: Context) -> None:
    assert is_at({**more, **at}, at)
    for name in at:
        assert not is_at({n: v for n, v in {**more, **at}.items() if n != name}, at)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_load_is_finite(value: float) -> None:
    with pytest.raises(MeasurementError, match="requests_in_system"):
        window(context={"requests_in_system": value})
    with pytest.raises(InvalidInput, match="requests_in_system"):
        Try(setting(), "", context={"requests_in_system": value})


def at_load(
    number: int, clock: int, load: int, latency_ms: float = 100.0, *, reported: bool = True
) -> Trial:
    """Return a window at a requested load, which the agent reports or not."""
    context = {"requests_in_system": load}
    seen = window(clock / 100, latency_ms, context=context if reported else {})
    return trial(number, setting(clock), seen, context=context)


BASELINES = [trial(n, setting(), window(10.0, 100.0), phase=Phase.BASELINE) for n in (1, 2)]
EIGHT = {"requests_in_system": 8}


def test_evidence_of_another_load_is_there_by_its_load() -> None:
    seen = past(study(), [*BASELINES, at_load(3, 1000, 8, 300.0), at_load(4, 600, 8, 350.0)])
    assert [c.setting for c in seen.evidence.candidates] == [setting()]
    there = seen.at(EIGHT)
    assert there.baseline["latency_p99_ms"].mean == pytest.approx(300.0)
    candidate = there.of(setting(600))
    assert candidate is not None and candidate.verdict is Verdict.FEASIBLE
    assert seen.at(EIGHT) is there, "it is worked out once"
    assert seen.at({}) is seen.evidence


def test_an_old_rate_is_there_by_its_rate() -> None:
    night = trial(1, setting(), window(10.0, 40.0, rate=10.0), phase=Phase.BASELINE)
    tried = trial(2, setting(600), window(6.0, 45.0, rate=11.0))
    day = trial(3, setting(), window(10.0, 100.0, rate=50.0), phase=Phase.BASELINE)
    seen = past(study(), [night, tried, day])
    assert seen.evidence.of(setting(600)) is None
    assert seen.at({"arrival_rate_per_s": 10.0}).of(setting(600)) is not None


@pytest.mark.parametrize("reported", [True, False])
def test_windows_at_a_requested_load_never_set_the_limits(reported: bool) -> None:
    requested = [
        at_load(3, 1000, 8, 300.0, reported=reported),
        at_load(4, 600, 8, 350.0, reported=reported),
    ]
    assert weigh(study(), [*BASELINES, *requested]) == weigh(study(), BASELINES)


def test_windows_that_requested_the_present_load_count_with_it() -> None:
    usual = window(10.0, 100.0, context={"requests_in_system": 4})
    seen = weigh(study(), [trial(1, setting(), usual), at_load(2, 600, 4), at_load(3, 800, 8)])
    assert [c.setting for c in seen.candidates] == [setting(), setting(600)]


def test_windows_of_an_unknown_load_have_none() -> None:
    dark = trial(1, setting(), window(context={}), phase=Phase.BASELINE)
    assert weigh(study(), [dark], EIGHT).baseline == {}


def test_a_row_rests_on_its_load_where_the_baseline_is_known_there() -> None:
    plan = Plan(
        (Row(6.0, setting(800), at=4.0), Row(math.inf, setting(600), at=8.0)), "requests_in_system"
    )
    seen = past(study(), [*BASELINES, at_load(3, 1000, 8, 300.0), at_load(4, 800, 4)])
    assert seen.behind(plan, plan.rows[0]) is seen.evidence
    assert seen.behind(plan, plan.rows[1]) is seen.at(EIGHT)
    assert plan.context(plan.rows[1]) == EIGHT


@pytest.mark.parametrize("at", [2.0, 6.0, math.inf, math.nan])
def test_a_row_is_decided_at_its_own_load(at: float) -> None:
    rows = (Row(3.0, setting(), at=1.0), Row(6.0, setting(600), at=at), Row(math.inf, setting(800)))
    with pytest.raises(InvalidInput, match="a row from 3 to 6"):
        Plan(rows, "requests_in_system")


def test_a_window_is_compared_with_the_baseline_of_a_like_load_and_with_no_other() -> None:
    def at(number: int, energy_j: float, callers: float, requested: bool) -> Trial:
        load = {"requests_in_system": callers}
        shown = window(energy_j, context=load)
        return trial(number, measurement=shown, context=load if requested else {})

    trials = [at(1, 10.0, 4.0, False), at(2, 10.0, 4.0, False), at(3, 7.0, 1.0, True)]
    before = past(study(), trials)
    for callers, energy_j in [(4.0, 10.0), (4.4, 10.0), (1.0, 7.0)]:
        shown = before.baseline_at({"requests_in_system": callers})
        assert shown["energy_j"].mean == pytest.approx(energy_j)
    assert before.baseline_at({"requests_in_system": 16.0}) == {}
    assert before.baseline_at({})["energy_j"].mean == pytest.approx(10.0)


def test_a_load_of_another_signal_is_not_taken_for_the_studys() -> None:
    closed, rate = {"requests_in_system": 4.0}, {"arrival_rate_per_s": 10.0}
    trials = [
        trial(1, measurement=window(10.0, context=closed)),
        trial(2, measurement=window(30.0, context=rate), context=rate),
    ]
    before = past(study(), trials)
    assert before.baseline_at(rate)["energy_j"].mean == pytest.approx(30.0)
    assert before.baseline_at({"arrival_rate_per_s": 99.0}) == {}


SLOW, FAST = setting_key({"clock": 1}), setting_key({"clock": 2})


def seen_at(
    key: SettingKey, load: float, mean: float, share: float
) -> tuple[SettingKey, float, Estimate]:
    return key, load, Estimate.of_mean(mean, share * abs(mean), 10)


def test_variation_explained_by_the_load_is_not_error() -> None:
    loads = (4.0, 4.5, 5.0, 5.5, 6.0)
    seen = [seen_at(SLOW, x, 90.0 / x, 0.1) for x in loads]
    seen += [seen_at(FAST, x, 120.0 / x, 0.1) for x in loads]
    trend = load_trend(seen)
    assert trend.exponent == pytest.approx(-1.0) and trend.stderr == pytest.approx(0.0, abs=1e-6)
    assert trend.noise == pytest.approx(math.sqrt(3.0 / 10.0)), "of seven windows too many"


def test_unexplained_scatter_adds_to_the_reported_error() -> None:
    means = (100.0, 140.0, 90.0, 150.0)
    seen = [seen_at(SLOW, x, y, 0.01) for x, y in zip((4.0, 4.5, 5.0, 5.5), means, strict=True)]
    assert load_trend(seen).noise > 5.0


def test_little_data_give_no_trend() -> None:
    assert load_trend([]) == load_trend([seen_at(SLOW, 4.0, 9.0, 0.1)]) == LoadTrend(0.0, 1.0)
    assert load_trend([seen_at(SLOW, 4.0, -9.0, 0.1)]) == LoadTrend(0.0, 0.0)


def test_windows_at_several_loads_compare_as_at_their_mean() -> None:
    loads, clocks = (20.0, 24.0, 28.0), (1500, 1100)
    trials = [
        trial(n, {"gpu.clock_mhz": clock}, shown({"gpu.clock_mhz": clock}, load))
        for n, (clock, load) in enumerate(itertools.product(clocks, loads), 1)
    ]
    moved = at_equal_load(trials, BY, {})
    at = (20.0 * 24.0 * 28.0) ** (1.0 / 3.0)
    for one, before in zip(moved, trials, strict=True):
        assert one.ran_at[BY] == pytest.approx(at), "all windows are of one load"
        assert one.ran_at[peak_name(BY)] == before.ran_at[peak_name(BY)]
        assert one.shown["latency_p99_ms"] == before.shown["latency_p99_ms"], "a tail stays"
    energy = [
        [t.shown["energy_j"].mean for t in moved if t.tries({"gpu.clock_mhz": c})] for c in clocks
    ]
    assert all(max(each) < 1.03 * min(each) for each in energy), "within 3 %, not 30 %"


def test_a_window_without_load_is_no_evidence_beside_others() -> None:
    """It is spent all the same: a night without requests must not try settings for ever."""
    met = trial(1, SPACE.default, shown(SPACE.default, 20.0))
    night = trial(2, SPACE.default, replace(shown(SPACE.default, 20.0), context={BY: 0.0}))
    failed = trial(3, SPACE.default, state=TrialState.FAILED)
    states = [t.state for t in at_equal_load([met, night, failed], BY, {})]
    assert states == [TrialState.COMPLETED, TrialState.CONTAMINATED, TrialState.FAILED]


@given(st.lists(st.floats(1.0, 50.0), min_size=1, max_size=8))
def test_moving_windows_to_an_equal_load_twice_changes_nothing(loads: list[float]) -> None:
    setting = {"gpu.clock_mhz": CLOCKS[-1]}
    once = at_equal_load(
        [trial(n, setting, shown(setting, x)) for n, x in enumerate(loads, 1)], BY, {}
    )
    twice = at_equal_load(once, BY, {})
    for a, b in zip(once, twice, strict=True):
        for name, e in a.shown.items():
            again = b.shown[name]
            for figure in ("mean", "stderr", "low", "high"):
                assert getattr(again, figure) == pytest.approx(getattr(e, figure))


def test_windows_without_the_load_are_left() -> None:
    (left,) = at_equal_load([trial(1, {"gpu.clock_mhz": 1500})], BY, {})
    assert left.shown["energy_j"].mean == 10.0


def test_a_bill_compares_a_window_with_the_baseline_at_its_own_load() -> None:
    loads = (10.0, 20.0, 30.0, 40.0)
    first = [
        trial(n, SPACE.default, shown(SPACE.default, load), phase=Phase.BASELINE)
        for n, load in enumerate(loads, 1)
    ]
    course = BaselineCourse.of(asked(), first)
    for load in loads:
        there = course.first({BY: load})["energy_j"].mean
        assert there == pytest.approx(truth(SPACE.default, load)[0])
