"""The end of a job: as JSON, and as people read it."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from functools import cache

import pytest
from rich.console import Console

from tests.builders import START, device, setting
from tests.golden import golden, steady
from tests.unit.tuner.cli import worlds
from tuner.cli.run import results
from tuner.cli.run.conduct import settled
from tuner.cli.run.display import (
    Lines,
    LiveLine,
    best_so_far,
    open_display,
    progress,
    time_left,
)
from tuner.cli.run.results import Result, Score, StudyResult, document, score
from tuner.cli.run.summary import next_steps, print_report
from tuner.cli.runfile import RunJob
from tuner.core import (
    BaselineShift,
    Bill,
    Constraint,
    Estimate,
    Objective,
    PeriodSaving,
    Phase,
    Plan,
    Setting,
    TrialState,
)
from tuner.core import Outcome as Ended
from tuner.core.quantities import quantity_of
from tuner.moments import when
from tuner.presentation.reports import verdict
from tuner.presentation.texts import billed, gained
from tuner.service.operations import Operations
from tuner.wire import Change, Release, StudyDraft, StudyReport, StudyView


def scored(
    chosen: Setting, limit: str = worlds.LIMIT, surface: worlds.Surface = worlds.slope
) -> Score:
    def true_values(at: Setting) -> Mapping[str, float]:
        metrics = surface(at).measurement
        assert metrics is not None
        return {name: estimate.mean for name, estimate in metrics.estimates.items()}

    limits = (Constraint.parse(limit),)
    return score(device().space, true_values, Objective("energy_j"), limits, chosen)


@cache
def held_view() -> StudyView:
    verbs, study = worlds.held()
    return verbs.study(study)


def result(
    surface: worlds.Surface = worlds.slope, *, control: bool = False, policy: str = "scripted"
) -> Result:
    made = ended(*worlds.held(surface, policy))
    made = replace(made, cannot={"gpu.fan": "no permission to set it"})
    if not control:
        return made
    main = replace(made.main, score=scored(made.main.held))
    return replace(made, main=main, control=main)


def ended(verbs: Operations, study: str, on: str = "cpu") -> Result:
    """Return the result of a run whose study has ended as it is."""
    job = RunJob(device=on, study=study)
    return Result(
        job=job, board="A100", cannot={}, main=results.outcome(verbs, study, job, device())
    )


def reported(situation: str, outcome: Result) -> None:
    """Compare a run's report in a situation with its golden file."""
    out = io.StringIO()
    print_report(Console(file=out, width=200, markup=False, highlight=False), outcome)
    golden("run", situation, steady(out.getvalue(), STUDY=outcome.main.report.study.id))


def test_the_document_has_the_promised_fields() -> None:
    written = json.loads(json.dumps(document(result(control=True)), allow_nan=False))
    promised = {"study", "baseline", "best", "truth", "saving_percent", "captured", "feasible"}
    assert promised | {"trials", "control"} <= set(written)
    assert written["best"]["setting"] == dict(worlds.BEST)
    assert written["best"]["metrics"]["energy_j"]["mean"] == pytest.approx(6.0)
    assert written["baseline"]["metrics"]["energy_j"]["stderr"] > 0.0
    assert written["saving_percent"] == pytest.approx(40.0)
    assert written["truth"]["oracle"]["setting"]["gpu.clock_mhz"] == 400
    assert written["captured"] == pytest.approx(4.0 / 6.0)
    assert written["feasible"] is True
    assert len(written["trials"]) == 8
    assert {"policy", "best", "captured", "saving_percent", "feasible"} <= set(written["control"])


