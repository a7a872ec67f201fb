"""An operator's changes, judged by all measurements, and their effect on the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from db.sql.log import Observations
from db.sql.trials import Trials
from tests.builders import START, applied, completed, device, saved, setting, study, window
from tests.errors import raised
from tests.unit.tuner.cli import worlds
from tuner.core import (
    Estimate,
    InvalidInput,
    Level,
    Limit,
    Metric,
    Mode,
    Observation,
    Outcome,
    Phase,
    Plan,
    Setting,
    Signal,
    Terms,
    Trial,
    TrialState,
)
from tuner.presentation.texts import billed
from tuner.service.metrics.counts import Counts
from tuner.service.operations import Operations
from tuner.study.loop import Loop
from tuner.wire import (
    Change,
    ConstraintChange,
    HoldOrder,
    HoldReport,
    Idle,
    Poll,
    Release,
    StudyDraft,
)


def limited(verbs: Operations, name: str, *constraints: str) -> Phase:
    """Replace the constraints, and return the resulting status of the study."""
    return verbs.set_constraints(name, ConstraintChange(who="ann", constraints=constraints)).phase


def asking(verbs: Operations, name: str, at: Setting) -> object:
    """Return the order to an agent that holds a setting."""
    holding = applied(level=Level.HOLD, at=at)
    return verbs.loop.order("sim", Poll(agent="host", applied=holding, holding=name))


def test_a_revision_has_the_new_constraints() -> None:
    verbs, name = worlds.held()
    limited(verbs, name, "latency_p99_ms <= 200")
    limited(verbs, name)
    assert [r.why for r in verbs.revisions(name)][-2:] == [
        "constraints changed to latency_p99_ms <= 200",
        "constraints removed",
    ]


def test_a_hold_that_breaks_a_tightened_limit_is_released_also_while_tuning_waits() -> None:
    verbs, name = worlds.held()
    assert isinstance(asking(verbs, name, setting(600)), HoldOrder)
    verbs.loop.hours = lambda _: False
    assert limited(verbs, name, "latency_p99_ms <= 105") is Phase.TUNING
    answer = asking(verbs, name, setting(600))
    assert isinstance(answer, Release)
    assert "breaks a limit" in answer.why
    assert isinstance(asking(verbs, name, setting()), Idle), "tuning waits for its hours"


def test_a_hold_is_not_released_for_a_baseline_that_breaks_the_limit_too() -> None:
    verbs, name = worlds.held()
    verbs.loop.hours = lambda _: False
    assert limited(verbs, name, "latency_p99_ms <= 50") is Phase.TUNING
    assert isinstance(asking(verbs, name, setting(600)), Idle)


def test_a_plan_is_judged_by_all_of_its_rows() -> None:
    verbs, name = worlds.held(policy="by-load")
    assert len((verbs.study(name).plan or Plan.single({})).rows) == 2
    assert limited(verbs, name, "latency_p99_ms <= 130") is Phase.HOLDING
    assert limited(verbs, name, "latency_p99_ms <= 105") is Phase.TUNING


def test_a_setting_needed_by_a_tight_limit_is_not_held_under_a_loose_one() -> None:
    verbs = worlds.operations()
    name = worlds.created(verbs)
    limited(verbs, name, "latency_p99_ms <= 90")
    shown = {1000: (10.0, 100.0), 800: (12.0, 101.0), 600: (14.0, 60.0)}
    worlds.tune(verbs, lambda at: completed(*shown[int(str(at["gpu.clock_mhz"]))]))
    assert verbs.study(name).phase_why.startswith("confirmed: it meets latency_p99_ms <= 90")
    assert limited(verbs, name, "latency_p99_ms <= 95") is Phase.HOLDING
    assert limited(verbs, name, "latency_p99_ms <= 100.4") is Phase.TUNING


def test_the_same_constraints_again_change_nothing() -> None:
    verbs, name = worlds.held(worlds.flat)
    before = verbs.revisions(name)
    assert limited(verbs, name, worlds.LIMIT) is Phase.HOLDING
    assert verbs.revisions(name) == before


def test_without_constraints_the_best_is_looked_for_anew() -> None:
    verbs, name = worlds.held()
    assert limited(verbs, name) is Phase.HOLDING, "what is held is the best without them, too"
    assert verbs.study(name).constraints == ()


def test_nothing_is_saved_where_the_baseline_is_held() -> None:
    verbs, name = worlds.held(worlds.flat)
    report = verbs.report(name)
    assert report.best is not None
    assert report.best.setting == setting()
    assert (report.saving, report.alternating, report.bill.saving_w) == (None, False, None)


def observed(verbs: Operations, name: str, energy_j: float, ended: str = "") -> None:
    verbs.loop.hold_reports.observe(
        HoldReport(
            device="sim",
            study=name,
            revision=verbs.study(name).revision,
            setting=setting(600),
            measurement=window(energy_j, 110.0),
            ended=ended,
        )
    )


def test_holds_under_another_baseline_are_not_counted_as_saving() -> None:
    verbs, name = worlds.held()
    observed(verbs, name, 6.0)
    assert (saved(verbs.report(name).bill).saved_j or 0.0) > 0.0
    observed(verbs, name, 6.0, ended="the limit was broken in 3 windows")
    assert verbs.study(name).phase is Phase.BASELINE
    assert verbs.report(name).bill.whole is None


def test_a_saving_shows_the_start_of_its_windows() -> None:
    verbs, name = worlds.held()
    for minute in range(4):
        at = START + timedelta(minutes=minute)
        verbs.loop.store.observations.add_all(
            [
                Observation(
                    study=name,
                    device="sim",
                    setting=setting(600),
                    measurement=replace(window(6.0, 110.0), started_at=at),
                    at=at,
                )
            ]
        )
    before = verbs.report(name).bill
    assert saved(before).since == START
    assert saved(before).saved_j == pytest.approx(200.0 * (10 + 180))
    verbs.loop.store.observations.prune(START + timedelta(minutes=2))
    after = verbs.report(name).bill
    assert saved(after).since == START + timedelta(minutes=2)
    assert saved(after).saved_j == pytest.approx(200.0 * (10 + 60))


def test_a_report_does_not_load_every_window_ever_held(monkeypatch: pytest.MonkeyPatch) -> None:
    verbs, name = worlds.held()
    observed(verbs, name, 6.0)
    monkeypatch.delattr(Observations, "list")
    assert verbs.report(name).bill.whole is not None


@pytest.mark.parametrize("names", [("sim",), ("sim", "sam")])
def test_a_window_of_one_of_several_devices_is_not_set_against_all_of_them(
    names: tuple[str, ...],
) -> None:
    verbs = worlds.operations()
    verbs.loop.register(device("sam"))
    held = replace(
        study(Phase.HOLDING, plan=Plan.single(setting(600)), phase_since=3), devices=names
    )
    verbs.loop.store.studies.add(held, "ann", "made")
    for at, phase in ((setting(), Phase.BASELINE), (setting(600), Phase.TUNING)):
        run = verbs.loop.store.trials.begin(held.id, at, phase, "", verbs.loop.now())
        verbs.loop.store.trials.end(held.id, run.number, worlds.slope(at), verbs.loop.now())
    observed(verbs, held.id, 6.0)
    assert (verbs.report(held.id).bill.whole is None) == (len(names) > 1)


def test_trials_that_no_longer_count_are_judged_nowhere() -> None:
    verbs, name = worlds.held(worlds.steep)
    assert verbs.study(name).violations.broken == 1
    observed(verbs, name, 6.0, ended="the limit was broken in 3 windows")
    assert verbs.study(name).violations.tried == 0
    assert {t.verdict for t in verbs.trials(name)} == {None}


def starving(at: Setting) -> Outcome:
    """Joules fall with the clock, and so does throughput."""
    clock = float(at["gpu.clock_mhz"])
    done = Estimate.of_mean(clock / 20.0, 0.1, 10)
    seen = window(clock / 100.0, 100.0, extra={"throughput_per_s": done})
    return Outcome(state=TrialState.COMPLETED, measurement=seen)


@pytest.mark.promise(
    "a saving costs capacity, or no setting keeps the limit",
    "the cost is in the same line, with the constraint that prevents it; LIMIT NOT MET comes first",
)
def test_a_saving_that_costs_capacity_names_the_constraint_that_keeps_it() -> None:
    verbs, name = worlds.held(starving)
    keeping = "throughput_per_s >= 0.95x baseline"
    view = verbs.study(name)
    assert view.phase is Phase.HOLDING
    assert f'is 40.0 % lower: add the constraint "{keeping}" to keep it' in view.phase_why
    assert view.phase_why in verbs.events(name, last=1)[0].text
    assert limited(verbs, name, worlds.LIMIT, keeping) is Phase.TUNING, "that is not held then"


def test_a_bare_throughput_is_maximised() -> None:
    verbs = worlds.operations()
    draft = StudyDraft(devices=("sim",), objective="throughput_per_s", policy="scripted")
    assert verbs.create(draft).objective == "maximize throughput_per_s"


@pytest.mark.parametrize("objective", ["energy_j", "minimize power_w"])
def test_saving_energy_without_limits_must_be_explicit(objective: str) -> None:
    verbs = worlds.operations()
    verbs.loop.register(device(metrics=(Metric("energy_j"), Metric("power_w"))))
    draft = StudyDraft(devices=("sim",), objective=objective, policy="scripted")
    with raised(InvalidInput, "constraint") as caught:
        verbs.create(draft)
    assert "--no-constraint" in caught.value.hint
    assert verbs.studies() == []
    assert verbs.create(draft.model_copy(update={"constraints": ()})).constraints == ()


def test_a_list_reads_only_changed_studies_again(monkeypatch: pytest.MonkeyPatch) -> None:
    verbs = worlds.operations()
    draft = StudyDraft(devices=("sim",), policy="scripted")
    old = verbs.create(draft).id
    verbs.stop(old, Change(who="ann", why="enough"))
    new = verbs.create(draft).id
    first = verbs.studies()
    read, own = list[str](), Trials.list

    def listed(self: Trials, name: str, first: int = 1) -> Sequence[Trial]:
        read.append(name)
        return own(self, name, first)

    monkeypatch.setattr(Trials, "list", listed)
    assert verbs.studies() == first and read == []
    verbs.loop.store.trials.begin(new, setting(), Phase.TUNING, "", START)
    assert {v.id: sum(v.trials.values()) for v in verbs.studies()} == {old: 0, new: 1}
    assert set(read) == {new}
    verbs.delete(old, Change(who="ann"))
    assert [view.id for view in verbs.studies()] == [new]


def test_open_values_follow_from_the_first_devices_metrics() -> None:
    made = worlds.operations().create(StudyDraft(devices=("sim",), policy="scripted"))
    assert (made.objective, made.constraints) == ("minimize energy_j", (worlds.LIMIT,))


@pytest.mark.parametrize(
    ("wish", "named"),
    [
        ({"devices": ("sim",) * 257}, "devices"),
        ({"constraints": ("energy_j <= 1",) * 33}, "constraints"),
        ({"choices": {"a": (1,) * 5_001, "b": (1,) * 5_000}}, "choices"),
        ({"conditions": {str(n): "a > 0" for n in range(10_001)}}, "conditions"),
    ],
)
def test_the_size_of_a_study_is_bounded(wish: dict[str, object], named: str) -> None:
    verbs = worlds.operations()
    draft = StudyDraft(devices=("sim",), policy="scripted").model_copy(update=wish)
    with raised(InvalidInput, named):
        verbs.create(draft)
    assert verbs.studies() == []


def test_a_preview_counts_the_trials_that_setting_the_constraints_counts() -> None:
    verbs, study = worlds.held()
    store = verbs.loop.store
    stored = store.studies.get(study)
    later = max(t.number for t in store.trials.list(study)) + 1
    anew = replace(stored, since_trial=later)
    store.studies.revise(anew, "tuner", "the driver changed", verbs.loop.now())
    change = ConstraintChange(constraints=("latency_p99_ms <= 101",))
    seen = verbs.preview(study, change)
    assert seen.more_trials == stored.terms.trials
    verbs.set_constraints(study, change)
    terms = store.studies.get(study).terms
    assert terms.trials == seen.more_trials


@pytest.mark.promise("a saving costs capacity, or no setting keeps the limit")
def test_an_unreachable_limit_is_reported_first() -> None:
    verbs = worlds.operations()
    limit = "latency_p99_ms <= 50"
    draft = StudyDraft(devices=("sim",), constraints=(limit,), policy="scripted")
    name = verbs.create(draft).id
    worlds.tune(verbs)
    view = verbs.study(name)
    assert view.phase is Phase.HOLDING
    assert view.unmet == Limit("latency_p99_ms", "<=", 50.0)
    sentence = "LIMIT NOT MET: holding the baseline (latency_p99_ms 100, the limit is <= 50); "
    assert view.phase_why.startswith(sentence)
    assert verbs.events(name, last=1)[0].text.startswith(sentence)


def test_a_limit_that_is_kept_is_not_called_unmet() -> None:
    for surface in (worlds.slope, worlds.flat):
        verbs, name = worlds.held(surface)
        assert verbs.study(name).unmet is None
        assert "NOT MET" not in verbs.study(name).phase_why


def test_constraints_that_contradict_each_other_are_refused_and_change_nothing() -> None:
    verbs, name = worlds.held()
    both = ("throughput_per_s >= 10", "throughput_per_s <= 5")
    draft = StudyDraft(devices=("sim",), constraints=both, policy="scripted")
    with raised(InvalidInput):
        worlds.operations().create(draft)
    before = verbs.revisions(name)
    with raised(InvalidInput):
        limited(verbs, name, *both)
    with raised(InvalidInput):  # the baseline shows 100 ms
        limited(verbs, name, "latency_p99_ms <= 0.5x baseline", "latency_p99_ms >= 60")
    assert verbs.revisions(name) == before


SIGNALS = (Signal("requests_in_system", askable=True), Signal("price", "EUR/kWh"))


def test_a_study_has_the_signals_that_all_its_devices_offer() -> None:
    verbs = worlds.operations(about=device("a", signals=SIGNALS))
    others = (Signal("requests_in_system"), Signal("price", "USD/kWh"), Signal("gas_l"))
    verbs.loop.register(device("b", signals=others))
    drafts = [
        StudyDraft(devices=names, policy="scripted", constraints=())
        for names in (("a",), ("b", "a"))
    ]
    alone = verbs.create(drafts[0])
    assert alone.signals == SIGNALS
    verbs.stop(alone.id, Change())
    assert verbs.create(drafts[1]).signals == (Signal("requests_in_system", askable=False),)


def test_a_draft_may_request_a_continuous_study() -> None:
    verbs = worlds.operations()
    draft = {"devices": ["sim"], "policy": "scripted", "constraints": []}
    for terms, mode in (({}, Mode.SEARCH), ({"mode": "continuous"}, Mode.CONTINUOUS)):
        view = verbs.create(StudyDraft.model_validate({**draft, "terms": terms}))
        assert (view.terms.mode, view.model_dump(mode="json")["terms"]["mode"]) == (mode, mode)
        verbs.stop(view.id, Change())


def test_a_rows_saving_comes_from_the_windows_at_its_load() -> None:
    verbs, name = worlds.held(policy="at-load", about=worlds.ASKABLE)
    report = verbs.report(name)
    assert report.alternating and report.saving is not None
    assert report.saving.mean == pytest.approx(0.4)
    assert {
        tuple(t.context.items()) for t in verbs.trials(name) if t.phase is Phase.CONFIRMING
    } == {(("requests_in_system", 2.0),)}


def test_a_plan_that_was_confirmed_at_a_load_is_held_on_after_a_pause() -> None:
    verbs, name = worlds.held(policy="at-load", about=worlds.ASKABLE)
    plan = verbs.study(name).plan
    verbs.pause(name, Change())
    resumed = verbs.resume(name, Change())
    assert (resumed.phase, resumed.plan) == (Phase.HOLDING, plan)


def test_windows_of_a_hold_that_break_a_limit_are_counted_as_a_scrape_counts_them() -> None:
    verbs, name = worlds.held()
    counts = Counts()
    loop = Loop(verbs.loop.store, worlds.policies, verbs.loop.now, telemetry=counts)
    verbs = Operations(loop)
    order = asking(verbs, name, setting(600))
    assert isinstance(order, HoldOrder)
    for minute in range(1, 41):
        slow = replace(window(6.0, 150.0), started_at=START + timedelta(minutes=minute))
        verbs.loop.hold_reports.observe(
            HoldReport.of(order, device="sim", setting=setting(600), measurement=slow)
        )  # fmt: skip
    scraped = counts.registry.get_sample_value("jouletune_violations_total", {"level": "hold"})
    violations = verbs.report(name).study.violations
    assert violations.held == scraped == 40


def unmet(terms: Terms, tried: int) -> tuple[Operations, str]:
    """Return a study that holds its baseline, which breaks its limit, after this many trials."""
    verbs = worlds.operations()
    bound = ("latency_p99_ms <= 50",)
    draft = StudyDraft(devices=("sim",), constraints=bound, policy="scripted", terms=terms, who="x")
    name = verbs.create(draft).id
    study, store = verbs.loop.store.studies.get(name), verbs.loop.store
    for number in range(2 + tried):
        at = setting() if number < 2 else setting((800, 600, 400)[(number - 2) % 3])
        phase = Phase.BASELINE if number < 2 else Phase.TUNING
        trial = store.trials.begin(name, at, phase, "", START)
        store.trials.end(name, trial.number, completed(10.0, 100.0), START)
    study = verbs.loop.changes.move(study, Phase.TUNING, "the baseline was measured in 2 windows")
    why = "LIMIT NOT MET: holding the baseline (latency_p99_ms 100, the limit is <= 50)"
    verbs.loop.changes.move(study, Phase.HOLDING, why, Plan.single(setting()))
    return verbs, name


def test_a_loosened_limit_opens_the_search_again_where_the_baseline_is_held() -> None:
    verbs, name = unmet(Terms(trials=20), 3)
    assert limited(verbs, name, "latency_p99_ms <= 120") is Phase.TUNING
    view = verbs.study(name)
    assert view.terms.trials == 20, "seventeen are left"
    assert view.unmet is None
    assert verbs.report(name).bill.granted == 0


def test_a_limit_that_is_taken_away_opens_the_search_again() -> None:
    verbs, name = unmet(Terms(trials=20), 3)
    assert limited(verbs, name) is Phase.TUNING


def test_without_trials_left_a_change_grants_half_of_them_and_the_bill_shows_it() -> None:
    verbs, name = unmet(Terms(trials=5), 5)
    change = ConstraintChange(who="ann", constraints=("latency_p99_ms <= 120",))
    assert verbs.preview(name, change).more_trials == 3
    assert limited(verbs, name, "latency_p99_ms <= 120") is Phase.TUNING
    assert verbs.study(name).terms.trials == 8
    assert limited(verbs, name, "latency_p99_ms <= 120") is Phase.TUNING, "the same: no change"
    assert verbs.study(name).terms.trials == 8
    report = verbs.report(name)
    assert report.bill.granted == 3
    assert "3 trials granted by changed constraints" in billed(report.bill, report.study)


def test_a_paused_study_whose_limit_is_loosened_searches_when_it_is_resumed() -> None:
    verbs, name = unmet(Terms(trials=20), 3)
    verbs.pause(name, Change(who="ann"))
    assert limited(verbs, name, "latency_p99_ms <= 120") is Phase.PAUSED
    assert verbs.resume(name, Change(who="ann")).phase is Phase.TUNING


def test_a_tightened_limit_leaves_a_baseline_that_keeps_it() -> None:
    verbs, name = unmet(Terms(trials=20), 3)
    limited(verbs, name, "latency_p99_ms <= 150")
    stored = verbs.loop.store.studies.get(name)
    verbs.loop.changes.move(stored, Phase.HOLDING, "nothing beats it", Plan.single(setting()))
    assert limited(verbs, name, "latency_p99_ms <= 130") is Phase.HOLDING
    assert verbs.study(name).phase_why == "nothing beats it"


def test_the_last_author_does_not_hide_the_reason_of_the_phase() -> None:
    verbs, name = unmet(Terms(trials=20), 3)
    verbs.stop_all(Change(who="admin", why="maintenance"))
    verbs.lift(Change(who="admin"))
    view = verbs.study(name)
    assert view.phase_why.startswith("LIMIT NOT MET")
    assert verbs.revisions(name)[-1].why == "stop-all lifted by admin"
    assert verbs.revisions(name)[-1].reason == view.phase_why
    verbs.pause(name, Change(who="admin"))
    assert "paused by admin" in verbs.study(name).phase_why
    assert verbs.loop.store.studies.get(name).paused_reason == view.phase_why
