"""The actuator's surroundings without processes: drivers asked directly, a clock one can turn."""

from __future__ import annotations

from pathlib import Path

from agents.devices import fake_knobs
from agents.drivers import Value
from agents.hand import Described, Hand


class DirectHand(Hand):
    """Asks the fake devices in a file in this very process."""

    def __init__(self, hardware: Path) -> None:
        super().__init__(lambda: (), 1.0)
        self._drivers = {d.uuid: d for d in fake_knobs.discover(str(hardware))}
        self.puts: list[tuple[str, Value | None]] = []

    def describe(self) -> list[Described]:
        return [
            Described(d.uuid, d.board, d.driver, d.ranges(), {}) for d in self._drivers.values()
        ]

    def read(self, uuid: str) -> tuple[dict[str, Value | None], str]:
        return dict(self._drivers[uuid].read()), self._drivers[uuid].epoch

    def put(self, uuid: str, knob: str, value: Value | None) -> None:
        self.puts.append((knob, value))
        driver = self._drivers[uuid]
        if value is None:
            driver.reset(knob)
        else:
            driver.write(knob, value)