@pytest.mark.parametrize("surface", [worlds.slope, worlds.flat, worlds.broken_at_800])
def test_the_document_is_the_report_that_a_tuner_gives(surface: worlds.Surface) -> None:
    made = result(surface)
    written = json.loads(json.dumps(document(made), allow_nan=False))
    report = {name: written[name] for name in StudyReport.model_fields if name in written}
    for row in (written["study"]["plan"] or {"rows": ()})["rows"]:
        row["below"] = math.inf if row["below"] is None else row["below"]
    assert StudyReport.model_validate(report) == made.main.report
    assert set(StudyReport.model_fields) - set(report) <= {"protocol"}


def test_a_device_that_must_be_measured_has_no_true_values() -> None:
    written = document(result())
    assert (written["truth"], written["captured"], written["feasible"]) == (None, None, None)
    assert (written["limit_kept"], written["control"]) == (True, None)


def test_the_report_has_the_gain_and_its_certainty() -> None:
    reported("a control study", result(control=True))


def test_a_device_without_a_latency_gets_its_report() -> None:
    outcome = result()
    view = outcome.main.report.study
    meant = {name: quantity_of(name) for name in ("energy_j", "throughput_per_s")}
    renamed = view.model_copy(update={"quantities": meant})
    report = outcome.main.report.model_copy(update={"study": renamed})
    reported("no latency", replace(outcome, main=replace(outcome.main, report=report)))


def test_a_report_without_a_winner_says_so() -> None:
    reported("no winner", result(worlds.flat))
    assert not result(worlds.flat).main.won


def test_every_broken_limit_is_counted_with_its_time() -> None:
    outcome = result(worlds.steep)
    reported("a broken limit", outcome)
    made = document(outcome)
    assert isinstance(made["study"], dict)
    violations = {"tried": 4, "broken": 1, "held": 0, "rate": 0.25, "seconds": 1.0}
    assert made["study"]["violations"] == violations


def test_a_baseline_that_breaks_the_limit_is_reported() -> None:
    verbs = worlds.operations()
    limits = ("latency_p99_ms <= 50", "power_w <= 100000")
    draft = StudyDraft(devices=("sim",), constraints=limits, policy="scripted")
    study = verbs.create(draft).id
    worlds.tune(verbs)
    outcome = ended(verbs, study)
    reported("a baseline above the limit", outcome)
    assert "best so far" not in shown_lines(outcome.main)


def test_a_limit_that_costs_more_energy_than_the_baseline_is_not_called_a_saving() -> None:
    verbs = worlds.operations()
    limit = "latency_p99_ms <= 90"
    draft = StudyDraft(devices=("sim",), constraints=(limit,), policy="scripted")
    study = verbs.create(draft).id
    worlds.tune(verbs, worlds.costly)
    outcome = ended(verbs, study)
    worth = scored(outcome.main.held, limit, worlds.costly)
    reported("a limit that costs", replace(outcome, main=replace(outcome.main, score=worth)))


def test_if_nothing_keeps_the_limits_the_true_values_name_no_cure() -> None:
    outcome = result()
    worth = scored(setting(600), "latency_p99_ms <= 9")
    reported("limits that nothing keeps", replace(outcome, main=replace(outcome.main, score=worth)))


def test_a_plan_of_several_rows_is_listed_row_by_row() -> None:
    """This includes a last row, for the highest load, that stays at the baseline."""
    outcome = result(policy="by-load")
    assert outcome.main.won
    reported("a plan of several rows", outcome)
    made = json.loads(json.dumps(document(outcome), allow_nan=False))
    assert [row["below"] for row in made["study"]["plan"]["rows"]] == [3.0, None]
    assert made["study"]["plan"]["by"] == "requests_in_system"
    assert made["proposed"] == "two loads were measured"


def test_a_plan_of_one_row_is_the_best_setting_and_no_more() -> None:
    reported("a plan of one row", result())


def test_failures_are_reported_with_their_reasons() -> None:
    reported("a failed trial", result(worlds.broken_at_800))


def test_a_stopped_study_shows_its_former_hold() -> None:
    verbs, study = worlds.held()
    verbs.stop(study, Change())
    assert ended(verbs, study).main.held == worlds.BEST


