from __future__ import annotations

import itertools
import shutil
import threading
import time as real_time
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest

from agents.target.target import Target
from tests.errors import raised
from tests.fakes import FakeActuator, Rig, refusal, refused, steady
from tests.unit.agents.agent.orders import HELD, ORIGINAL, TRIED, cut, ends, hold, trial
from tuner.core import (
    Estimate,
    InvalidInput,
    ProtocolMismatch,
    Space,
    Unauthorised,
)
from tuner.wire import Release


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    rig = Rig(tmp_path)
    rig.device.now["gpu.clock_mhz"] = 800
    return rig


def windows(rig: Rig) -> list[dict[str, Any]]:
    return [m for m in rig.tuner.told("/holds/report") if m["measurement"] is not None]


def test_a_trial_is_measured_put_back_and_reported(rig: Rig) -> None:
    agent = rig.agent()
    rig.tuner.orders = [trial()]
    agent.step()
    assert rig.setting == ORIGINAL
    assert rig.journal.get("fake@host") is None
    agent.step()
    (report,) = rig.tuner.told("/trials/report")
    assert (report["study"], report["trial"], report["token"]) == ("s1", 1, 1)
    assert report["outcome"]["state"] == "completed"
    assert report["outcome"]["measurement"]["estimates"]["energy_j"]["mean"] == pytest.approx(
        2.0, rel=0.01
    )


def test_a_measurement_that_no_message_can_carry_fails_its_trial(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Target, "source", lambda *_: "x" * 10**6)
    agent = rig.agent()
    rig.tuner.orders = [trial()]
    agent.step()
    agent.step()
    (report,) = rig.tuner.told("/trials/report")
    assert report["outcome"]["state"] == "failed" and rig.setting == ORIGINAL
    assert "cannot be reported: energy_j: more than" in report["outcome"]["reason"]


def test_a_journal_deleted_during_a_trial_leaves_nothing_throttled(rig: Rig) -> None:
    folder = rig.folder / "journal"

    def shows(began: float, now: float) -> Mapping[str, float | Estimate]:
        shutil.rmtree(folder, ignore_errors=True)
        return steady()(began, now)

    rig.shows = shows
    agent = rig.agent()
    rig.tuner.orders = [trial()]
    agent.step()
    assert rig.setting == ORIGINAL


def test_a_journal_deleted_during_a_hold_is_written_again(rig: Rig) -> None:
    agent = rig.agent()
    rig.tuner.orders = [hold()]
    agent.step()
    (path,) = (rig.folder / "journal").glob("*.journal")
    text = path.read_text()
    path.unlink()
    agent.step()
    assert path.read_text() == text


def test_it_registers_once_and_reports_its_state(rig: Rig) -> None:
    agent = rig.agent()
    rig.tuner.orders = [hold()]
    for _ in range(3):
        agent.step()
    assert [path for path, _ in rig.tuner.heard].count("/v1/devices/fake@host") == 1
    polls = rig.tuner.told("/next")
    assert {poll["agent"] for poll in polls} == {"agent@host/start-1"}
    assert polls[0]["applied"]["level"] == "original" and polls[0]["holding"] == ""
    assert polls[1]["applied"]["level"] == "hold"
    assert (polls[1]["holding"], polls[1]["revision"]) == ("s1", 1)
    assert polls[1]["applied"]["setting"] == HELD


def test_a_setting_that_breaks_a_limit_is_left_at_once(rig: Rig) -> None:
    rig.shows = steady(p99_ms=100.0)
    agent = rig.agent()
    rig.tuner.orders = [trial()]
    agent.step()
    agent.step()
    (report,) = rig.tuner.told("/trials/report")
    assert report["outcome"]["broke"]["metric"] == "latency_p99_ms"
    assert rig.setting == ORIGINAL


def test_between_trials_the_device_is_at_the_hold(rig: Rig) -> None:
    agent = rig.agent()
    rig.tuner.orders = [hold(), trial(revision=2)]
    agent.step()
    agent.step()
    assert {"gpu.clock_mhz": 400} in [s for _, s in rig.log]
    assert rig.setting == HELD
    agent.step()
    agent.step()
    assert windows(rig)[1]["speaks_s"] < 60.0, "it does not speak for the trial"


def test_a_trial_of_another_study_ends_the_hold(rig: Rig) -> None:
    agent = rig.agent()
    rig.tuner.orders = [hold(), trial(study="s2")]
    for _ in range(3):
        agent.step()
    assert ends(rig) == ["study s2 has the device now"]
    assert rig.setting == ORIGINAL


