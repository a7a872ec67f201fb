"""An agent with a full disk, with a lost report, or stopped by its operator."""

from __future__ import annotations

import errno
import os
import threading
import time as real_time
from collections.abc import Mapping
from pathlib import Path

import httpx2
import pytest

from agents.holding.journal import Journal
from tests.fakes import Rig, failing, steady
from tests.unit.agents.agent.orders import HELD, ORIGINAL, cut, ends, hold, trial
from tuner.core import Estimate
from tuner.wire import Release, Reverted

FULL = failing(errno.ENOSPC)


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    rig = Rig(tmp_path)
    rig.device.now["gpu.clock_mhz"] = 800
    return rig


def polled(rig: Rig) -> list[str]:
    return [poll["unable"] for poll in rig.tuner.told("/next")]


def test_a_hold_ends_on_a_full_disk_and_is_reported(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = rig.agent()
    rig.tuner.orders = [hold(), Release(why="the study was stopped")]
    agent.step()
    monkeypatch.setattr(os, "fsync", FULL)
    agent.step()
    assert rig.setting == ORIGINAL
    agent.step()
    assert ends(rig) == ["the study was stopped"]


def test_an_slo_broken_on_a_full_disk_ends_the_hold_for_good(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = rig.agent()
    rig.tuner.orders = [hold()]
    agent.step()
    rig.shows = steady(p99_ms=60.0)
    rig.tuner.broken = cut
    with monkeypatch.context() as full:
        full.setattr(os, "fsync", FULL)
        while rig.time.monotonic() < 400.0 and rig.setting != ORIGINAL:
            agent.step()
    assert rig.setting == ORIGINAL
    killed = rig.agent()
    killed.begin()
    assert rig.setting == ORIGINAL, "killed before it could be written"
    rig.tuner.broken = lambda _: None
    while not ends(rig):
        agent.step()
    assert "in 3 windows in a row" in ends(rig)[0]


def test_a_trial_report_reaches_the_tuner_past_a_full_disk(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shows(began: float, now: float) -> Mapping[str, float | Estimate]:
        monkeypatch.setattr(os, "fsync", FULL)
        return steady()(began, now)

    rig.shows = shows
    rig.tuner.orders = [trial()]
    agent = rig.agent()
    agent.step()
    assert rig.setting == ORIGINAL
    agent.step()
    (report,) = rig.tuner.told("/trials/report")
    assert report["outcome"]["state"] == "completed"


def test_a_trial_over_a_hold_goes_back_to_it_on_a_full_disk(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = rig.agent()
    rig.tuner.orders = [hold(), trial(revision=2)]
    agent.step()
    monkeypatch.setattr(os, "fsync", FULL)
    agent.step()
    assert {"gpu.clock_mhz": 400} in [s for _, s in rig.log]
    assert rig.setting == HELD


def test_while_the_disk_is_full_the_tuner_is_notified_and_nothing_is_tried(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = rig.agent()
    rig.tuner.orders = [trial()]
    with monkeypatch.context() as full:
        full.setattr(os, "fsync", FULL)
        agent.step()
        agent.step()
    agent.step()
    assert rig.log == []
    (report,) = rig.tuner.told("/trials/report")
    assert report["outcome"]["state"] == "aborted"
    assert "nothing was changed" in report["outcome"]["reason"]
    reasons = polled(rig)
    assert (reasons[0], reasons[2]) == ("", "")
    assert "host cannot write" in reasons[1] and "free space" in reasons[1]


@pytest.mark.promise("the network fails, or a proxy answers instead of the tuner")
def test_a_hold_whose_end_got_lost_is_declined_with_its_end(rig: Rig) -> None:
    agent = rig.agent()
    rig.tuner.orders = [hold(), Release(why="enough")]
    for _ in range(3):
        agent.step()
    assert ends(rig) == ["enough"]
    rig.tuner.orders = [hold()]
    for _ in range(2):
        agent.step()
    assert rig.setting == ORIGINAL
    assert ends(rig) == ["enough", "enough"]


def test_a_device_that_must_stay_is_restored_and_takes_no_order(rig: Rig) -> None:
    agent = rig.agent()
    rig.tuner.orders = [hold()]
    agent.step()
    rig.journal.stay()
    rig.tuner.orders = [trial(), hold(2)]
    for _ in range(3):
        agent.step()
    assert rig.setting == ORIGINAL
    assert rig.tuner.told("/trials/report") == [] and ends(rig) == []
    why = polled(rig)[-1]
    assert "an operator reverted every device of host" in why
    assert "lift it with `jouletune agent revert --lift` on host" in why
    again = rig.agent()
    again.begin()
    assert rig.setting == ORIGINAL
    rig.journal.lift()
    rig.tuner.orders = [hold()]
    again.step()
    assert rig.setting == HELD, "the same hold, taken up again"


def test_a_stay_ends_the_trial_under_way(rig: Rig) -> None:
    def shows(began: float, now: float) -> Mapping[str, float | Estimate]:
        rig.journal.stay()
        return steady()(began, now)

    rig.shows = shows
    rig.tuner.orders = [trial()]
    agent = rig.agent()
    agent.step()
    assert rig.setting == ORIGINAL
    agent.step()
    (report,) = rig.tuner.told("/trials/report")
    assert report["outcome"]["state"] == "aborted"
    assert "at its original setting" in report["outcome"]["reason"]


def test_a_stay_ends_the_hold_while_the_loop_waits_for_the_tuner(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    waited, answered = threading.Event(), threading.Event()

    def answer(request: httpx2.Request) -> None:
        if request.url.path.endswith("/next") and not rig.tuner.orders:
            waited.set()
            answered.wait(30.0)

    rig.tuner.broken = answer
    rig.tuner.orders = [hold(observe_s=1e6)]
    work = threading.Thread(target=rig.agent().run)
    work.start()
    assert waited.wait(30.0)
    assert rig.setting == HELD
    rig.journal.stay()
    end = real_time.monotonic() + 30.0
    while rig.setting != ORIGINAL and real_time.monotonic() < end:
        real_time.sleep(0.01)
    assert rig.setting == ORIGINAL
    rig.stop.set()
    answered.set()
    work.join(30.0)
    assert "event=stays_original device=fake@host" in caplog.text


def test_nothing_is_taken_up_before_the_tuner_knows_of_a_revert(rig: Rig) -> None:
    rig.spool.put(Reverted(device="fake@host", why="an operator reverted it back"))
    rig.tuner.broken = lambda r: cut(r) if r.url.path.endswith("/reverts") else None
    rig.tuner.orders = [trial()]
    agent = rig.agent()
    for _ in range(3):
        agent.step()
    assert rig.tuner.told("/next") == []
    rig.tuner.broken = lambda _: None
    agent.step()
    paths = [path for path, _ in rig.tuner.heard]
    assert paths.index("/v1/reverts") < paths.index("/v1/devices/fake@host/next")


@pytest.mark.parametrize("unreadable", [".journal", ".hold.json"])
def test_a_hold_that_cannot_be_read_at_the_start_is_taken_up_once_it_can_be(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, unreadable: str
) -> None:
    rig.tuner.orders = [hold()]
    rig.agent().step()
    rig.target.apply({"gpu.clock_mhz": 400, "batch_size": 4})
    rig.journal = Journal(rig.folder / "journal")
    read = Path.read_bytes

    def unreadable_now(path: Path) -> bytes:
        if path.name.endswith(unreadable):
            raise OSError(errno.EIO, "Input/output error")
        return read(path)

    with monkeypatch.context() as broken:
        broken.setattr(Path, "read_bytes", unreadable_now)
        agent = rig.agent()
        agent.begin()
        agent.step()
    agent.step()
    assert rig.setting == HELD
    assert ends(rig) == []
