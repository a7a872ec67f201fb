from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agents.actuator.grants import ActuatorConfig, Granted
from agents.actuator.journal import RestoreJournal
from agents.actuator.main import listen
from agents.actuator_client.client import RemoteKnobs, named, open_remote
from agents.actuator_client.line import ActuatorClient
from agents.devices.fake import knobs as fake
from agents.target.side import Side
from agents.target.target import Target
from tests.actuation import DirectHand, actuator_of
from tests.builders import Time
from tests.contracts.actuator import SettableContract
from tests.fakes import Rig, side_of, steady
from tests.unit.agents.agent.orders import hold, trial
from tuner.core import (
    ActuationError,
    DeviceBusy,
    Estimate,
    KnobRefused,
    NotFound,
    OutOfRange,
    Plan,
)
from tuner.wire import Release

GPU = "GPU-1"
CLOCK, LIMIT = "gpu.clock_mhz", "gpu.power_limit_w"
FACTORY = {CLOCK: None, "gpu.mem_clock_mhz": None, LIMIT: 400}
TRIED = {CLOCK: 810, LIMIT: 250}
HELD = {CLOCK: 870, LIMIT: 300}


@dataclass
class House:
    """An actuator served by a thread, with a clock that the test advances."""

    folder: Path
    now: float = 0.0
    stop: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None
    knobs: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: fake.A100)

    def __post_init__(self) -> None:
        self.hardware = self.folder / "hardware.json"
        self.socket = self.folder / "socket"
        fake.save(self.hardware, fake.blank(GPU, knobs=self.knobs))
        (self.folder / "journal").mkdir()

    def open(self) -> None:
        grant = {CLOCK: (600.0, 1410.0), LIMIT: (150.0, 350.0)}
        grant |= dict.fromkeys(fake.CAPPED.keys() & self.knobs.keys(), (800.0, 3500.0))
        config = ActuatorConfig(devices=(Granted(match="GPU-*", grant=grant),))
        ready = threading.Event()
        self.stop = threading.Event()

        async def served(stop: threading.Event) -> None:
            hand = DirectHand(self.hardware)
            originals = RestoreJournal(self.folder / "journal")
            actuator = await actuator_of(config, lambda: hand, originals, "boot", lambda: self.now)
            await actuator.replay()
            server = await listen(actuator, self.socket)
            ready.set()
            while not stop.is_set():
                await asyncio.sleep(0.02)
            server.close()

        self.thread = threading.Thread(target=asyncio.run, args=(served(self.stop),))
        self.thread.start()
        assert ready.wait(5.0)

    def shut(self) -> None:
        self.stop.set()
        if self.thread is not None:
            self.thread.join()

    @property
    def values(self) -> dict[str, Any]:
        return dict(fake.load(self.hardware)["devices"][GPU]["values"])

    def set(self, knob: str, value: object) -> None:
        state = fake.load(self.hardware)
        state["devices"][GPU]["values"][knob] = value
        fake.save(self.hardware, state)


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    house = House(tmp_path)
    house.open()
    yield house
    house.shut()


@pytest.fixture
def remote(house: House) -> Iterator[RemoteKnobs]:
    remote = open_remote(house.socket, GPU, Time())
    yield remote
    remote.close()


