from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from agents.holding.journal import Journal
from agents.target.measured import WORKLOAD
from tests.errors import raised
from tests.fakes import Rig, failing, refused
from tuner.core import ActuationError, Conflict, Level, Setting, StoreError

DEVICE = "fake@host"
FOUND: Setting = {"gpu.clock_mhz": 800, "batch_size": 2}
TRIED: Setting = {"gpu.clock_mhz": 400, "batch_size": 4}


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    rig = Rig(tmp_path)
    rig.device.now["gpu.clock_mhz"] = 800
    rig.work.now["batch_size"] = 2
    return rig


def record(rig: Rig, level: Level = Level.TRIAL) -> Path:
    rig.journal.record(DEVICE, rig.target, level, "boot-1", {"spec": "fake"})
    (path,) = (rig.folder / "journal").glob("*.journal")
    return path


def start_again(rig: Rig) -> None:
    """Drop the state in memory: after a restart only the disk counts."""
    rig.journal = Journal(rig.folder / "journal")


def test_the_found_setting_is_restored(rig: Rig) -> None:
    record(rig)
    rig.target.apply(TRIED)
    assert rig.journal.restore(DEVICE, rig.target)
    assert rig.setting == FOUND
    assert rig.journal.get(DEVICE) is None
    assert not rig.journal.restore(DEVICE, rig.target)


def test_a_later_level_keeps_the_first_original(rig: Rig) -> None:
    record(rig)
    rig.target.apply(TRIED)
    record(rig, Level.HOLD)
    entry = rig.journal.get(DEVICE)
    assert entry is not None and entry.level is Level.HOLD
    assert {k: v for part in entry.sides.values() for k, v in part.items()} == FOUND


def test_the_entry_has_the_data_to_open_the_device_again(rig: Rig) -> None:
    record(rig)
    (entry,) = rig.journal.devices()
    assert (entry.device, entry.boot, entry.attached) == (DEVICE, "boot-1", {"spec": "fake"})
    assert entry.sides[WORKLOAD] == {"batch_size": 2}


def test_an_unreadable_file_is_not_changed(rig: Rig) -> None:
    rig.device.unreadable = refused("no answer")
    with pytest.raises(ActuationError, match="no answer"):
        record(rig)
    assert rig.journal.get(DEVICE) is None


def test_restoring_goes_on_after_a_failure_and_can_be_repeated(rig: Rig) -> None:
    record(rig)
    rig.target.apply(TRIED)
    rig.device.refuse = lambda s: refused("stuck")
    with raised(ActuationError, "stuck"):
        rig.journal.restore(DEVICE, rig.target)
    assert rig.setting == {"gpu.clock_mhz": 400, "batch_size": 2}
    rig.device.refuse = lambda s: None
    assert rig.journal.restore(DEVICE, rig.target)
    assert rig.setting == FOUND


def test_a_journal_deleted_meanwhile_still_restores(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    path = record(rig)
    rig.target.apply(TRIED)
    shutil.rmtree(path.parent)
    rig.device.refuse = lambda s: refused("stuck")
    with raised(ActuationError, "stuck"):
        rig.journal.restore(DEVICE, rig.target)
    assert f"event=journal_vanished device={DEVICE} file={path}" in caplog.text
    assert path.exists(), "a crash now would leave the device as it is"
    rig.device.refuse = lambda s: None
    assert rig.journal.restore(DEVICE, rig.target)
    assert rig.setting == FOUND
    assert not path.exists()
    assert not rig.journal.restore(DEVICE, rig.target)


def test_a_journal_that_vanished_keeps_the_first_original(rig: Rig) -> None:
    path = record(rig)
    text = path.read_text()
    rig.target.apply(TRIED)
    path.unlink()
    record(rig)
    assert path.read_text() == text


def test_a_journal_found_on_disk_is_remembered_as_well(rig: Rig) -> None:
    path = record(rig)
    rig.target.apply(TRIED)
    start_again(rig)
    record(rig)
    path.unlink()
    assert rig.journal.restore(DEVICE, rig.target)
    assert rig.setting == FOUND


def test_a_vanished_journal_that_cannot_be_written_still_restores(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    path = record(rig)
    rig.target.apply(TRIED)
    shutil.rmtree(path.parent)
    path.parent.touch()
    with raised(StoreError, path):
        record(rig)
    assert rig.journal.restore(DEVICE, rig.target)
    assert rig.setting == FOUND
    assert "event=journal_not_written" in caplog.text
    assert "event=journal_not_removed" in caplog.text


def test_after_a_restart_only_the_disk_counts(rig: Rig) -> None:
    path = record(rig)
    path.unlink()
    assert Journal(path.parent).get(DEVICE) is None


def test_going_back_keeps_the_safe_order(rig: Rig) -> None:
    record(rig)
    rig.target.apply(TRIED)
    rig.log.clear()
    rig.journal.restore(DEVICE, rig.target)
    assert [side for side, _ in rig.log] == ["device", "workload"]


def test_a_device_that_cannot_be_read_is_nevertheless_restored(rig: Rig) -> None:
    record(rig)
    rig.target.apply(TRIED)
    rig.device.unreadable = refused("no answer")
    with pytest.raises(ActuationError, match="no answer"):
        rig.journal.restore(DEVICE, rig.target)
    assert rig.setting == FOUND


def test_a_truncated_journal_restores_its_readable_part(rig: Rig) -> None:
    path = record(rig)
    rig.target.apply(TRIED)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-1]) + lines[-1][:20])
    start_again(rig)
    entry = rig.journal.get(DEVICE)
    assert entry is not None and f"{path}: line 3" in entry.damaged
    assert rig.journal.restore(DEVICE, rig.target)
    assert rig.setting == {"gpu.clock_mhz": 800, "batch_size": 1}


