"""Notes for operators: unmet limits, silent agents, stops, and runs without a result."""

from __future__ import annotations

import getpass
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from db import Store, open_store
from tests.builders import applied, completed, device, setting
from tests.errors import has_a_next_step
from tests.golden import golden, steady
from tests.unit.tuner.cli import worlds
from tests.unit.tuner.cli.worlds import costly, created, held, operations, proposed
from tests.unit.tuner.study.worlds import World, truth
from tuner.cli.app import main
from tuner.cli.fleet import device as devices
from tuner.cli.run import results
from tuner.cli.run import run as running
from tuner.cli.run.results import Result
from tuner.cli.runfile import RunJob
from tuner.core import (
    Bill,
    Exploration,
    Level,
    Limit,
    MaintenanceWindow,
    Metric,
    Outcome,
    Phase,
    Plan,
    Safety,
    Setting,
    TrialState,
)
from tuner.main import utc_now
from tuner.presentation.documents import COLUMNS, ReportedStudy, overview
from tuner.presentation.reports import account, verdict
from tuner.presentation.standing import (
    StudyOutcome,
    applied_now,
    last_change,
    next_step,
    sentence,
    status,
    status_reason,
    waiting,
)
from tuner.presentation.texts import billed, gained
from tuner.service.operations import Operations
from tuner.wire import Change, ConstraintChange, Decision, ExplorationChange, Poll, StudyDraft

Ask = Callable[..., tuple[int, str, str]]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    url = f"sqlite:///{tmp_path / worlds.FILE}"
    monkeypatch.setenv("JOULETUNE_DB", url)
    monkeypatch.setenv("COLUMNS", "240")
    monkeypatch.setenv("LOGNAME", "ann")
    monkeypatch.chdir(tmp_path)
    made = open_store(url)
    yield made
    made.close()


