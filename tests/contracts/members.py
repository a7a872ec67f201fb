"""The contract of every driver with a power cap, as a member of a budget behind the actuator.

The fixture `driver` is one device in its first state; `cap_knobs` are the knobs that may cap its power.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agents.actuator.device import Peer
from agents.actuator.driver import DriverProcess, KnobDriver, Value, _answered
from agents.actuator.grants import ActuatorConfig, Granted
from agents.actuator.journal import RestoreJournal
from tests.actuation import Direct, actuator_of
from tests.errors import raised
from tuner.errors import OutOfRange

AGENT, ROOT = Peer(1, 1, 7), Peer(2, 2, 0)


class HandOf(DriverProcess):
    """Sends the requests to one driver in this process."""

    def __init__(self, driver: KnobDriver) -> None:
        super().__init__(lambda: (), 1.0)
        self._drivers = {driver.uuid: driver}

    async def ask(self, verb: str, uuid: str = "", *details: Value | None) -> Any:  # noqa: ANN401
        return _answered(self._drivers, verb, uuid, *details)


class MemberContract:
    cap_knobs: tuple[str, ...] = ()

    @pytest.fixture(params=[0, 1])
    def knob(self, driver: KnobDriver, request: pytest.FixtureRequest) -> str:
        """Return one of the knobs that may cap the device."""
        number: int = request.param
        kinds = [k for k in driver.ranges() if k.rstrip(".0123456789") in self.cap_knobs]
        if number >= len(kinds):
            pytest.skip("this device has no further cap knob")
        return kinds[number]

    def start(self, driver: KnobDriver, knob: str, folder: Path, boot: str) -> Direct:
        """Return an actuator whose journal has been replayed."""
        values = driver.ranges()[knob]
        terms = Granted(
            match="*",
            grant={knob: (values[0], values[-1])},
            floor={knob: self.rungs(driver, knob)[0]},
        )
        made = actuator_of(
            ActuatorConfig(devices=(terms,)),
            lambda: HandOf(driver),
            RestoreJournal(folder / "journal"),
            boot,
            lambda: 0.0,
        )
        actuator = Direct(made)
        assert actuator.replay() == {}
        return actuator

    def rungs(self, driver: KnobDriver, knob: str) -> list[Any]:
        """Return the values that a member is set to: a floor, a low and a high cap."""
        shown = driver.read()[knob]
        low = [v for v in driver.ranges()[knob] if shown is None or float(v) < min(_numbers(shown))]
        return [low[0], low[len(low) // 2], low[-1]]

    def test_a_member_keeps_its_caps_and_its_floor_and_goes_back_to_its_original(
        self, driver: KnobDriver, knob: str, tmp_path: Path
    ) -> None:
        original = dict(driver.read())
        floor, low, high = self.rungs(driver, knob)
        if not floor < low < high:
            pytest.skip("this device has no three values below its original")
        actuator, uuid = self.start(driver, knob, tmp_path, "boot 1"), driver.uuid

        def in_force() -> object:
            return actuator.read(AGENT, uuid)["values"][knob]

        cap = partial(self.cap, actuator, driver, knob)

        readable = original[knob] is not None
        cap(1, high)
        assert not readable or driver.read()[knob] == floor
        actuator.hold(AGENT, uuid, {knob: high}, 100.0)
        assert in_force() == high
        cap(2, low)
        assert in_force() == low
        with raised(OutOfRange, knob):
            actuator.hold(AGENT, uuid, {knob: high}, 100.0)
        actuator.release(AGENT, uuid)
        assert not readable or driver.read()[knob] == floor
        driver.write(knob, None)  # as a boot leaves it
        actuator = self.start(driver, knob, tmp_path, "boot 2")
        assert not readable or driver.read()[knob] == floor
        with raised(OutOfRange, knob):
            actuator.hold(AGENT, uuid, {knob: high}, 100.0)
        actuator.leave_budget(AGENT, uuid)
        assert driver.read() == original

    @pytest.mark.parametrize("level", ["trial", "hold", "job"])
    def test_what_a_cap_lowered_is_in_force_again_once_the_cap_allows_it(
        self, driver: KnobDriver, knob: str, level: str, tmp_path: Path
    ) -> None:
        original, uuid = dict(driver.read()), driver.uuid
        _, low, high = self.rungs(driver, knob)
        actuator = self.start(driver, knob, tmp_path, "boot 1")

        def in_force() -> object:
            return actuator.read(AGENT, uuid)["values"][knob]

        self.cap(actuator, driver, knob, 1, high)
        if level == "job":
            actuator.lease_job(ROOT, uuid, "slurm:1", {knob: high})
        elif level == "hold":
            actuator.hold(AGENT, uuid, {knob: high}, 100.0)
        else:
            actuator.acquire(AGENT, uuid, 5.0)
            actuator.apply(AGENT, uuid, {knob: high})
        self.cap(actuator, driver, knob, 2, low)
        assert in_force() == low
        self.cap(actuator, driver, knob, 3, high)
        assert in_force() == high
        self.cap(actuator, driver, knob, 4, low)
        actuator.leave_budget(ROOT, uuid)
        assert in_force() == high
        actuator.restore(ROOT, uuid)
        assert driver.read() == original

    def cap(
        self, actuator: Direct, driver: KnobDriver, knob: str, revision: int, most: Value
    ) -> None:
        """Cap the knob at a value from now on."""
        steps = [{"in_s": 0.0, "cap_w": 1.0, "at_most": {knob: most}}]
        actuator.cap(AGENT, driver.uuid, "rack", revision, steps)


def _numbers(value: Value) -> list[float]:
    return [float(part) for part in str(value).split()]