def test_a_study_stopped_too_early_held_nothing() -> None:
    verbs = worlds.operations()
    study = worlds.created(verbs)
    verbs.stop(study, Change())
    outcome = ended(verbs, study, "simulated:orin")
    assert not outcome.main.won
    assert outcome.main.score is None, "what was never measured is not scored"
    reported("no baseline", outcome)


def test_a_study_that_the_tuner_paused_goes_no_further_and_held_nothing() -> None:
    left = iter([True] * 4)

    def lost_while_confirming(at: Setting) -> Ended:
        if next(left, False):
            return worlds.slope(at)
        return Ended(state=TrialState.FAILED, reason="the device is lost")

    verbs = worlds.operations()
    study = worlds.created(verbs)
    worlds.tune(verbs, lost_while_confirming, until=Release)
    view = verbs.study(study)
    assert (view.phase, view.plan) == (Phase.PAUSED, Plan.single(worlds.BEST))
    assert settled(verbs, view)
    outcome = ended(verbs, study)
    assert not outcome.main.won, "what was proposed was never confirmed"
    reported("paused by the tuner", outcome)


def test_a_study_that_an_operator_paused_may_go_on() -> None:
    verbs = worlds.operations()
    study = worlds.created(verbs)
    assert not settled(verbs, verbs.study(study))
    assert not settled(verbs, verbs.pause(study, Change(who="ann")))


def test_an_unknown_energy_is_not_called_zero() -> None:
    line = billed(Bill(trials=3, seconds=90.0), held_view())
    assert line == "exploring took 1.5 min; its energy is unknown: not all of it was measured"


def test_savings_since_then_are_on_the_bill() -> None:
    bill = Bill(explored_j=2e3, saving_w=10.0, break_even_s=200.0, seconds=90.0)
    assert billed(bill, held_view()).endswith("exploring pays off after 3.33 min")
    whole = PeriodSaving("in all", START, 9, 60.0, 5e3, None, 20e3, 0.25, 700.0)
    bill = replace(bill, whole=whole, currency="EUR")
    assert billed(bill, held_view()).endswith(
        "3.33 min; saved since 2026-01-01: 5.000 kJ (0.00139 kWh, 0.25 EUR, 0.7 kg CO₂e, "
        "25.0 % of the baseline)"
    )


def test_a_bill_names_its_baseline() -> None:
    bill = Bill(explored_j=2e3, saving_w=10.0, break_even_s=200.0, seconds=90.0)
    whole = PeriodSaving("in all", START, 9, 60.0, 5e3, 120.0)
    bill = replace(bill, whole=whole)
    saved, then = "saved since 2026-01-01: 5.00 ± 0.12 kJ (0.00139 kWh)", START + timedelta(days=2)
    old = replace(bill, extrapolated_since=START)
    assert billed(old, held_view()).endswith(
        f"{saved}, estimated; baseline not re-measured since {when(START)}"
    )
    again = replace(bill, controls=1, measured_again_at=then)
    measured = f"{saved}, baseline re-measured at {when(then)}, "
    assert billed(again, held_view()).endswith(f"{measured}1 control window")
    partly = replace(again, controls=12, extrapolated_since=START)
    assert billed(partly, held_view()).endswith(
        f"{measured}12 control windows; partly estimated since {when(START)}, where no control "
        "window is near"
    )


def test_a_claim_after_a_drift_names_the_drifted_baseline() -> None:
    outcome = result()
    shift = BaselineShift(START, Estimate.of_mean(-0.1, 0.01), 4)
    report = outcome.main.report.model_copy(update={"baseline_shift": shift})
    lines = list(verdict(replace(outcome.main, report=report)))
    drifted = "the baseline has drifted: its energy_j is 10.0 ± 1.0 % lower"
    assert any(f"counted from {drifted}" in line for line in lines)
    assert drifted in gained(report)