def test_a_lost_lease_ends_the_trial_and_puts_the_device_back(rig: Rig) -> None:
    """The renewal runs in real time, so the window waits in real time until it is refused."""

    def shows(began: float, now: float) -> Mapping[str, float | Estimate]:
        for renewing in [t for t in threading.enumerate() if t.name == "lease"]:
            renewing.join(30.0)
        return steady()(began, now)

    def answer(request: httpx2.Request) -> httpx2.Response | None:
        if not request.url.path.endswith("/renew"):
            return None
        return refusal(409, "stale_token", "token 1 is not in force")

    rig.shows = shows
    rig.tuner.broken = answer
    rig.tuner.orders = [trial(lease_s=0.03)]
    agent = rig.agent()
    agent.step()
    agent.step()
    (report,) = rig.tuner.told("/trials/report")
    assert report["outcome"]["state"] == "aborted"
    assert "token 1 is not in force" in report["outcome"]["reason"]
    assert rig.setting == ORIGINAL


def test_a_tuner_out_of_reach_does_not_end_a_trial(rig: Rig) -> None:
    tried: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response | None:
        if request.url.path.endswith("/renew"):
            tried.append("renew")
            return cut(request)
        return None

    def shows(began: float, now: float) -> Mapping[str, float | Estimate]:
        deadline = real_time.monotonic() + 5.0
        while len(tried) < 2 and real_time.monotonic() < deadline:
            real_time.sleep(0.005)
        return steady()(began, now)

    rig.shows, rig.tuner.broken = shows, answer
    rig.tuner.orders = [trial(lease_s=0.03)]
    agent = rig.agent()
    agent.step()
    agent.step()
    (report,) = rig.tuner.told("/trials/report")
    assert report["outcome"]["state"] == "completed"


def test_a_report_waits_on_disk_for_the_tuner_and_goes_first(rig: Rig) -> None:
    agent = rig.agent()
    rig.tuner.orders = [trial()]
    agent.step()
    rig.tuner.broken = cut
    for _ in range(3):
        agent.step()
    assert rig.tuner.told("/trials/report") == []
    rig.tuner.broken = lambda _: None
    rig.tuner.heard.clear()
    again = rig.agent()
    again.begin()
    again.step()
    paths = [path for path, _ in rig.tuner.heard]
    assert paths[0] == "/v1/trials/report" and paths.count("/v1/trials/report") == 1


def test_waiting_for_the_tuner_grows_but_never_spins(rig: Rig) -> None:
    rig.tuner.broken = cut
    agent = rig.agent()
    waits: list[float] = []
    for _ in range(10):
        began = rig.time.monotonic()
        agent.step()
        waits.append(rig.time.monotonic() - began)
    assert all(w >= 0.2 for w in waits)
    assert max(waits) <= 30.0 and waits[-1] > 10 * waits[0]


def test_answers_that_change_nothing_are_paced(rig: Rig) -> None:
    agent = rig.agent()
    rig.tuner.orders = [Release() for _ in range(5)]
    for _ in range(5):
        agent.step()
    assert rig.time.monotonic() >= 5.0


def test_a_forgotten_device_introduces_itself_again(rig: Rig) -> None:
    agent = rig.agent()
    agent.step()
    rig.tuner.broken = lambda r: refusal(404, "not_found") if r.url.path.endswith("/next") else None
    agent.step()
    rig.tuner.broken = lambda _: None
    agent.step()
    assert [path for path, _ in rig.tuner.heard].count("/v1/devices/fake@host") == 2


def test_a_crash_in_a_trial_is_undone_at_the_next_start(rig: Rig) -> None:
    rig.journal.record("fake@host", rig.target, "trial", "boot-1", {"spec": "fake"})  # type: ignore[arg-type]
    rig.target.apply(TRIED)
    rig.tuner.broken = cut
    rig.agent().begin()
    assert rig.setting == ORIGINAL


def test_a_crash_while_holding_keeps_the_setting_without_the_tuner(rig: Rig) -> None:
    first = rig.agent()
    rig.tuner.orders = [hold()]
    first.step()
    rig.tuner.broken = cut
    rig.device.now["gpu.clock_mhz"] = 1000
    agent = rig.agent()
    agent.begin()
    assert rig.setting == HELD
    for _ in range(20):
        agent.step()
    assert rig.setting == HELD