def test_a_journal_cut_between_lines_is_noticed(rig: Rig) -> None:
    path = record(rig)
    rig.target.apply(TRIED)
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:2]))
    start_again(rig)
    entry = rig.journal.get(DEVICE)
    assert entry is not None and "1 of 2 sides" in entry.damaged
    rig.journal.restore(DEVICE, rig.target)
    assert rig.setting == {"gpu.clock_mhz": 800, "batch_size": 1}


def test_an_empty_journal_restores_the_defaults(rig: Rig) -> None:
    path = record(rig)
    rig.target.apply(TRIED)
    path.write_text("")
    start_again(rig)
    rig.journal.restore(DEVICE, rig.target)
    assert rig.setting == rig.target.space.default


def test_a_damaged_journal_is_mended_before_the_next_change(rig: Rig) -> None:
    path = record(rig)
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:2]))
    start_again(rig)
    record(rig)
    entry = rig.journal.get(DEVICE)
    assert entry is not None and not entry.damaged
    assert entry.sides == {"fake": {"gpu.clock_mhz": 800}, WORKLOAD: {"batch_size": 1}}


@example(junk=b"5")
@example(junk=b'{"level": 7, "attached": null, "sides": 1}\n{"side": "device", "setting": 5}')
@given(junk=st.binary(max_size=200))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_content_of_the_file_stops_a_restore(rig: Rig, junk: bytes) -> None:
    path = record(rig)
    path.write_bytes(junk)
    start_again(rig)
    assert rig.journal.restore(DEVICE, rig.target)
    assert rig.setting == rig.target.space.default


@pytest.mark.promise(
    "the agent's journal is damaged, or its folder is deleted while it runs",
    "damaged entries go to the default; deleted ones are written again from memory",
)
def test_a_value_changed_on_the_disk_counts_as_lost(rig: Rig) -> None:
    path = record(rig)
    rig.target.apply(TRIED)
    path.write_text(path.read_text().replace("800", "600"))
    start_again(rig)
    entry = rig.journal.get(DEVICE)
    assert entry is not None and f"{path}: line 2" in entry.damaged
    assert rig.journal.restore(DEVICE, rig.target)
    assert rig.setting == {"gpu.clock_mhz": 1000, "batch_size": 2}


def test_the_processs_state_overrides_a_damaged_file(rig: Rig) -> None:
    path = record(rig)
    whole = path.read_text()
    rig.target.apply(TRIED)
    path.write_text("")
    assert rig.journal.restore(DEVICE, rig.target)
    assert rig.setting == FOUND
    path = record(rig)
    path.write_text("")
    record(rig)
    assert path.read_text() == whole


def test_a_record_that_cannot_be_deleted_no_longer_counts(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = record(rig)
    rig.target.apply(TRIED)
    with monkeypatch.context() as stuck:
        stuck.setattr(os, "unlink", failing(errno.EROFS))
        assert rig.journal.restore(DEVICE, rig.target)
        assert rig.setting == FOUND
        assert rig.journal.get(DEVICE) is None
        assert path.exists()
    assert rig.journal.get(DEVICE) is None
    assert not path.exists()


def test_on_a_full_disk_a_known_original_is_enough_for_another_level(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = record(rig)
    rig.target.apply(TRIED)
    monkeypatch.setattr(os, "fsync", failing(errno.ENOSPC))
    rig.journal.record(DEVICE, rig.target, Level.HOLD, "boot-1", {"spec": "fake"})
    assert json.loads(path.read_text().splitlines()[0])["level"] == "trial"
    assert [p.name for p in path.parent.iterdir()] == [path.name], "nothing half written is left"
    rig.journal.restore(DEVICE, rig.target)
    with pytest.raises(StoreError):
        record(rig)


def test_a_host_that_must_stay_is_not_set_again(rig: Rig) -> None:
    rig.journal.stay()
    rig.journal.stay()
    with raised(Conflict, "--lift"):
        record(rig)
    assert Journal(rig.folder / "journal").stays
    assert rig.journal.lift() and not rig.journal.lift()
    record(rig)


def test_a_journal_that_cannot_be_read_now_is_not_lost(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(rig)
    rig.target.apply(TRIED)
    with monkeypatch.context() as broken:
        broken.setattr(Path, "read_bytes", failing(errno.EIO))
        start_again(rig)
        with raised(StoreError, "read"):
            rig.journal.restore(DEVICE, rig.target)
        assert rig.setting == TRIED
    rig.journal.restore(DEVICE, rig.target)
    assert rig.setting == FOUND
    record(rig)
    rig.target.apply(TRIED)
    monkeypatch.setattr(Path, "read_bytes", failing(errno.EIO))
    rig.journal.restore(DEVICE, rig.target)
    assert rig.setting == FOUND, "the process knows what it was"
