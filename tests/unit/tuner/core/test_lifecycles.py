"""The allowed and the forbidden transitions of trials, studies and plans."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import START, completed, setting, study, trial, window
from tests.errors import raised
from tuner.core import (
    ACTIVE,
    EDGES,
    HELD,
    LONGEST_S,
    PLANNED,
    IllegalTransition,
    InvalidInput,
    Lease,
    Limit,
    Mode,
    Outcome,
    Phase,
    Plan,
    Row,
    Safety,
    StaleToken,
    Terms,
    TrialState,
)

PLAN = Plan.single(setting(600))
FINAL = [s for s in TrialState if s.final]


@pytest.mark.parametrize("state", FINAL)
def test_a_trial_ends_once(state: TrialState) -> None:
    running = trial(1, state=TrialState.RUNNING)
    outcome = Outcome(state=state, measurement=window() if state.evidence else None, reason="r")
    ended = running.ended(outcome, START)
    assert (ended.state, ended.reason) == (state, "r")
    for again in FINAL:
        other = Outcome(state=again, measurement=window() if again.evidence else None)
        with raised(IllegalTransition, "already"):
            ended.ended(other, START)
    with pytest.raises(IllegalTransition):
        ended.again()


def test_a_running_trial_may_be_attempted_again() -> None:
    assert trial(1, state=TrialState.RUNNING).again().attempt == 2


def test_an_outcome_must_be_an_end_with_the_evidence_it_claims() -> None:
    with pytest.raises(IllegalTransition):
        Outcome(state=TrialState.RUNNING)
    with pytest.raises(IllegalTransition, match="needs a measurement"):
        Outcome(state=TrialState.COMPLETED)
    with pytest.raises(IllegalTransition, match="censored"):
        Outcome(state=TrialState.FAILED, broke=Limit("latency_p99_ms", "<=", 1.0))


def test_only_the_token_in_force_with_its_nonce_is_admitted() -> None:
    lease = Lease(
        device="sim",
        study="s1",
        trial=1,
        attempt=2,
        token=7,
        nonce="secret",
        agent="a",
        expires_at=START + timedelta(seconds=30),
    )
    lease.admit(7, "secret")
    for token in (6, 8):
        with raised(StaleToken, "attempt 2", "holds 7"):
            lease.admit(token, "secret")
    for nonce in ("", "guess", "größe"):
        with raised(StaleToken, "nonce"):
            lease.admit(7, nonce)


@pytest.mark.parametrize("source", list(Phase))
@pytest.mark.parametrize("target", list(Phase))
def test_a_study_moves_along_the_edges_there_are_and_no_others(
    source: Phase, target: Phase
) -> None:
    start = study(source, plan=PLAN, paused_from=Phase.TUNING if source is Phase.PAUSED else None)
    if target in EDGES[source]:
        assert start.moved(target, PLAN).phase is target
    else:
        with pytest.raises(IllegalTransition):
            start.moved(target, PLAN)


def test_a_stopped_study_cannot_continue() -> None:
    assert EDGES[Phase.STOPPED] == frozenset()
    for phase in Phase:
        assert phase is Phase.STOPPED or Phase.STOPPED in EDGES[phase]


@pytest.mark.parametrize("phase", sorted(ACTIVE - {Phase.PAUSED}))
def test_a_paused_study_resumes_in_its_former_phase(phase: Phase) -> None:
    plan = PLAN if phase in PLANNED else None
    before = study(phase, plan=plan)
    assert before.moved(Phase.PAUSED).resumed() == before


def test_holding_needs_a_plan() -> None:
    for phase in PLANNED:
        before = study(Phase.CONFIRMING, plan=PLAN) if phase in HELD else study(Phase.TUNING)
        with pytest.raises(IllegalTransition, match="without a plan"):
            before.moved(phase)


def test_a_proposal_alone_is_never_held() -> None:
    for phase in (Phase.CONFIRMING, Phase.PROPOSED):
        proposing = study(phase, plan=PLAN)
        assert proposing.held is None
        assert proposing.moved(Phase.PAUSED).held is None
        assert proposing.moved(Phase.STOPPED).held is None
    for phase in HELD:
        holding = study(phase, plan=PLAN)
        assert holding.held == holding.moved(Phase.PAUSED).held == PLAN
        assert holding.moved(Phase.STOPPED).held == PLAN


def test_a_proposal_waits_through_a_pause_and_in_no_other_phase() -> None:
    proposed = study(Phase.PROPOSED, plan=PLAN)
    assert proposed.proposed == proposed.moved(Phase.PAUSED).proposed == PLAN
    for phase in (Phase.CONFIRMING, Phase.HOLDING):
        assert study(phase, plan=PLAN).proposed is None
        assert study(phase, plan=PLAN).moved(Phase.PAUSED).proposed is None
    assert proposed.moved(Phase.STOPPED).proposed is None


@given(st.lists(st.sampled_from(list(Phase)), max_size=12))
def test_no_walk_loses_or_invents_a_plan(walk: list[Phase]) -> None:
    here = study(Phase.BASELINE)
    for phase in walk:
        if phase in EDGES[here.phase]:
            here = here.moved(phase, PLAN)
        assert (here.plan is not None) or here.phase not in PLANNED
        assert (here.paused_from is not None) == (here.phase is Phase.PAUSED)


def test_an_invalid_study_is_not_created() -> None:
    with pytest.raises(IllegalTransition, match="without a plan"):
        study(Phase.HOLDING)
    with pytest.raises(IllegalTransition, match="paused"):
        study(Phase.PAUSED)
    with pytest.raises(IllegalTransition, match="paused"):
        study(Phase.TUNING, paused_from=Phase.BASELINE)


def test_a_study_needs_distinct_devices() -> None:
    for devices in ((), ("a", "a")):
        with pytest.raises(InvalidInput):
            study(devices=devices)


@pytest.mark.parametrize(
    "terms",
    [
        {"trials": 0},
        {"window_s": 0.0},
        {"window_s": math.nan},
        {"max_window_s": math.inf},
        {"window_s": 10.0, "max_window_s": 5.0},
        {"valid_for_s": -1.0},
        {"mode": Mode.CONTINUOUS, "safety": Safety.ADVISE},
        {"mode": Mode.CONTINUOUS, "canary": "a"},
        {"mode": Mode.CONTINUOUS, "plan_by": "arrival_rate_per_s"},
        {"canary_windows": 0},
        {"control_share": -0.01},
        {"control_share": 0.21},
        {"control_share": math.nan},
        {"control_hours": "at night"},
        {"energy_share": 0.0},
        {"energy_share": 1.1},
    ],
)
def test_terms_must_be_possible(terms: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        Terms(**terms)  # type: ignore[arg-type]


@pytest.mark.parametrize(("window_s", "longest_s"), [(10.0, 60.0), (90.0, 540.0)])
def test_the_longest_window_follows_the_window_by_default(
    window_s: float, longest_s: float
) -> None:
    assert Terms(window_s=window_s).max_window_s == longest_s
    assert Terms(window_s=window_s, max_window_s=window_s).max_window_s == window_s


def test_the_longest_window_of_the_longest_allowed_window_is_itself() -> None:
    assert Terms(window_s=LONGEST_S).max_window_s == LONGEST_S


@pytest.mark.parametrize("devices", [("a",), ("b", "c")])
def test_a_canary_is_one_of_several_devices(devices: tuple[str, ...]) -> None:
    assert study(devices=("a", "b"), terms=Terms(canary="a")).terms.canary == "a"
    with pytest.raises(InvalidInput, match="canary"):
        study(devices=devices, terms=Terms(canary="a"))


LOW, HIGH = {"batch_size": 1}, {"batch_size": 8}
BY_LOAD = Plan((Row(10.0, LOW), Row(math.inf, HIGH)), by="arrival_rate_per_s", hysteresis=0.1)


@pytest.mark.parametrize(
    ("rate", "current", "row"),
    [
        (5.0, None, 0),
        (10.0, None, 1),
        (10.5, 0, 0),
        (11.5, 0, 1),
        (9.5, 1, 1),
        (8.5, 1, 0),
        (1e9, 1, 1),
    ],
)
def test_a_plan_changes_rows_only_beyond_its_hysteresis(
    rate: float, current: int | None, row: int
) -> None:
    assert BY_LOAD.row({"arrival_rate_per_s": rate}, current) == row


def test_an_unknown_situation_keeps_the_row_or_takes_the_one_for_most_load() -> None:
    assert BY_LOAD.row({}, 0) == 0
    assert BY_LOAD.row({}) == 1
    assert PLAN.row({"anything": 3.0}) == 0


@pytest.mark.parametrize(
    ("rows", "by", "hysteresis"),
    [
        ((), "x", 0.1),
        ((Row(10.0, LOW),), "x", 0.1),
        ((Row(math.inf, LOW), Row(math.inf, HIGH)), "x", 0.1),
        ((Row(10.0, LOW), Row(math.inf, HIGH)), "", 0.1),
        ((Row(math.inf, LOW),), "x", 1.0),
        ((Row(math.inf, LOW, gain=1.1),), "x", 0.1),
        ((Row(math.inf, LOW, gain=math.nan),), "x", 0.1),
    ],
)
def test_a_plan_must_cover_every_situation(
    rows: tuple[Row, ...], by: str, hysteresis: float
) -> None:
    with pytest.raises(InvalidInput):
        Plan(rows, by, hysteresis)


@given(st.floats(0, 1e6), st.one_of(st.none(), st.integers(0, 1)))
def test_a_plan_settles_at_once(rate: float, current: int | None) -> None:
    context = {"arrival_rate_per_s": rate}
    first = BY_LOAD.row(context, current)
    assert BY_LOAD.row(context, first) == first


def test_revising_a_study_leaves_the_old_value_as_it_was() -> None:
    before = study(Phase.TUNING)
    replace(before, seed=9)
    before.moved(Phase.CONFIRMING, PLAN)
    assert (before.seed, before.phase) == (0, Phase.TUNING)
    assert completed().measurement is not None
