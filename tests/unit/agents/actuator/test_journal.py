"""The actuator's journal of changed devices: on the disk, after a crash, for missing devices."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.agents.actuator.bench import (
    CLOCK,
    FACTORY,
    GPU,
    HELD,
    LIMIT,
    ME,
    MEMORY,
    ROOT,
    TRIED,
    YOU,
    Bench,
    capped,
)
from tuner.core import (
    ActuationError,
    DeviceLost,
    StoreError,
)


def test_the_device_is_journalled_before_it_is_written(bench: Bench) -> None:
    bench.trial({CLOCK: 810})
    text = json.loads(bench.record.read_bytes())["record"]
    assert '"original": null' in text and "810" in text and '"boot": "boot 1"' in text


def test_after_a_crash_a_foreign_change_is_left_alone_and_reported(bench: Bench) -> None:
    bench.trial()
    bench.change(values={LIMIT: 222})
    messages = bench.start().replay()
    assert bench.values == {**FACTORY, LIMIT: 222}
    assert "222" in messages[GPU]


def test_after_a_crash_everything_is_put_back(bench: Bench) -> None:
    bench.hold()
    bench.trial()
    assert bench.start().replay() == {}
    assert bench.values == FACTORY
    assert not bench.record.exists()
    assert bench.start().replay() == {}


def test_a_trial_is_not_written_again_after_a_driver_restart(bench: Bench) -> None:
    bench.trial()
    bench.change(values={CLOCK: None, LIMIT: 380}, epoch="2")
    bench.hand.puts.clear()
    with pytest.raises(ActuationError, match="driver"):
        bench.actuator.renew(ME, GPU, 5.0)
    assert bench.hand.puts == []
    assert (bench.level(), bench.record.exists()) == ("original", False)


def test_a_hold_is_written_again_after_a_driver_restart(bench: Bench) -> None:
    bench.hold()
    bench.change(values={CLOCK: None, LIMIT: 380}, epoch="2")
    bench.actuator.renew(ME, GPU, 5.0)
    assert bench.values == {**FACTORY, **HELD}
    bench.actuator.release(ME, GPU)
    assert bench.values == {**FACTORY, LIMIT: 380}, "its original is the new load's"


def test_a_value_that_may_be_lost_is_held_again_and_a_trials_lock_is_restored(bench: Bench) -> None:
    """A GPU without persistence mode, once no process had it open: a lock cannot be read."""
    bench.change(epoch="1 slept 7")
    bench.hold()
    bench.change(values={LIMIT: 400}, epoch="1 slept 8")
    bench.actuator.renew(ME, GPU, 5.0)
    assert bench.values == {**FACTORY, **HELD}
    bench.actuator.release(ME, GPU)
    bench.trial()
    bench.change(epoch="1 slept 9")
    with pytest.raises(ActuationError, match="driver"):
        bench.actuator.renew(ME, GPU, 5.0)
    assert (bench.values, bench.actuator.read(ME, GPU)["paused"]) == (FACTORY, "")


def test_after_a_crash_and_a_restarted_driver_the_journal_is_dropped(bench: Bench) -> None:
    bench.trial()
    bench.change(values={CLOCK: None, LIMIT: 380}, epoch="2")
    assert bench.start().replay() == {}
    assert (bench.hand.puts, bench.record.exists()) == ([], False)


def test_a_journal_of_another_boot_is_dropped_and_the_device_untouched(bench: Bench) -> None:
    bench.trial()
    bench.boot = "boot 2"
    assert bench.start().replay() == {}
    assert (bench.hand.puts, bench.record.exists()) == ([], False)


def damage(path: Path, how: str) -> None:
    """Damage a file as a disk, an editor or a bug would."""
    whole = path.read_bytes()
    if how == "unreadable":
        path.unlink()
        path.mkdir()
    else:
        broken = {"truncated": whole[:40], "empty": b"", "list": b"[]"}
        path.write_bytes(broken.get(how, whole.replace(b"GPU-1", b"GPU-2")))


DAMAGE = ["truncated", "empty", "list", "other", "unreadable"]


@pytest.mark.promise(
    "the actuator's journal is damaged or deleted",
    "the newest intact of two copies counts, and memory while it runs; with both "
    "damaged, the fail-safe or the driver's default is set and reported",
)
@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("copy", [0, 1])
def test_of_a_damaged_journal_the_intact_copy_counts(bench: Bench, how: str, copy: int) -> None:
    bench.change(values={LIMIT: 380})
    bench.trial()
    damage(bench.copies[copy], how)
    assert bench.start().replay() == {}
    assert bench.values == {**FACTORY, LIMIT: 380}
    assert not any(path.exists() for path in bench.copies)


def test_the_newer_of_two_intact_copies_counts(bench: Bench) -> None:
    bench.trial({CLOCK: 810})
    older = bench.copies[1].read_bytes()
    bench.actuator.apply(ME, GPU, TRIED)
    bench.copies[1].write_bytes(older)
    assert bench.start().replay() == {}
    assert bench.values == FACTORY


@pytest.mark.promise("the actuator's journal is damaged or deleted")
@pytest.mark.parametrize("how", DAMAGE)
def test_with_both_copies_damaged_the_device_gets_its_defaults_with_a_report(
    bench: Bench, how: str
) -> None:
    bench.change(values={LIMIT: 380})
    bench.trial()
    for path in bench.copies:
        damage(path, how)
    messages = bench.start().replay()
    assert bench.values == FACTORY
    assert str(bench.record) in messages[GPU] and "unknown" in messages[GPU]
    assert messages[GPU] in bench.actuator.status()
    assert bench.actuator.read(YOU, GPU)["trouble"] == messages[GPU]
    bench.trial()
    bench.actuator.release(ME, GPU)
    assert bench.values == FACTORY
    assert messages[GPU] in bench.actuator.status()
    bench.actuator.restore(ROOT, GPU)
    assert bench.actuator.status() == "GPU-1: original, GPU-2: original"


def test_with_both_copies_damaged_the_fail_safe_goes_before_the_default(tmp_path: Path) -> None:
    bench = capped(tmp_path)
    bench.trial({CLOCK: 810, LIMIT: 200})
    for path in bench.copies:
        damage(path, "empty")
    bench.start().replay()
    assert bench.values == {CLOCK: 1410, MEMORY: None, LIMIT: 250}


def test_with_both_copies_damaged_only_granted_knobs_are_reset(bench: Bench) -> None:
    bench.trial()
    bench.change(values={MEMORY: 405})
    for path in bench.copies:
        damage(path, "empty")
    bench.start().replay()
    assert bench.values == {**FACTORY, MEMORY: 405}


@given(junk=st.binary(max_size=60), at=st.integers(0, 400), copies=st.sampled_from([1, 2]))
def test_any_journal_content_restores_the_device(
    tmp_path_factory: pytest.TempPathFactory, junk: bytes, at: int, copies: int
) -> None:
    bench = Bench(tmp_path_factory.mktemp("j") / "b")
    bench.trial()
    for path in bench.copies[:copies]:
        whole = path.read_bytes()
        path.write_bytes(whole[:at] + junk + whole[at + len(junk) :])
    messages = bench.start().replay()
    assert bench.values == FACTORY
    assert copies == 2 or not messages


@pytest.mark.promise("the actuator's journal is damaged or deleted")
def test_a_journal_deleted_while_it_runs_is_written_again(bench: Bench) -> None:
    bench.hold()
    shutil.rmtree(bench.journal)
    bench.passes(1.0)
    assert all(path.exists() for path in bench.copies)
    bench.record.unlink()
    bench.passes(1.0)
    assert all(path.exists() for path in bench.copies)
    assert bench.level() == "hold"
    assert bench.start().replay() == {}
    assert bench.values == FACTORY


def test_where_a_deleted_journal_cannot_be_written_again_the_device_goes_back(bench: Bench) -> None:
    bench.hold()
    for path in bench.copies:
        path.unlink()
    bench.disk.full = True
    bench.passes(1.0)
    assert bench.values == FACTORY


def test_the_journal_of_a_missing_device_is_reported_until_the_device_returns(bench: Bench) -> None:
    bench.hold()
    bench.unplugged.add(GPU)
    messages = bench.start().replay()
    assert messages.keys() == {GPU} and "the device is missing" in messages[GPU]
    assert messages[GPU] in bench.actuator.status()
    assert bench.actuator.capabilities(ME)["missing"] == messages
    bench.unplugged.clear()
    bench.searches(3.0)
    assert bench.values == FACTORY
    assert bench.actuator.status() == "GPU-2: original, GPU-1: original"
    assert bench.actuator.capabilities(ME)["missing"] == {}
    bench.trial()


def test_a_discovery_that_fails_is_made_again(bench: Bench) -> None:
    bench.hold()
    bench.raises["describe", ""] = DeviceLost("the driver did not answer")
    assert "did not answer" in bench.start().replay()["discovery"]
    assert "did not answer" in bench.actuator.status()
    bench.raises.clear()
    bench.searches(3.0)
    assert bench.values == FACTORY
    assert bench.actuator.status() == "GPU-1: original, GPU-2: original"


def test_a_missing_device_whose_record_is_of_another_boot_is_not_looked_for(bench: Bench) -> None:
    bench.trial()
    bench.unplugged.add(GPU)
    bench.boot = "boot 2"
    assert bench.start().replay() == {}
    assert not any(path.exists() for path in bench.copies)


def test_a_changed_knob_is_restored_even_without_its_grant(bench: Bench) -> None:
    bench.trial()
    bench.terms = {"grant": {CLOCK: (1, 2)}}
    assert bench.start().replay() == {}
    assert "1 is outside the range" in bench.actuator.capabilities(ME)["devices"][0]["errors"][0]
    assert bench.values == FACTORY


def test_on_a_full_disk_no_hardware_is_written(bench: Bench) -> None:
    bench.disk.full = True
    for verb in (bench.trial, bench.hold):
        with pytest.raises(StoreError, match="No space left"):
            verb()
        assert bench.hand.puts == []
        assert bench.level() == "original"


def test_a_disk_that_fills_up_in_a_trial_does_not_prevent_the_restore(bench: Bench) -> None:
    bench.hold()
    bench.trial()
    bench.disk.full = True
    bench.passes(11.0)
    assert bench.values == FACTORY