@pytest.fixture
def ask(store: Store, capsys: pytest.CaptureFixture[str]) -> Ask:
    def answer(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        return (code, *capsys.readouterr())

    return answer


def polled(verbs: Operations, level: Level = Level.ORIGINAL) -> object:
    return verbs.loop.order("sim", Poll(agent="host", applied=applied(level=level)))


def seen_now(store: Store, for_s: float = 0.0) -> None:
    """Set the device's last contact to `for_s` seconds from now, so that it counts as online."""
    seen_at = utc_now() + timedelta(seconds=for_s)
    store.devices.put(replace(store.devices.get("sim"), seen_at=seen_at))


def test_an_unreachable_limit_is_shown_in_list_and_show(store: Store, ask: Ask) -> None:
    verbs = worlds.operations(store)
    limit = ("latency_p99_ms <= 50",)
    name = verbs.create(StudyDraft(devices=("sim",), constraints=limit, policy="scripted")).id
    worlds.tune(verbs)
    golden("study list", "a limit not met", steady(ask("study", "list")[1], STUDY=name))
    golden("study show", "a limit not met", steady(ask("study", "show", name)[1], STUDY=name))
    row = json.loads(ask("study", "list", "--json")[1])[0]
    assert (row["phase"], row["unmet"]["value"]) == ("holding", 50.0)


def test_the_state_from_before_a_silence_is_not_shown_as_present(store: Store, ask: Ask) -> None:
    verbs = worlds.operations(store)
    name = worlds.created(verbs)
    worlds.tune(verbs)
    polled(verbs, Level.HOLD)
    seen_now(store)
    assert "offline" not in ask("device", "list")[1] + ask("study", "list")[1]
    worlds.operations(store)  # registers it with a time long ago
    golden("device list", "offline in a hold", steady(ask("device", "list")[1], STUDY=name))
    golden("study list", "offline in a hold", steady(ask("study", "list")[1], STUDY=name))
    golden("study show", "offline in a hold", steady(ask("study", "show", name)[1], STUDY=name))
    (view,) = json.loads(ask("device", "list", "--json")[1])
    assert (view["online"], view["last_seen"][:10]) == (False, "2026-01-01")
    assert json.loads(ask("study", "list", "--json")[1])[0]["offline"] == ["sim"]


def test_a_device_that_does_not_come_back_is_forgotten(store: Store, ask: Ask) -> None:
    verbs = worlds.operations(store)
    name = worlds.created(verbs)
    code, _, err = ask("device", "forget", "sim")
    assert (code, name in err, has_a_next_step(err)) == (1, True, True)
    verbs.stop(name, Change())
    seen_now(store)
    code, _, err = ask("device", "forget", "sim")
    assert (code, "sim" in err, has_a_next_step(err)) == (1, True, True)
    worlds.operations(store)
    assert ask("device", "forget", "sim")[0] == 0
    assert json.loads(ask("device", "list", "--json")[1]) == []
    assert json.loads(ask("study", "list", "--json")[1])[0]["id"] == name


def test_a_study_of_energy_is_not_created_without_a_decision_on_constraints(
    store: Store, ask: Ask
) -> None:
    """This holds if no measured latency could be limited; otherwise it is limited, and reported."""
    worlds.operations(store, device(metrics=(Metric("energy_j"),)))
    create = ("study", "create", "--device", "sim", "--policy", "sobol")
    code, _, err = ask(*create)
    assert code == 2
    assert "energy_j" in err and "--no-constraint" in err
    assert ask(*create, "--no-constraint", "--constraint", worlds.LIMIT)[0] == 2
    assert ask(*create, "--no-constraint")[0] == 0


def test_stop_all_waits_for_a_device_that_is_online_but_not_for_ever(
    store: Store, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "WAIT_S", 0.0)
    worlds.operations(store)
    seen_now(store)
    code, out, _ = ask("stop-all", "--yes")
    assert code == 1
    golden("stop-all", "a device that does not report", steady(out))


def test_stop_all_is_done_once_every_device_has_reported_its_original(
    store: Store, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    verbs = worlds.operations(store)
    seen_now(store, 3600.0)
    monkeypatch.setattr("time.sleep", lambda _: polled(verbs))
    code, out, err = ask("stop-all", "--yes")
    assert (code, err) == (0, "stop stored; 0 of 1 confirmed\n")
    golden("stop-all", "every device is back", steady(out))


def test_a_device_is_released_until_the_stop_is_lifted(
    store: Store, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    verbs = worlds.operations(store)
    name = worlds.created(verbs)
    seen_now(store, 3600.0)
    monkeypatch.setattr("time.sleep", lambda _: polled(verbs))
    code, out, _ = ask("device", "release", "si", "--why", "its fan is changed")
    assert code == 0
    shown = out + ask("device", "list")[1] + ask("status")[1] + ask("study", "show", name)[1]
    shown += ask("device", "release", "sim", "--lift")[1] + ask("device", "list")[1]
    golden("device release", "a device that searches", steady(shown, STUDY=name))


def test_while_all_is_stopped_every_command_reports_that_first(store: Store, ask: Ask) -> None:
    verbs = worlds.operations(store)
    name = worlds.created(verbs)
    ask("stop-all", "--yes", "--why", "smoke")
    for command in (["study", "list"], ["study", "show", name], ["device", "list"], ["history"]):
        err = ask(*command)[2]
        assert err.startswith("ALL DEVICES ARE STOPPED") and has_a_next_step(err), command
    assert json.loads(ask("study", "list", "--json")[1])[0]["stopped"] is True
    assert ask("stop-all", "--lift")[0] == 0
    assert ask("study", "list")[2] == ""
    assert ask("stop-all", "--lift")[0] == 0


def noisy(at: Setting) -> Outcome:
    """Only the baseline can be measured."""
    if at == setting():
        return completed()
    return Outcome(state=TrialState.CONTAMINATED, reason="others used the machine")


def never(_: Setting) -> Outcome:
    return Outcome(state=TrialState.CONTAMINATED, reason="others used the machine")


@pytest.mark.parametrize(
    ("surface", "code"), [(worlds.slope, 0), (worlds.flat, 0), (noisy, 1), (never, 1)]
)
def test_a_run_that_could_tune_nothing_does_not_exit_as_if_it_had(
    surface: worlds.Surface, code: int, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    verbs, study = worlds.held(surface)
    job = RunJob(device="cpu", study=study)
    ended = results.outcome(verbs, study, job, device())

    def conducted(*given: object) -> None:
        done = given[4]
        assert callable(done)
        done(Result(job=job, board="A100", cannot={}, main=ended))

    monkeypatch.setattr(running, "conduct", conducted)
    given, out, err = ask("run", "--device", "cpu", "--json")
    assert given == code
    assert json.loads(out)["study"]["id"] == study, "it is reported all the same"
    assert ("nothing could be tuned on sim: " in err) == (code == 1)


def test_a_study_that_gave_up_while_confirming_has_tuned_nothing() -> None:
    verbs, study = worlds.held()
    job = RunJob(device="cpu", study=study)
    assert results.outcome(verbs, study, job, device()).tuned
    verbs.pause(study, Change(who="tuner", why="4 trials in a row failed"))
    ended = results.outcome(verbs, study, job, device())
    assert (ended.report.study.phase, ended.tuned) == (Phase.PAUSED, False)


def test_a_plan_of_several_rows_is_proposed_row_by_row(store: Store, ask: Ask) -> None:
    verbs = worlds.operations(store)
    name = worlds.proposed(verbs, policy="by-load")
    for verb in ("show", "approve"):
        shown = steady(ask("study", verb, name)[1], STUDY=name)
        golden(f"study {verb}", "a proposal of several rows", shown)


def test_a_proposal_is_approved_or_rejected_by_a_word(store: Store, ask: Ask) -> None:
    verbs = worlds.operations(store)
    name = worlds.proposed(verbs)
    code, _, err = ask("study", "approve", name, "--revision", "1")
    assert (code, err.count("\n")) == (1, 1)
    assert "revision 1" in err and has_a_next_step(err)
    code, out, _ = ask("study", "approve", name, "--why", "the bill is high")
    assert (code, name in out, "gpu.clock_mhz=600 batch_size=1" in out) == (0, True, True)
    shown = ask("study", "show", name)[1]
    assert getpass.getuser() in shown and "the bill is high" in shown
    verbs.stop(name, Change())
    other = worlds.proposed(verbs)
    answer = json.loads(ask("study", "reject", other, "--json")[1])
    assert (answer["phase"], answer["plan"]) == ("stopped", None)
    assert ask("study", "reject", other)[0] == 0


def test_a_study_that_only_advises_is_created_by_its_safety(store: Store, ask: Ask) -> None:
    worlds.operations(store)
    create = ("study", "create", "--device", "sim", "--no-constraint", "--safety")
    assert ask(*create, "timid")[0] == 2
    assert json.loads(ask(*create, "advise", "--json")[1])["terms"]["safety"] == "advise"


def test_a_study_that_holds_on_its_canary_only_reports_that(store: Store, ask: Ask) -> None:
    verbs = worlds.operations(store)
    verbs.loop.register(device("other"))
    create = ("study", "create", "--device", "sim", "--no-constraint", "--canary")
    code, _, err = ask(*create, "other")
    assert (code, err.count("\n")) == (2, 1)
    assert "other" in err and has_a_next_step(err)
    both = (*create, "other", "--device", "other", "--json")
    made = json.loads(ask(*both)[1])
    assert made["terms"]["canary"] == "other"
    stored = store.studies.get(made["id"])
    plan = Plan.single(setting(600))
    for phase in (Phase.TUNING, Phase.CONFIRMING, Phase.CANARY):
        stored = store.studies.revise(
            stored.moved(phase, plan), "tuner", "it is so", stored.created_at
        )
    golden("study list", "a canary", steady(ask("study", "list")[1], STUDY=stored.id))
    golden("study show", "a canary", steady(ask("study", "show", stored.id)[1], STUDY=stored.id))


def test_a_report_shows_the_foreign_load_of_its_windows(store: Store, ask: Ask) -> None:
    verbs = worlds.operations(store)
    name = worlds.created(verbs)

    def disturbed(at: Setting) -> Outcome:
        seen = worlds.slope(at)
        assert seen.measurement is not None
        return replace(seen, measurement=replace(seen.measurement, foreign=0.81))

    worlds.tune(verbs, disturbed)
    text = ask("report", name)[1]
    assert "other programs used more than 15.0 % of the machine, up to 81.0 %" in " ".join(
        text.split()
    )


def test_a_list_shows_a_freeze_and_the_awaited_window() -> None:
    verbs = worlds.operations()
    name = worlds.created(verbs)
    nights = Exploration(windows=(MaintenanceWindow("0 22 * * *", 2.0),))
    waits = verbs.set_exploration(name, ExplorationChange(exploration=nights, who="ann"))
    assert (status(waits).endswith("waiting"), waiting(waits)) == (
        True,
        "waits for window Thu 2026-01-01 22:00 UTC",
    )
    frozen = verbs.freeze(name, Change(who="ann", why="release day"))
    assert (status(frozen).endswith("frozen"), waiting(frozen)) == (True, "frozen: release day")


def test_a_hold_needs_no_action_and_shows_its_reason() -> None:
    verbs, study = held()
    view = verbs.study(study)
    assert status(view) == "holding"
    assert next_step(view).startswith("Nothing to do.")
    assert status_reason(view).endswith(".")


def test_the_problem_is_the_status_and_its_remedy_the_next_step() -> None:
    verbs, study = held()
    view = verbs.study(study)
    away = view.model_copy(update={"offline": ("sim",)})
    assert status(away) == "holding, offline" and "Start the agents" in next_step(away)
    halted = view.model_copy(update={"stopped": True})
    assert status(halted) == "holding, stop-all" and "fleet page" in next_step(halted)
    unmet = view.model_copy(update={"unmet": Limit("latency_p99_ms", "<=", 90.0)})
    assert status(unmet) == "limit not met"
    assert "the limit is <= 90.00 ms" in status_reason(unmet)
    assert "Loosen the limit" in next_step(unmet)
    unable = view.model_copy(update={"unable": "the driver hangs"})
    assert next_step(unable) == "Let the device take orders again: the driver hangs"
    faulty = view.model_copy(update={"error": "no plan"})
    assert (status(faulty), status_reason(faulty)) == ("unreadable", "No plan.")


def test_every_phase_has_a_next_step() -> None:
    verbs = operations()
    study = created(verbs)
    assert "the policy may make at most 20" in next_step(verbs.study(study))
    verbs.pause(study, Change(who="ann", why="maintenance"))
    assert next_step(verbs.study(study)) == "Resume the study, or end it."
    verbs.stop(study, Change(who="ann"))
    assert "Create a new study" in next_step(verbs.study(study))
    advised = operations()
    assert "Approve or reject the proposed setting: gpu.clock_mhz=600." in next_step(
        advised.study(proposed(advised))
    )


def test_the_last_change_is_a_persons() -> None:
    verbs, study = held(costly)
    change = last_change(verbs.revisions(study))
    assert change is not None and change.who == "ann"
    second = ConstraintChange(who="bob", why="new SLO", constraints=("latency_p99_ms <= 500",))
    verbs.set_constraints(study, second)
    change = last_change(verbs.revisions(study))
    assert change is not None and (change.who, change.why) == ("bob", "new SLO")
    assert last_change([]) is None


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("confirmed", "Confirmed."),
        ("energy_j fell", "energy_j fell."),
        ("Done.", "Done."),
        ("", ""),
    ],
)
def test_a_sentence_gets_a_capital_and_a_full_stop(text: str, shown: str) -> None:
    assert sentence(text) == shown


def seen(verbs: Operations, study: str) -> ReportedStudy:
    report, revisions = verbs.report(study), verbs.revisions(study)
    outcome = StudyOutcome.of(report, revisions, verbs.trials(study))
    return ReportedStudy(outcome=outcome, front=())


def paused(verbs: Operations, study: str) -> None:
    verbs.pause(study, Change(who="ann"))


def resumed(verbs: Operations, study: str) -> None:
    paused(verbs, study)
    verbs.resume(study, Change(who="ann"))


def stopped(verbs: Operations, study: str) -> None:
    verbs.stop(study, Change(who="ann"))


def all_stopped(verbs: Operations, study: str) -> None:
    verbs.stop_all(Change(who="ann", why="fire"))


def left_alone(verbs: Operations, study: str) -> None:
    pass


@pytest.mark.parametrize(
    ("then", "applied"),
    [
        (left_alone, True),
        (resumed, True),
        (paused, False),
        (stopped, False),
        (all_stopped, False),
    ],
)
def test_a_confirmed_setting_stays_confirmed_whether_or_not_it_is_applied(
    then: Callable[[Operations, str], None], applied: bool
) -> None:
    verbs, study = worlds.held()
    then(verbs, study)
    one = seen(verbs, study)
    view = one.outcome.report.study
    assert view.confirmed == worlds.BEST == one.outcome.held and one.outcome.won
    assert applied_now(view) is applied
    lines = "\n".join([*verdict(one.outcome), *account(one.outcome)])
    assert "No setting won" not in lines and "does not pay off" not in lines
    assert ("not applied now" not in lines) is applied
    assert ("would pay off" not in lines) is applied
    assert gained(one.outcome.report).startswith("saves" if applied else "would save")
    (row,) = overview([one])
    assert (row[COLUMNS.index(">saving")] != "–") is applied


def test_a_proposal_is_confirmed_and_not_applied_until_it_is_approved() -> None:
    verbs = worlds.operations()
    study = worlds.proposed(verbs)
    view = verbs.study(study)
    assert (view.confirmed, applied_now(view)) == (worlds.BEST, False)
    paused(verbs, study)
    assert verbs.study(study).confirmed == worlds.BEST
    verbs.resume(study, Change(who="ann"))
    verbs.approve(study, Decision(who="ann"))
    assert applied_now(verbs.study(study))


def test_before_any_confirmation_the_bill_reports_that_it_does_not_pay_yet() -> None:
    verbs = worlds.operations()
    study = worlds.created(verbs, safety=Safety.BALANCED)
    one = seen(verbs, study)
    view = one.outcome.report.study
    assert view.confirmed is None and not applied_now(view)
    assert billed(Bill(explored_j=1.0), view).endswith("yet: no setting is confirmed yet")


def test_a_new_search_has_none_of_the_reasons_of_the_one_before() -> None:
    world = World()
    world.start()
    world.run(truth)
    world.loop.changes.start_over(world.store.studies.get("s1"), "another driver")
    verbs = Operations(world.loop)
    again = StudyOutcome.of(verbs.report("s1"), verbs.revisions("s1"), verbs.trials("s1"))
    assert (again.why, again.proposed) == ("another driver", "")