def test_windows_are_due_by_the_hosts_clock(rig: Rig) -> None:
    agent = rig.agent()
    rig.tuner.orders = [hold()]
    while rig.time.monotonic() < 400.0:
        agent.step()
    assert len(windows(rig)) == 6
    assert windows(rig)[0]["setting"] == HELD
    assert windows(rig)[0]["measurement"]["load"]["completed"] > 400


def test_windows_of_a_silent_tuner_are_kept_for_it(rig: Rig) -> None:
    agent = rig.agent()
    rig.tuner.orders = [hold()]
    agent.step()
    rig.tuner.broken = cut
    while rig.time.monotonic() < 300.0:
        agent.step()
    rig.tuner.broken = lambda _: None
    while not windows(rig):
        agent.step()
    assert len(windows(rig)) >= 3


def test_after_hours_without_a_tuner_every_window_arrives_once_in_its_order(rig: Rig) -> None:
    agent = rig.agent()
    rig.tuner.orders = [hold(valid_for_s=24.0 * 3600.0)]
    agent.step()
    rig.tuner.broken = cut
    while rig.time.monotonic() < 4.0 * 3600.0:
        agent.step()
    assert rig.setting == HELD, "nobody is throttled or let go of for a network"
    assert not windows(rig)
    rig.tuner.broken = lambda _: None
    until_s = rig.time.monotonic() + 600.0
    while rig.time.monotonic() < until_s:
        agent.step()
    began = [datetime.fromisoformat(w["measurement"]["started_at"]) for w in windows(rig)]
    assert began == sorted(set(began))
    assert (began[-1] - began[0]).total_seconds() > 4.0 * 3600.0
    apart = [(after - at).total_seconds() for at, after in itertools.pairwise(began)]
    assert max(apart) < 120.0, "a window was lost"


def test_three_broken_windows_end_the_hold(rig: Rig) -> None:
    agent = rig.agent()
    rig.tuner.orders = [hold()]
    agent.step()
    rig.shows = steady(p99_ms=60.0)
    while rig.time.monotonic() < 300.0 and not ends(rig):
        agent.step()
    assert ends(rig) == ["latency_p99_ms was 60, the limit is <= 50 in 3 windows in a row"]
    assert len(windows(rig)) == 3
    assert rig.setting == ORIGINAL


def test_of_windows_within_the_limits_the_requested_number_is_reported(rig: Rig) -> None:
    agent = rig.agent()
    rig.tuner.orders = [hold(observe_s=10.0, report_s=100.0)]
    agent.step()
    while rig.time.monotonic() < 250.0:
        agent.step()
    reported = len(windows(rig))
    assert 2 <= reported <= 4
    rig.shows = steady(p99_ms=60.0)
    while not ends(rig):
        agent.step()
    assert len(windows(rig)) >= reported + 3, "each that breaks a limit is told"


def test_a_hold_that_ended_here_is_not_taken_up_again(rig: Rig) -> None:
    agent = rig.agent()
    rig.shows = steady(p99_ms=60.0)
    rig.tuner.orders = [hold(observe_s=1.0)]
    while not ends(rig):
        agent.step()
    rig.tuner.orders = [hold(observe_s=1.0)] * 3
    began = rig.time.monotonic()
    for _ in range(3):
        agent.step()
    assert rig.setting == ORIGINAL
    assert rig.time.monotonic() - began > 0.5
    rig.shows = steady()
    rig.tuner.orders = [hold(revision=2)]
    agent.step()
    assert rig.setting == HELD


def test_an_unrenewed_hold_ends(rig: Rig) -> None:
    agent = rig.agent()
    rig.tuner.orders = [hold(valid_for_s=100.0)]
    agent.step()
    rig.tuner.broken = cut
    while rig.time.monotonic() < 150.0:
        agent.step()
    assert rig.setting == ORIGINAL
    rig.tuner.broken = lambda _: None
    while not ends(rig):
        agent.step()
    assert "unreachable for 100 s" in ends(rig)[0]


def test_the_first_window_does_not_speak_for_the_agents_start(rig: Rig) -> None:
    agent = rig.agent()
    rig.tuner.orders = [hold()]
    agent.step()
    again = rig.agent()
    rig.time.sleep(50.0)
    again.begin()
    again.step()
    assert windows(rig)[-1]["speaks_s"] < 20.0


