"""The settings that may be tried or deployed, and the cost of a trial."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.builders import knob, setting, trial, window
from tests.unit.tuner.bo.searches import (
    CLOCKS,
    LADDER,
    NOTHING,
    UNPROMISING,
    at_baseline,
    believing,
    ladder,
    measured,
    seen,
)
from tuner.bo.scale import Scale
from tuner.bo.search import MOST_CONTAMINATED, MOST_WINDOWS, Search
from tuner.core import (
    Cost,
    Limit,
    Measurement,
    Objective,
    Phase,
    Safety,
    Setting,
    Space,
    Trial,
    TrialState,
)

STUDY = ladder()
BASELINE = at_baseline(STUDY)
ALL = set(CLOCKS)


def allowed(*trials: Trial) -> set[object]:
    """Return the clocks that may be tried after some trials."""
    return clocks(seen(STUDY, [*BASELINE, *trials]))


def clocks(search: Search) -> set[object]:
    marked = zip(search.grid.settings, search.allowed.tolist(), strict=True)
    return {s["gpu.clock_mhz"] for s, free in marked if free}


def ended(state: TrialState, *numbers: int) -> list[Trial]:
    return [trial(n, setting(700), state=state) for n in numbers]


def test_at_first_everything_may_be_tried() -> None:
    assert allowed() == ALL


def test_a_running_setting_may_not_be_tried() -> None:
    assert allowed(*ended(TrialState.RUNNING, 3)) == ALL - {700}


def test_a_failed_setting_is_tried_at_most_once_more() -> None:
    assert allowed(*ended(TrialState.FAILED, 3)) == ALL
    assert allowed(*ended(TrialState.FAILED, 3, 4)) == ALL - {700}


def test_externally_ended_trials_may_be_repeated_without_limit() -> None:
    assert allowed(*ended(TrialState.ABORTED, 3, 4, 5, 6, 7, 8, 9, 10)) == ALL


def test_a_setting_that_broke_a_limit_may_not_be_tried() -> None:
    assert allowed(measured(3, 500, 4.0, 200.0)) == ALL - {500}


def test_mostly_contaminated_settings_are_not_repeated() -> None:
    lost = ended(TrialState.CONTAMINATED, *range(3, 3 + MOST_CONTAMINATED))
    assert allowed(*lost[:-1]) == ALL
    assert allowed(*lost) == ALL - {700}
    assert allowed(*lost, measured(9, 700)) == ALL, "a clean window speaks for it"


def test_an_often_measured_setting_may_not_be_tried() -> None:
    often = [measured(3 + i, 700) for i in range(MOST_WINDOWS)]
    assert allowed(*often[:-1]) == ALL
    assert allowed(*often) == ALL - {700}


def test_a_stage_of_a_search_stays_within_its_own() -> None:
    def slow(at: Setting) -> bool:
        return at["gpu.clock_mhz"] in (500, 600)

    assert clocks(seen(STUDY, [*BASELINE, measured(3, 800)], slow)) == {500, 600}


def test_a_failure_makes_success_less_likely() -> None:
    before = seen(STUDY, BASELINE).chance
    after = seen(STUDY, [*BASELINE, *ended(TrialState.FAILED, 3)]).chance
    row = CLOCKS.index(700)
    assert 0.0 < float(after[row]) < float(before[row])
    others = [r for r in range(len(CLOCKS)) if r != row]
    assert after[others].tolist() == before[others].tolist()


def test_only_tuning_trials_that_came_to_their_own_end_are_spent() -> None:
    trials = [measured(3, 800), *ended(TrialState.FAILED, 4), *ended(TrialState.ABORTED, 5)]
    search = seen(STUDY, [*BASELINE, *trials])
    assert search.past.spent == 2
    assert search.past.left == STUDY.terms.trials - 2


def deployable(
    *trials: Trial,
    believed: dict[int, tuple[float, float, float, float]],
    safety: Safety,
    limit: str = "latency_p99_ms <= 1.2x baseline",
) -> Sequence[object]:
    at = ladder(safety=safety, constraints=(limit,))
    search = believing(at, [*BASELINE, *trials], {1000: NOTHING, **believed})
    return [search.grid.settings[row]["gpu.clock_mhz"] for row in search.deployable]


SURE = -0.1, 0.01, 0.0, 0.01
BETTER = -0.2, 0.01, 0.0, 0.01
RISKY = -0.3, 0.01, 0.18, 0.5
WORSE = 0.1, 0.01, 0.0, 0.01


def test_deployable_settings_are_measured_trusted_and_better_best_first() -> None:
    trials = [measured(3 + i, mhz) for i, mhz in enumerate((500, 600, 700, 800))]
    believed = {500: RISKY, 600: SURE, 700: BETTER, 800: WORSE, 900: BETTER}
    deployed = deployable(*trials, believed=believed, safety=Safety.BALANCED)
    assert deployed == [700, 600, 1000]


def test_with_nothing_else_the_baseline_is_deployed() -> None:
    assert deployable(believed={500: BETTER}, safety=Safety.BALANCED) == [1000]


TIGHT = "latency_p99_ms <= 95"


def test_if_the_baseline_breaks_a_limit_a_costlier_setting_may_be_deployed() -> None:
    trials = [measured(3 + i, mhz, 12.0, 80.0) for i, mhz in enumerate((600, 700))]
    dear = {600: (0.3, 0.01, -0.2, 0.01), 700: WORSE}
    deployed = deployable(*trials, believed=dear, safety=Safety.BALANCED, limit=TIGHT)
    assert deployed == [700, 600, 1000]


def test_a_setting_without_a_limited_metric_is_not_deployed() -> None:
    seeing = window(4.0)
    half = replace(seeing, estimates={"energy_j": seeing.estimates["energy_j"]})
    blind = trial(3, setting(500), half)
    assert deployable(blind, believed={500: BETTER}, safety=Safety.OFF) == [1000]


@pytest.mark.parametrize(("limit", "beaten"), [(TIGHT, 600), ("latency_p99_ms <= 105", 1000)])
def test_a_setting_need_not_beat_a_baseline_that_breaks_a_limit(limit: str, beaten: int) -> None:
    at = ladder(constraints=(limit,))
    unsure = {1000: (0.0, 0.01, 0.5, 0.1), 600: (0.3, 0.01, 0.18, 0.1)}
    search = believing(at, [*BASELINE, measured(3, 600, 12.0, 95.0)], unsure)
    assert search.grid.settings[search.incumbent]["gpu.clock_mhz"] == beaten


def test_a_setting_that_broke_a_limit_is_not_deployed_despite_predictions() -> None:
    broken = measured(3, 500, 4.0, 200.0)
    assert deployable(broken, believed={500: BETTER}, safety=Safety.OFF) == [1000]


def test_a_setting_with_only_censored_windows_is_not_deployed() -> None:
    limit = Limit("latency_p99_ms", "<=", 120.0)
    cut = trial(3, setting(500), window(4.0, 121.0, relative=0.05), broke=limit)
    assert deployable(cut, believed={500: BETTER}, safety=Safety.OFF) == [1000]


def test_a_bold_study_deploys_every_setting_that_a_shy_one_deploys() -> None:
    trials = [measured(3 + i, mhz) for i, mhz in enumerate(CLOCKS[:-1])]
    believed = {
        mhz: (-0.2, 0.01, 0.18 - slack, 0.02)
        for mhz, slack in zip(CLOCKS, (-0.02, 0.0, 0.016, 0.02, 0.05), strict=False)
    }
    shy, balanced, bold = (
        set(deployable(*trials, believed=believed, safety=s))
        for s in (Safety.STRICT, Safety.BALANCED, Safety.OFF)
    )
    assert shy <= balanced <= bold
    assert len(bold) > 1


def test_a_knob_that_takes_long_to_change_makes_trials_dearer() -> None:
    slow = knob("batch_size", (1, 2), 1, cost=Cost(90.0))
    search = seen(ladder(space=Space((LADDER.knob("gpu.clock_mhz"), slow))), BASELINE)
    effort = {
        (s["gpu.clock_mhz"], s["batch_size"]): float(e)
        for s, e in zip(search.grid.settings, search.effort, strict=True)
    }
    assert effort[1000, 1] == pytest.approx(1.0)
    assert effort[500, 1] == pytest.approx(effort[900, 1])
    assert effort[500, 2] > 1.3 * effort[500, 1]


def test_the_outlook_of_a_setting_is_given_in_words_and_figures() -> None:
    search = believing(
        STUDY, BASELINE, {1000: NOTHING, 500: (-0.105, 1e-4, 0.0, 0.001)}, rest=UNPROMISING
    )
    row = CLOCKS.index(500)
    assert search.outlook(row) == (
        "energy_j should be 10.0 % below the baseline, with a chance of over 99 % to meet every limit"
    )
    answer = search.attempt(row, "because")
    assert answer.setting == setting(500)
    assert answer.why == "because"
    assert answer.predicted["energy_j"].mean == pytest.approx(9.0, rel=0.01)
    assert "energy_j should be 35" in search.outlook(CLOCKS.index(600))
    assert "0 % to meet" in search.outlook(CLOCKS.index(600))


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_an_unpromising_setting_is_shown_with_its_best_case(sign: float) -> None:
    at = ladder() if sign > 0.0 else ladder(objective=Objective("energy_j", "maximize"))
    unsure, surely = (0.02, 0.05, 0.0, 0.001), (0.02, 0.001, 0.0, 0.001)
    search = believing(
        at, at_baseline(at), {1000: NOTHING, 500: unsure, 600: surely}, rest=UNPROMISING
    )
    worse, better = ("above", "below") if sign > 0.0 else ("below", "above")
    outlook = search.outlook(CLOCKS.index(500))
    assert f" % {worse} the baseline, at best " in outlook and f" % {better} it" in outlook
    assert "at best" not in search.outlook(CLOCKS.index(600))


@pytest.mark.parametrize(
    ("scale", "away", "clause"),
    [
        (Scale(10.0, True), -0.5, "39.3 % below"),
        (Scale(10.0, True), 1e4, "% above"),
        (Scale(-10.0, False, 10.0), 0.9, "9 above"),
        (Scale(0.0, False, 3.0), 1.0, "3 above"),
    ],
)
def test_the_distance_from_the_baseline_is_shown_on_any_scale(
    scale: Scale, away: float, clause: str
) -> None:
    search = believing(STUDY, BASELINE, {1000: NOTHING, 500: (away, 1e-4, 0.0, 0.001)})
    there = replace(search, view=replace(search.view, scales={"energy_j": scale}))
    words = there.outlook(CLOCKS.index(500))
    assert f"{clause} the baseline" in words
    assert "inf" not in words and "nan" not in words


def test_the_text_of_a_failed_setting_gives_its_chance_to_keep_a_limit_alone() -> None:
    failed = believing(STUDY, [*BASELINE, *ended(TrialState.FAILED, 3)], {700: NOTHING})
    row = CLOCKS.index(700)
    assert failed.chance[row] <= 0.5
    assert failed.percent(row) == "over 99 %"


def test_without_limits_none_are_mentioned() -> None:
    free = ladder(constraints=())
    assert "limit" not in seen(free, BASELINE).outlook(0)


def test_windows_of_every_phase_are_counted() -> None:
    search = seen(STUDY, [*BASELINE, measured(3, 700), *ended(TrialState.FAILED, 4)])
    assert search.windows[CLOCKS.index(700)] == 1
    assert search.windows[search.baseline] == len(BASELINE)


def test_windows_at_another_rate_do_not_count_as_measured() -> None:
    def at_rate(shown: Measurement, rate: float) -> Measurement:
        return replace(shown, context={"arrival_rate_per_s": rate})

    night = [replace(t, measurement=at_rate(window(), 50.0)) for t in BASELINE]
    often = [
        trial(n, setting(700), at_rate(window(9.0, 110.0), 50.0))
        for n in range(3, 3 + MOST_WINDOWS)
    ]
    day = trial(20, STUDY.baseline, at_rate(window(), 200.0), phase=Phase.BASELINE)
    once = trial(21, setting(700), at_rate(window(9.0, 110.0), 200.0))
    assert 700 not in clocks(seen(STUDY, [*night, *often]))
    search = seen(STUDY, [*night, *often, day, once])
    assert 700 in clocks(search)
    assert search.windows[CLOCKS.index(700)] == 1