@pytest.mark.parametrize(
    ("saving_w", "confirmed", "words"),
    [
        (None, worlds.BEST, "payback unknown: no throughput was measured"),
        (-3.0, worlds.BEST, "it does not pay off: the best saves no energy"),
        (None, None, "it does not pay off: nothing beats the baseline"),
    ],
)
def test_an_unpaid_bill_has_its_reason(
    saving_w: float | None, confirmed: Setting | None, words: str
) -> None:
    view = held_view().model_copy(update={"confirmed": confirmed})
    assert billed(Bill(explored_j=2e3, saving_w=saving_w), view).endswith(words)


def test_suggested_commands_use_the_same_database() -> None:
    outcome = result()
    commands = list(next_steps([outcome], " --db sqlite:///x"))
    assert commands[0] == f"jouletune trial list {outcome.job.study} --db sqlite:///x"
    assert all(command.endswith("--db sqlite:///x") for command in commands)


def shown_lines(main: StudyResult) -> str:
    out = io.StringIO()
    display = open_display(Console(file=out, width=200, markup=False, highlight=False))
    assert isinstance(display, Lines)
    for count in (0, 1, len(main.trials), len(main.trials)):
        display.update("study one", main.report.study, main.trials[:count])
    display.close()
    return out.getvalue()


def test_plain_lines_print_every_trial_once() -> None:
    text = shown_lines(result(worlds.broken_at_800).main)
    assert text.count("study one") == 1
    assert text.count("trial 3 failed, gpu.clock_mhz=800, the clock was refused") == 1
    assert text.count("\n  confirming\n") == 1
    assert "trial 4 completed, gpu.clock_mhz=600, energy_j 6.000 ± 0.060 J" in text
    assert "best so far" in text
    assert text.rstrip().splitlines()[-1] == "  holding"


def test_a_terminal_gets_one_live_line() -> None:
    out = io.StringIO()
    console = Console(file=out, width=160, height=40, force_terminal=True, highlight=False)
    display = open_display(console)
    assert isinstance(display, LiveLine)
    main = result().main
    display.update("study one", main.report.study, main.trials)
    display.say("a line that stays")
    display.close()
    text = out.getvalue()
    for part in ("study one", "trial 2 of ≤ 20", "best -40.0 % energy_j", "a line that stays"):
        assert part in text
    assert "trial 8 completed" not in text


def test_the_baseline_is_the_best_until_another_is() -> None:
    view = result().main.report.study
    assert view.best is not None
    assert best_so_far(view).endswith(" at gpu.clock_mhz=600")
    at_first = view.best.model_copy(update={"setting": view.baseline.setting})
    text = best_so_far(view.model_copy(update={"best": at_first}))
    assert text == "best so far 6.000 ± 0.035 J, the baseline"


def test_a_narrow_terminal_shows_the_time_left() -> None:
    main = result().main
    view = main.report.study.model_copy(update={"phase": Phase.TUNING})
    text = progress("study 1 of 2: polythrottle on simulated-orin@host", view, main.trials)
    assert " left" in text[:80] and "trial 2 of ≤ 20" in text[:80]


def test_the_time_left_is_a_range_until_the_search_ends() -> None:
    main = result().main
    view, trials = main.report.study, main.trials
    assert time_left(view, trials) is None, "it holds"
    searching = view.model_copy(update={"phase": Phase.TUNING})
    assert time_left(searching, ()) is None, "nothing was measured"
    four = [
        trial.model_copy(
            update={
                "started_at": START + timedelta(seconds=10 * n),
                "ended_at": START + timedelta(seconds=10 * (n + 1)),
            }
        )
        for n, trial in enumerate(trials[:4])
    ]
    assert time_left(searching, four) == (40.0, 10.0 * (18 + 30))
    confirming = view.model_copy(update={"phase": Phase.CONFIRMING})
    assert time_left(confirming, four) == (40.0, 300.0)