def test_a_changed_driver_ends_the_hold_at_the_start(rig: Rig) -> None:
    agent = rig.agent()
    rig.tuner.orders = [hold()]
    agent.step()
    rig.driver = "driver 2"
    again = rig.agent()
    again.begin()
    assert rig.setting == ORIGINAL
    again.step()
    assert ends(rig) == ["the driver changed from driver 1 to driver 2"]


def test_a_hold_that_cannot_be_applied_ends(rig: Rig) -> None:
    rig.device.refuse = lambda s: refused("stuck") if s["gpu.clock_mhz"] == 600 else None
    agent = rig.agent()
    rig.tuner.orders = [hold()]
    agent.step()
    agent.step()
    assert "stuck" in ends(rig)[0]
    assert rig.setting == ORIGINAL


def test_a_foreign_change_ends_a_hold(rig: Rig) -> None:
    agent = rig.agent()
    rig.tuner.orders = [hold()]
    agent.step()
    rig.device.now["gpu.clock_mhz"] = 1000
    while not ends(rig):
        agent.step()
    assert "gpu.clock_mhz became 1000" in ends(rig)[0]


def test_a_batch_jobs_setting_is_not_a_foreign_change(rig: Rig) -> None:
    agent = rig.agent()
    rig.tuner.orders = [hold()]
    agent.step()
    rig.device.job, rig.device.now["gpu.clock_mhz"] = "12-0", 1000
    rig.tuner.orders = [trial(revision=2), hold(revision=2)]
    for _ in range(4):
        agent.step()
        assert "job 12-0" in rig.tuner.told("/next")[-1]["unable"]
    assert (ends(rig), rig.tuner.told("/trials/report")) == ([], [])
    assert rig.setting["gpu.clock_mhz"] == 1000
    rig.time.sleep(60.0)
    rig.device.job = ""
    agent.step()
    assert (ends(rig), rig.setting) == ([], HELD)
    assert rig.tuner.told("/next")[-1]["unable"] == ""
    assert windows(rig)[0]["speaks_s"] < 20.0, "it does not speak for the job"


def test_a_batch_job_aborts_a_trial_and_the_setting_of_before_waits_for_its_end(rig: Rig) -> None:
    def shows(began: float, now: float) -> Mapping[str, float | Estimate]:
        rig.device.job = "12-0"
        return steady()(began, now)

    agent = rig.agent()
    rig.tuner.orders = [trial()]
    rig.shows = shows
    agent.step()
    agent.step()
    (report,) = rig.tuner.told("/trials/report")
    assert report["outcome"]["state"] == "aborted" and "12-0" in report["outcome"]["reason"]
    assert rig.setting == ORIGINAL


@pytest.mark.parametrize("knows", [True, False])
def test_a_workload_restarted_in_a_window_is_not_a_foreign_change(rig: Rig, knows: bool) -> None:
    """The workload reports its start: the hold continues, and is in force again after the window."""
    start = {"word": "first"}
    rig.incarnation = (lambda: start["word"]) if knows else None
    agent = rig.agent()
    rig.tuner.orders = [hold()]
    agent.step()
    held = rig.setting

    def restarts(began: float, now: float) -> Mapping[str, float | Estimate]:
        start["word"] = "second"
        rig.work.now["batch_size"] = 1
        return steady()(began, now)

    rig.shows = restarts
    agent.step()
    if knows:
        assert ends(rig) == []
        assert rig.setting == held
    else:
        assert "another process changed it" in ends(rig)[0]
        assert rig.setting == ORIGINAL


def test_a_window_that_shows_nothing_ends_no_hold(rig: Rig) -> None:
    agent = rig.agent()
    rig.tuner.orders = [hold()]
    agent.step()
    rig.shows = steady(per_s=0.0)
    while rig.time.monotonic() < 400.0:
        agent.step()
    assert rig.setting == HELD and ends(rig) == [] and windows(rig) == []


def test_a_released_device_goes_back(rig: Rig) -> None:
    agent = rig.agent()
    rig.tuner.orders = [hold(), Release(why="the study was stopped"), Release()]
    for _ in range(4):
        agent.step()
    assert rig.setting == ORIGINAL
    assert ends(rig) == ["the study was stopped"]


def test_a_stop_in_a_trial_restores_the_device_and_reports_it(rig: Rig) -> None:
    def shows(began: float, now: float) -> Mapping[str, float | Estimate]:
        if now > 8.0:
            rig.stop.set()
        return steady()(began, now)

    rig.shows = shows
    rig.tuner.orders = [trial()]
    rig.agent().run()
    (report,) = rig.tuner.told("/trials/report")
    assert report["outcome"]["state"] == "aborted"
    assert "the agent was stopped" in report["outcome"]["reason"]
    assert rig.setting == ORIGINAL


