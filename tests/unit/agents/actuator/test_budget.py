"""A member of a power budget: never above its current cap, and at its floor after every end."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agents.actuator.device import Peer
from agents.actuator.requests import parse
from agents.devices.fake import knobs as fake
from tests.errors import raised
from tests.unit.agents.actuator.bench import (
    CLOCK,
    FACTORY,
    GPU,
    HELD,
    LIMIT,
    ME,
    OTHER,
    ROOT,
    TRIED,
    YOU,
    Bench,
)
from tuner.core import Conflict, DeviceBusy, InvalidInput, OutOfRange, StoreError

FLOOR = {LIMIT: 150}
AT_FLOOR = {**FACTORY, LIMIT: 150}


@pytest.fixture
def member(tmp_path: Path) -> Bench:
    bench = Bench(tmp_path / "b", {"floor": FLOOR})
    cap(bench, 1, (0.0, 300))
    return bench


def cap(
    bench: Bench, revision: int, *steps: tuple[float, float], peer: Peer = ME, group: str = "rack"
) -> dict[str, Any]:
    whole = [{"in_s": in_s, "cap_w": watts, "at_most": {LIMIT: watts}} for in_s, watts in steps]
    return bench.actuator.cap(peer, GPU, group, revision, whole)


def limit(bench: Bench) -> object:
    return bench.values[LIMIT]


def test_a_device_without_a_floor_cannot_be_a_member(bench: Bench) -> None:
    with raised(Conflict, GPU, "floor"):
        cap(bench, 1, (0.0, 300))
    assert bench.values == FACTORY
    assert not bench.record.exists()


@pytest.mark.parametrize(
    ("terms", "knob"),
    [
        ({"floor": {LIMIT: 100}}, LIMIT),
        ({"floor": {LIMIT: 155}}, LIMIT),
        ({"floor": {"gpu.mem_clock_mhz": 405}}, "gpu.mem_clock_mhz"),
        ({"floor": {LIMIT: 340}, "failsafe": {LIMIT: 330}}, LIMIT),
    ],
)
def test_a_floor_that_is_not_granted_or_not_offered_is_refused_by_name(
    terms: Mapping[str, Any], knob: str, tmp_path: Path
) -> None:
    bench = Bench(tmp_path / "b", terms)
    (device,) = [d for d in bench.actuator.inner.devices.values() if d.uuid == GPU]
    assert any(knob in error for error in device.errors)
    with raised(Conflict, GPU):
        cap(bench, 1, (0.0, 300))


def test_a_floor_above_the_original_is_refused_by_name(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "b", {"floor": {LIMIT: 300}})
    bench.change(values={LIMIT: 250})
    with raised(OutOfRange, LIMIT, 300, 250):
        cap(bench, 1, (0.0, 320))
    assert limit(bench) == 250


def test_a_new_member_is_at_its_floor_until_something_is_held(member: Bench) -> None:
    assert member.values == AT_FLOOR
    assert member.level() == "original"
    told = member.actuator.read(YOU, GPU)
    assert told["found"][LIMIT] == 400
    assert told["budget"]["at_most"] == {LIMIT: 300}
    assert (told["budget"]["group"], told["budget"]["revision"]) == ("rack", 1)
    member.hold()
    assert member.values == {**FACTORY, **HELD}


def test_a_setting_above_the_cap_is_refused_by_name(member: Bench) -> None:
    with raised(OutOfRange, LIMIT, 310, 300):
        member.trial({LIMIT: 310})
    with raised(OutOfRange, LIMIT, 400):
        member.actuator.hold(ME, GPU, {LIMIT: 400}, 100.0)
    assert limit(member) == 150


def test_without_a_value_a_members_knob_is_at_its_floor(member: Bench) -> None:
    member.actuator.hold(ME, GPU, {LIMIT: 300}, 100.0)
    member.actuator.hold(ME, GPU, {CLOCK: 810, LIMIT: None}, 100.0)
    assert limit(member) == 150


@pytest.mark.parametrize("level", ["trial", "hold"])
def test_a_lower_cap_is_applied_at_once_and_ends_nothing(member: Bench, level: str) -> None:
    if level == "trial":
        member.trial()
    else:
        member.hold()
    cap(member, 2, (0.0, 205))
    assert limit(member) == 200
    assert member.level() == level
    member.actuator.renew(ME, GPU, 10.0)
    assert member.values[CLOCK] == (TRIED if level == "trial" else HELD)[CLOCK]


@pytest.mark.parametrize("level", ["trial", "hold", "job"])
@pytest.mark.parametrize("end", ["a higher cap", "no budget"])
def test_a_lifted_cap_puts_the_whole_setting_in_force_again(
    member: Bench, level: str, end: str
) -> None:
    member.hold()
    if level == "trial":
        member.trial()
    elif level == "job":
        member.actuator.lease_job(ROOT, GPU, "job 7", TRIED)
    before = member.values
    cap(member, 2, (0.0, 205))
    assert (limit(member), member.level()) == (200, level)
    if end == "no budget":
        member.actuator.leave_budget(ROOT, GPU)
    else:
        cap(member, 3, (0.0, 300))
    assert (member.values, member.level()) == (before, level)


def test_a_step_known_ahead_lowers_without_anybody(member: Bench) -> None:
    member.hold()
    cap(member, 2, (0.0, 300), (8.0, 200), (16.0, 300))
    member.passes(7.9)
    assert limit(member) == 300
    member.passes(0.2)
    assert limit(member) == 200
    member.actuator.renew(ME, GPU, 10.0)
    member.passes(8.0)
    assert limit(member) == 200  # only its agent raises it
    member.hold()
    assert limit(member) == 300


def test_a_trial_that_ends_falls_back_to_its_hold_within_the_cap(member: Bench) -> None:
    member.hold()
    member.trial({LIMIT: 250})
    cap(member, 2, (0.0, 200))
    member.hand.puts.clear()
    member.passes(10.1)
    assert (member.level(), limit(member)) == ("hold", 200)
    assert not [v for k, v in member.hand.puts if k == LIMIT and v not in (150, 200)]


@pytest.mark.parametrize(
    "end", ["release", "lease", "grace", "valid_for", "restore", "stop", "full"]
)
def test_every_end_of_a_setting_leaves_the_floor(member: Bench, end: str) -> None:
    if end == "lease":
        member.trial({LIMIT: 300})
    else:
        member.hold(5.0 if end == "valid_for" else 1000.0)
    if end == "release":
        member.actuator.release(ME, GPU)
    elif end == "restore":
        member.actuator.restore(ROOT, GPU)
    elif end == "stop":
        member.actuator.close()
    elif end == "grace":
        member.actuator.gone(ME)
    elif end == "full":
        member.disk.full = True
        for copy in member.copies:
            copy.unlink()
    member.passes(61.0)
    assert member.values == AT_FLOOR


def test_after_a_crash_the_floor_is_in_force_and_steps_are_known(member: Bench) -> None:
    member.hold()
    cap(member, 2, (0.0, 300), (20.0, 200))
    member.start().replay()
    assert member.values == AT_FLOOR
    member.now = 25.0
    with raised(OutOfRange, 300, 200):
        member.hold()
    assert member.actuator.read(ME, GPU)["budget"]["revision"] == 2


def test_after_a_boot_the_floor_is_written_before_anything_else(member: Bench) -> None:
    member.hold()
    member.boot = "boot 2"
    member.change(values=FACTORY, epoch="2")
    assert member.start().replay() == {}
    assert member.values == AT_FLOOR
    told = member.actuator.read(ME, GPU)["budget"]
    assert (told["revision"], told["steps"], told["at_most"]) == (0, [], FLOOR)
    assert told["group"] == "rack"


def test_a_member_that_is_missing_at_a_boot_is_at_its_floor_once_it_appears(member: Bench) -> None:
    member.boot = "boot 2"
    member.change(values=FACTORY, epoch="2")
    member.unplugged.add(GPU)
    fresh = member.start()
    assert GPU in fresh.replay()
    member.unplugged.clear()
    member.searches(61.0)
    assert member.values == AT_FLOOR


@pytest.mark.parametrize("held", [False, True])
def test_a_driver_that_is_loaded_anew_gets_the_floor_again(tmp_path: Path, held: bool) -> None:
    member = Bench(tmp_path / "b", {"floor": FLOOR})
    member.change(values={LIMIT: 340})  # above its floor and below its default
    cap(member, 1, (0.0, 300))
    if held:
        member.hold()
    member.change(values=FACTORY, epoch="2")
    for _ in range(3):
        member.passes(3.0)
        if held:
            member.actuator.renew(ME, GPU, 10.0)
            assert member.values == {**FACTORY, **HELD}
            member.actuator.release(ME, GPU)
            held = False
    assert member.values == AT_FLOOR


def test_after_a_resume_the_floor_is_written_again(member: Bench) -> None:
    device = member.actuator.inner.devices[GPU]
    device.restorer.suspended_s = lambda: 100.0
    member.hand.puts.clear()
    member.change(values=FACTORY)
    member.passes(1.0)
    member.passes(1.0)
    assert member.values == AT_FLOOR


def test_a_member_that_leaves_its_group_without_a_hold_goes_back_at_once(member: Bench) -> None:
    member.hold()
    member.actuator.release(ME, GPU)
    member.actuator.leave_budget(ME, GPU)
    assert member.values == FACTORY
    assert member.actuator.read(ME, GPU)["budget"]["group"] == ""
    assert not member.record.exists()


def test_a_member_that_leaves_its_group_in_a_hold_goes_back_at_its_end(member: Bench) -> None:
    member.hold()
    member.actuator.leave_budget(ME, GPU)
    assert member.values == {**FACTORY, **HELD}
    member.actuator.release(ME, GPU)
    assert member.values == FACTORY


def test_root_alone_releases_a_device_that_another_agent_has(member: Bench) -> None:
    member.hold()
    with pytest.raises(DeviceBusy):
        member.actuator.leave_budget(YOU, GPU)
    member.actuator.leave_budget(ROOT, GPU)
    assert member.actuator.read(ME, GPU)["budget"]["group"] == ""


def test_all_devices_leave_their_budgets_without_an_agent_or_a_tuner(member: Bench) -> None:
    fresh = member.start()
    assert fresh.replay() == {}
    assert member.values == AT_FLOOR
    assert asyncio.run(fresh.inner.leave()) == {}
    assert member.values == FACTORY
    assert not member.record.exists()


def test_a_cap_that_fails_once_something_is_written_ends_the_hold(tmp_path: Path) -> None:
    """Another device takes a file while this one learns its requested ceiling."""
    knobs = {k: fake.ALL[k] for k in (LIMIT, fake.CEILING)}
    floor = {LIMIT: 150, fake.CEILING: 1000}
    grant = {LIMIT: (150, 350), fake.CEILING: (800, 3500)}
    bench = Bench(tmp_path / "b", {"grant": grant, "floor": floor}, knobs=knobs)
    bench.change(values={fake.CEILING: 2000})
    before = bench.values
    bench.actuator.hold(ME, GPU, {}, 100.0)
    restorer = bench.actuator.inner.devices[GPU].restorer
    other = {os.path.realpath(LIMIT): OTHER}
    restorer.taken = lambda _: other if bench.hand.puts else {}
    with raised(Conflict, OTHER):
        cap(bench, 1, (0.0, 300))
    assert (bench.level(), bench.values, bench.record.exists()) == ("original", before, False)


def test_an_older_revision_is_refused(member: Bench) -> None:
    cap(member, 5, (0.0, 200))
    with raised(Conflict, 5):
        cap(member, 4, (0.0, 300))


def test_on_a_full_disk_no_device_becomes_a_member_and_a_lower_cap_holds(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "b", {"floor": FLOOR})
    bench.disk.full = True
    with raised(StoreError):
        cap(bench, 1, (0.0, 300))
    assert bench.values == FACTORY
    bench.disk.full = False
    cap(bench, 1, (0.0, 300))
    bench.hold()
    bench.disk.full = True
    with raised(StoreError):
        cap(bench, 2, (0.0, 200))
    assert limit(bench) == 150
    bench.disk.full = False
    bench.passes(1.0)
    with raised(OutOfRange, 300, 200):
        bench.hold()


def test_with_both_copies_damaged_a_device_with_a_floor_goes_there(member: Bench) -> None:
    for copy in member.copies:
        copy.write_bytes(b"?")
    member.change(values={LIMIT: 400})
    assert "floor" in str(member.start().replay())
    assert limit(member) == 150


def test_a_clock_ceiling_caps_a_device_without_a_power_limit(tmp_path: Path) -> None:
    terms = {"grant": {fake.CEILING: (800, 3500)}, "floor": {fake.CEILING: 1000}}
    bench = Bench(tmp_path / "b", terms, knobs=fake.CAPPED)
    steps = [{"in_s": 0.0, "cap_w": 60.0, "at_most": {fake.CEILING: 2450}}]
    bench.actuator.cap(ME, GPU, "rack", 1, steps)
    assert bench.values == {fake.CEILING: 1000}
    bench.actuator.hold(ME, GPU, {fake.CEILING: 2400}, 100.0)
    with raised(OutOfRange, fake.CEILING, 2400):
        bench.actuator.hold(ME, GPU, {fake.CEILING: 2500}, 100.0)
    bench.actuator.release(ME, GPU)
    assert bench.values == {fake.CEILING: 1000}
    bench.actuator.leave_budget(ME, GPU)
    assert bench.values == {fake.CEILING: 3500}


@pytest.mark.parametrize(
    "step",
    [
        {"in_s": 0.0, "cap_w": 1.0},
        {"in_s": True, "cap_w": 1.0, "at_most": {}},
        {"in_s": 0.0, "cap_w": 1.0, "at_most": {LIMIT: "300"}},
        {"in_s": 0.0, "cap_w": 1.0, "at_most": {}, "more": 1},
        [],
    ],
)
def test_a_step_is_whole_or_refused(step: object) -> None:
    request = {"verb": "cap", "device": GPU, "group": "g", "revision": 1, "steps": [step]}
    with pytest.raises(InvalidInput):
        parse(json.dumps(request).encode())
