from __future__ import annotations

import errno
import json
import os
import threading
import time
from pathlib import Path

import pytest

from agents.devices import catalogue
from agents.holding.journal import Journal
from agents.main import open_target
from agents.revert import lift, revert, stay
from agents.tuner_link.spool import Spool
from tests.errors import raised
from tests.fakes import failing
from tests.unit.agents.left_behind import A100, DEVICE, HELD, hold
from tuner import files
from tuner.core import (
    ActuationError,
    Conflict,
    DeviceLost,
    Level,
    NotFound,
    Setting,
    StoreError,
)


def in_force(state: Path) -> Setting:
    return open_target(A100, DEVICE, 0, state, Path("/")).read()


def told(state: Path) -> list[dict[str, str]]:
    """Return the unsent reports."""
    return [json.loads(path.read_text()) for path in Spool(state / "spool").waiting()]


def test_reverting_ends_the_hold_restores_the_originals_and_notifies_the_tuner(
    tmp_path: Path,
) -> None:
    before = hold(tmp_path)
    assert in_force(tmp_path) == HELD
    assert revert(tmp_path) == [DEVICE]
    assert in_force(tmp_path) == before
    assert revert(tmp_path) == []
    (word,) = told(tmp_path)
    assert word["device"] == DEVICE
    assert f"an operator reverted {DEVICE} on " in word["why"]
    assert list((tmp_path / "holds").iterdir()) == []


def test_reverting_goes_on_after_a_failure(tmp_path: Path) -> None:
    before = hold(tmp_path)
    journal = tmp_path / "journal"
    record(journal, "another@host", "simulated:no-such")
    (journal / "unknown@host.journal").write_text("")
    with raised(ActuationError, "no-such"):
        revert(tmp_path)
    assert in_force(tmp_path) == before


def record(folder: Path, device: str, spec: str) -> None:
    """Record a device in a journal, like an agent with another device."""
    target = open_target(A100, DEVICE, 0, folder.parent, Path("/"))
    Journal(folder).record(device, target, Level.TRIAL, "boot-1", {"spec": spec})


def test_reverting_without_a_state_folder_is_an_error_that_creates_nothing(tmp_path: Path) -> None:
    for command in (revert, stay, lift):
        with raised(NotFound, "--config"):
            command(tmp_path / "never used")
    assert list(tmp_path.iterdir()) == []


def test_a_running_agent_is_named_with_the_way_out(tmp_path: Path) -> None:
    with (
        files.lock(tmp_path, "agent"),
        raised(Conflict, "--stay"),
    ):
        revert(tmp_path)
    assert revert(tmp_path) == []


def test_a_full_disk_stops_no_revert_and_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the report to the tuner cannot be written; the simulated device has its own file."""
    before = hold(tmp_path)
    sync = os.fsync

    def full(handle: int) -> None:
        if "/devices/" not in str(Path(f"/proc/self/fd/{handle}").readlink()):
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(handle)

    monkeypatch.setattr(os, "fsync", full)
    with raised(StoreError, DEVICE):
        revert(tmp_path)
    assert in_force(tmp_path) == before
    assert list((tmp_path / "journal").iterdir()) == []
    assert list((tmp_path / "holds").iterdir()) == []


def test_staying_without_an_agent_puts_back_and_pauses_nothing(tmp_path: Path) -> None:
    before = hold(tmp_path)
    assert stay(tmp_path) == [DEVICE]
    assert in_force(tmp_path) == before
    assert told(tmp_path) == []
    assert Journal(tmp_path / "journal").stays
    assert lift(tmp_path)
    assert not lift(tmp_path)


def test_staying_waits_until_the_running_agent_has_put_back(tmp_path: Path) -> None:
    hold(tmp_path)
    journal = Journal(tmp_path / "journal")
    reverted: list[list[str]] = []
    with files.lock(tmp_path, "agent"):
        waiting = threading.Thread(target=lambda: reverted.append(stay(tmp_path)))
        waiting.start()
        while waiting.is_alive() and not journal.stays:
            time.sleep(0.01)
        assert reverted == []
        journal.restore(DEVICE, open_target(A100, DEVICE, 0, tmp_path, Path("/")))
        waiting.join(30.0)
    assert reverted == [[DEVICE]]


def test_staying_lists_devices_that_the_running_agent_did_not_restore(tmp_path: Path) -> None:
    hold(tmp_path)
    with (
        files.lock(tmp_path, "agent"),
        raised(ActuationError, DEVICE, "within 0"),
    ):
        stay(tmp_path, patience_s=0.0)
    assert Journal(tmp_path / "journal").stays


def test_a_stay_that_cannot_be_noted_still_puts_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = hold(tmp_path)
    monkeypatch.setattr(Path, "touch", failing(errno.EROFS))
    with pytest.raises(StoreError, match="cannot make"):
        stay(tmp_path)
    assert in_force(tmp_path) == before


def test_a_state_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "agent.lock").mkdir()
    with pytest.raises(StoreError, match="state folder"):
        revert(tmp_path / "state")


def test_a_device_that_does_not_answer_loses_its_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold(tmp_path)

    def away(*_: object, **__: object) -> None:
        raise DeviceLost("it does not answer")

    monkeypatch.setattr(catalogue, "open_device", away)
    with pytest.raises(ActuationError, match="does not answer"):
        revert(tmp_path)
    assert list((tmp_path / "holds").iterdir()) == []
    assert len(list((tmp_path / "journal").iterdir())) == 1
    assert len(told(tmp_path)) == 1