def test_a_stop_leaves_the_hold_in_force(rig: Rig) -> None:
    def answer(request: httpx2.Request) -> None:
        if request.url.path.endswith("/holds/report"):
            rig.stop.set()

    rig.tuner.broken = answer
    rig.tuner.orders = [hold()]
    rig.agent().run()
    assert rig.setting == HELD and ends(rig) == []
    assert rig.journal.get("fake@host") is not None


def test_a_failed_restore_is_repaired_first_and_reported(rig: Rig) -> None:
    agent = rig.agent()
    rig.tuner.orders = [trial(), trial(2)]
    rig.device.refuse = lambda s: refused("stuck") if s["gpu.clock_mhz"] == 800 else None
    agent.step()
    assert rig.setting["gpu.clock_mhz"] == 400
    agent.step()
    assert len(rig.tuner.told("/next")) == 2
    assert rig.setting["gpu.clock_mhz"] == 400
    poll = rig.tuner.told("/next")[-1]
    assert (poll["applied"]["level"], "stuck" in poll["unable"]) == ("trial", True)
    rig.device.refuse = lambda s: None
    agent.step()
    assert len(rig.tuner.told("/next")) == 3
    assert rig.setting == ORIGINAL
    assert rig.tuner.told("/next")[-1]["unable"] == ""


def test_a_setting_that_cannot_be_journalled_is_not_tried(rig: Rig) -> None:
    agent = rig.agent()
    (rig.folder / "journal").write_text("a file where a folder should be")
    rig.tuner.orders = [trial()]
    rig.journal.get = lambda device: None  # type: ignore[method-assign]
    agent.step()
    assert rig.log == []


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (refusal(401, "unauthorised"), Unauthorised),
        (refusal(426, "protocol"), ProtocolMismatch),
        (refusal(422, "invalid_input"), InvalidInput),
    ],
)
def test_a_tuner_that_refuses_the_agent_at_first_ends_it(
    rig: Rig, answer: httpx2.Response, error: type[Exception]
) -> None:
    rig.tuner.broken = lambda _: answer
    with pytest.raises(error):
        rig.agent().run()


def test_a_tuner_that_refuses_the_agent_later_ends_it_too(rig: Rig) -> None:
    agent = rig.agent()
    rig.tuner.broken = cut
    agent.step()
    rig.tuner.broken = lambda _: refusal(401, "unauthorised", "the token is wrong")
    with raised(Unauthorised, "token"):
        agent.step()


def test_trouble_is_logged_once_as_long_as_it_stays_the_same(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    agent = rig.agent()
    rig.tuner.broken = cut
    for _ in range(5):
        agent.step()
    rig.tuner.broken = lambda _: refusal(503, "store", "the database is away")
    agent.step()
    errors = [r.getMessage() for r in caplog.records if r.levelname == "ERROR"]
    assert len(errors) == 2
    assert "no route" in errors[0] and "the database is away" in errors[1]


def test_a_hold_outlives_a_token_that_no_longer_fits(rig: Rig) -> None:
    rig.tuner.orders = [hold()]
    rig.agent().step()
    rig.tuner.broken = lambda _: refusal(401, "unauthorised")
    agent = rig.agent()
    agent.begin()
    began = rig.time.monotonic()
    for _ in range(5):
        agent.step()
    assert rig.setting == HELD
    assert rig.time.monotonic() - began > 5 * 15.0


def test_a_refused_knob_is_reported_before_the_next_trial(rig: Rig) -> None:
    class Narrowing(FakeActuator):
        why: str = ""

        def left(self) -> tuple[Space, Mapping[str, str]]:
            (clock,) = self.space.knobs
            kept = replace(clock, values=(clock.default,) if self.why else clock.values)
            return Space((kept,)), {clock.name: self.why} if self.why else {}

    narrowing = Narrowing("device", rig.device_space, rig.log)
    rig.device = narrowing
    agent = rig.agent()
    agent.step()
    narrowing.why = "Not Supported"
    agent.step()
    agent.step()
    first, second = rig.tuner.told("/devices/fake@host")
    assert len(first["device"]["space"]["knobs"][0]["values"]) > 1
    assert len(second["device"]["space"]["knobs"][0]["values"]) == 1
    assert second["device"]["cannot"]["gpu.clock_mhz"] == "Not Supported"