class Recorded(ActuatorClient):
    """Keeps the fields of every request to acquire."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.acquired: list[dict[str, object]] = []

    def ask(self, verb: str, **fields: object) -> dict[str, Any]:
        if verb == "acquire":
            self.acquired.append(fields)
        return super().ask(verb, **fields)


@pytest.mark.parametrize(("protocol", "fields"), [(2, {}), (3, {"trial": "gpu/s1/1/2"})])
def test_only_an_actuator_that_accepts_trial_names_gets_them(
    house: House, protocol: int, fields: dict[str, str]
) -> None:
    line = Recorded(house.socket)
    answer = line.ask("capabilities")
    (about,) = answer["devices"]
    remote = RemoteKnobs(
        line, about, {**answer, "protocol": protocol}, Time(), lambda _, values, __: values, {}
    )
    with named("gpu/s1/1/2"):
        remote.apply(TRIED)
    remote.apply(HELD)
    lease = {"device": GPU, "lease_s": 10.0}
    assert line.acquired == [{**lease, **fields}, {**lease, **dict.fromkeys(fields, "")}]
    remote.close()


def attached(remote: RemoteKnobs, rig: Rig) -> Side:
    return side_of("remote", remote, remote.space, rig.meter, *rig.listed)


class TestRemote(SettableContract):
    @pytest.fixture
    def side(self, remote: RemoteKnobs, tmp_path: Path) -> Side:
        return attached(remote, Rig(tmp_path))


def test_the_space_has_granted_values_and_the_originals(remote: RemoteKnobs) -> None:
    clock, limit = remote.space.knob(CLOCK), remote.space.knob(LIMIT)
    assert clock.default == 1410 and min(clock.values) == 630
    assert limit.default == 400 and sorted(limit.values)[-2] == 350
    assert remote.board == "A100 (fake)"


def test_the_default_is_the_device_as_it_was_found_not_a_lock(
    house: House, remote: RemoteKnobs
) -> None:
    remote.apply(remote.space.default)
    assert house.values == FACTORY
    remote.apply(TRIED)
    assert house.values == {**FACTORY, **TRIED}
    remote.apply(remote.space.default)
    assert house.values == FACTORY


def test_a_knob_that_takes_no_value_is_withdrawn_with_the_reason(
    house: House, remote: RemoteKnobs, tmp_path: Path
) -> None:
    """A turbo that the BIOS has disabled: EPERM at every write (tuxedo-control-center 56, TLP 824)."""
    side = attached(remote, Rig(tmp_path))
    state = fake.load(house.hardware)
    state["devices"][GPU]["faults"][CLOCK] = "unsupported"
    fake.save(house.hardware, state)
    with pytest.raises(KnobRefused):
        remote.apply(TRIED)
    assert side.offered.knob(CLOCK).values == (1410,)
    assert side.offered.knob(LIMIT) == side.space.knob(LIMIT)
    assert side.withdrawn == {CLOCK: f"{GPU} refuses {CLOCK}"}
    assert house.values == FACTORY


def test_another_agent_is_refused(house: House, remote: RemoteKnobs) -> None:
    other = open_remote(house.socket, GPU, Time())
    remote.apply(TRIED)
    with pytest.raises(DeviceBusy, match="process"):
        other.apply(HELD)
    remote.release()
    other.apply(HELD)
    other.close()


def test_a_value_without_a_grant_is_out_of_range(house: House, remote: RemoteKnobs) -> None:
    with pytest.raises(OutOfRange, match="390"):
        remote.apply({LIMIT: 390})
    assert house.values == FACTORY


def test_a_beat_keeps_a_trial_alive(house: House, remote: RemoteKnobs) -> None:
    remote.apply(TRIED)
    for _ in range(3):
        house.now += 8.0
        remote.beat()
    assert remote.read() == TRIED
    house.now += 11.0
    remote.beat()
    assert remote.read() == remote.space.default
    assert house.values == FACTORY


def test_an_abandoned_trial_is_not_kept_forever(house: House) -> None:
    time = Time()
    remote = open_remote(house.socket, GPU, time)
    remote.apply(TRIED)
    time.sleep(3601.0)
    remote.beat()
    house.now += 11.0
    assert remote.read() == remote.space.default
    remote.close()


def test_beats_happen_by_themselves(house: House, remote: RemoteKnobs) -> None:
    remote._beat_s = 0.01
    remote.apply(TRIED)
    for _ in range(5):
        house.now += 4.0
        threading.Event().wait(0.1)
    assert remote.read() == TRIED


def test_a_hold_outlives_the_actuator(house: House, remote: RemoteKnobs) -> None:
    remote.apply(HELD)
    remote.hold(HELD, "s1", 1, 1000.0)
    house.shut()
    remote.beat()
    house.open()
    assert house.values == FACTORY
    remote.beat()
    assert house.values == {**FACTORY, **HELD}


def test_a_trial_does_not_outlive_the_actuator(house: House, remote: RemoteKnobs) -> None:
    remote.apply(TRIED)
    house.shut()
    house.open()
    remote.beat()
    assert remote.read() == remote.space.default
    assert house.values == FACTORY


def test_a_hold_that_is_no_longer_valid_is_not_taken_up_again(house: House) -> None:
    time = Time()
    remote = open_remote(house.socket, GPU, time)
    remote.hold(HELD, "s1", 1, 100.0)
    house.shut()
    time.sleep(101.0)
    house.open()
    remote.beat()
    assert house.values == FACTORY
    remote.close()


def test_a_missing_actuator_is_reported(house: House, remote: RemoteKnobs) -> None:
    house.shut()
    for verb in (remote.read, lambda: remote.apply(TRIED), remote.release):
        with pytest.raises(ActuationError, match=r"does not answer.*systemctl start"):
            verb()


def test_an_unknown_device_is_refused_by_name(house: House) -> None:
    with pytest.raises(NotFound, match="GPU-1"):
        open_remote(house.socket, "GPU-9", Time())


class RemoteRig(Rig):
    def use(self, remote: RemoteKnobs) -> None:
        self.remote = remote
        self.seen: list[dict[str, Any]] = []

    @property
    def target(self) -> Target:
        return Target((attached(self.remote, self),))


def rig_of(remote: RemoteKnobs, folder: Path, look: Callable[[], object]) -> RemoteRig:
    folder.mkdir()
    rig = RemoteRig(folder, workload=False)
    rig.use(remote)

    def shows(began: float, now: float) -> Mapping[str, float | Estimate]:
        look()
        return steady()(began, now)

    rig.shows = shows
    return rig


def test_an_agent_tries_holds_and_releases_through_it(
    house: House, remote: RemoteKnobs, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    seen: list[Any] = []
    rig = rig_of(remote, tmp_path / "agent", lambda: seen.append(house.values))
    agent = rig.agent()
    agent.begin()
    baseline = {CLOCK: 1410, LIMIT: 400}
    rig.tuner.orders.append(trial(setting=TRIED, baseline=baseline))
    agent.step()
    assert seen[-1] == {**FACTORY, **TRIED}
    assert house.values == FACTORY
    assert not list((tmp_path / "agent/journal").glob("*"))
    rig.tuner.orders.append(hold(plan=Plan.single(HELD), baseline=baseline))
    agent.step()
    assert house.values == {**FACTORY, **HELD}
    rig.tuner.orders.append(trial(2, setting=TRIED, baseline=baseline))
    agent.step()
    assert house.values == {**FACTORY, **HELD}
    reply = remote._line.ask("read", device=GPU)
    assert reply["level"] == "hold"
    rig.tuner.orders.append(Release(why="over"))
    agent.step()
    assert house.values == FACTORY
    agent.step()
    reports = rig.tuner.told("/trials/report")
    assert [m["outcome"]["state"] for m in reports] == ["completed", "completed"]
    names = [f"{m['device']}/{m['study']}/{m['trial']}/{m['attempt']}" for m in reports]
    logged = [
        r.args for r in caplog.records if str(r.msg).startswith("event=trial device=%s trial=")
    ]
    of_trials = [arguments for arguments in logged if arguments != (GPU, "")]
    assert of_trials == [(GPU, name) for name in names]


def test_a_foreign_change_contaminates_the_trial_fails_the_next_and_stays(
    house: House, remote: RemoteKnobs, tmp_path: Path
) -> None:
    rig = rig_of(remote, tmp_path / "agent", lambda: house.set(LIMIT, 222))
    agent = rig.agent()
    agent.begin()
    rig.tuner.orders.append(trial(setting=TRIED, baseline={CLOCK: 1410, LIMIT: 400}))
    agent.step()
    rig.tuner.orders.append(trial(2, setting=TRIED, baseline={CLOCK: 1410, LIMIT: 400}))
    agent.step()
    agent.step()
    reports = [m["outcome"] for m in rig.tuner.told("/trials/report")]
    assert [report["state"] for report in reports] == ["contaminated", "failed"]
    for report in reports:
        assert "another program set gpu.power_limit_w to 222 instead of 250" in report["reason"]
        assert f"jouletune actuator restore {GPU}" in report["reason"]
    assert house.values == {**FACTORY, LIMIT: 222}


def test_a_cap_is_reported_with_the_next_renewal_and_the_setting_is_in_force(
    tmp_path: Path,
) -> None:
    house = House(tmp_path, knobs=fake.ALL)
    house.open()
    remote = open_remote(house.socket, GPU, Time())
    remote.hold({fake.CEILING: 3000}, "s1", 1, 1000.0)
    state = fake.load(house.hardware)
    state["devices"][GPU]["cap"] = 2800
    fake.save(house.hardware, state)
    assert remote.conflict() == ""
    assert "2800" in remote.throttled
    assert remote.read()[fake.CEILING] == 3000
    del state["devices"][GPU]["cap"]
    fake.save(house.hardware, state)
    assert (remote.conflict(), remote.throttled) == ("", "")
    remote.close()
    house.shut()


def test_a_foreign_change_ends_a_hold_with_the_actuators_message(
    house: House, remote: RemoteKnobs, tmp_path: Path
) -> None:
    rig = rig_of(remote, tmp_path / "agent", lambda: None)
    agent = rig.agent()
    agent.begin()
    rig.tuner.orders.append(hold(plan=Plan.single(HELD), baseline={CLOCK: 1410, LIMIT: 400}))
    agent.step()
    house.set(LIMIT, 222)
    remote.beat()
    rig.time.sleep(601.0)
    agent.step()
    ended = [m["ended"] for m in rig.tuner.told("/holds/report") if m["ended"]]
    assert len(ended) == 1 and "instead of 300" in ended[0]
    assert f"jouletune actuator restore {GPU}" in ended[0]
    assert house.values == {**FACTORY, LIMIT: 222}
