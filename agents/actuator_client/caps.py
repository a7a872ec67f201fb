"""The agent's view of a device's membership of a power budget: caps over time that the actuator keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agents.actuator_client.line import ActuatorClient
from tuner.core import NO_CAPS, CapKnob, CapSchedule, CapStep, Clock, Role, Setting, Space, Value


@dataclass(frozen=True, slots=True)
class HostCaps:
    """A host's record of a budget: its group, and its steps on the host's clock.

    `group` is empty outside any budget. `wrong` is the reason that the caps cannot be kept, empty if they
    can.
    """

    group: str = ""
    schedule: CapSchedule = NO_CAPS
    wrong: str = ""


class DeviceCaps:
    """One device's cap knobs and caps, from the actuator's answers. `knobs` is empty without a floor.

    `kept` has the caps in the actuator's last answer. Several threads may use it.
    """

    def __init__(
        self, line: ActuatorClient, about: Mapping[str, Any], space: Space, clock: Clock
    ) -> None:
        floor = {k: v for k, v in about.get("floor", {}).items() if k in about["found"]}
        self.knobs = tuple(_cap_knob(about, space, knob, value) for knob, value in floor.items())
        self.kept = HostCaps()
        self._line = line
        self._uuid = str(about["uuid"])
        self._clock = clock
        self._values: Mapping[str, Sequence[Any]] = {
            knob: [v for v in space.knob(knob).values if v in about["granted"][knob]]
            for knob in floor
        }
        self._default = {knob: space.knob(knob).default for knob in floor}
        self.heed(about)

    def multiply(self, name: str, parts: int) -> None:
        """Multiply a power limit's watts by the number of parts that each have it, such as CPU packages."""
        self.knobs = tuple(
            replace(k, floor_w=parts * k.floor_w, default_w=parts * k.default_w)
            if k.name == name and k.floor_w and k.default_w
            else k
            for k in self.knobs
        )

    def bound(self, watts: float) -> None:
        """Set the highest watts of the clock ceilings to a limit that the driver enforces at any clock."""
        self.knobs = tuple(
            replace(k, default_w=watts) if k.floor_w is None else k for k in self.knobs
        )

    def look(self) -> HostCaps:
        """Return the caps that the actuator keeps now. Raises ActuationError."""
        if self.knobs:
            self.heed(self._line.ask("read", device=self._uuid))
        return self.kept

    def cap(self, group: str, schedule: CapSchedule) -> None:
        """Send steps for the actuator to keep; their times are in seconds from now.

        Raises Conflict, OutOfRange, ActuationError, StoreError.
        """
        ours = {knob.name for knob in self.knobs}
        steps = [
            {
                "in_s": max(0.0, step.at_s),
                "cap_w": step.cap_w,
                "at_most": {k: v for k, v in step.at_most.items() if k in ours},
            }
            for step in schedule.steps
        ]
        fields = {"group": group, "revision": schedule.revision, "steps": steps}
        self.heed(self._line.ask("cap", device=self._uuid, **fields))

    def fall(self) -> None:
        """Lower the knobs to their floors in all remaining steps; the watts stay. Raises as `cap` does."""
        left = self.kept.schedule.shifted(-self._clock.monotonic())
        floor, now = {knob.name: knob.floor for knob in self.knobs}, left.step(0.0)
        steps = tuple(replace(s, at_most=floor) for s in left.steps if s is now or s.at_s > 0.0)
        self.cap(self.kept.group, replace(left, steps=steps))

    def leave(self) -> None:
        """Take the device out of its budget. Raises ActuationError, StoreError."""
        self.heed(self._line.ask("leave_budget", device=self._uuid))

    def step(self) -> CapStep | None:
        """Return the step in force; None before the first one, and outside any budget."""
        return self.kept.schedule.step(self._clock.monotonic()) if self.kept.group else None

    def at_most(self) -> dict[str, float]:
        """Return the caps in force, by knob, at least the floors; empty outside any budget."""
        if not self.kept.group:
            return {}
        step = self.step()
        most = step.at_most if step else {}
        return {knob.name: max(knob.floor, most.get(knob.name, knob.floor)) for knob in self.knobs}

    def clipped(self, setting: Setting) -> dict[str, Value]:
        """Return a setting lowered to the caps in force: the next lower offered value of each knob."""
        values: dict[str, Value] = dict(setting)
        for knob, most in self.at_most().items():
            if knob in setting:
                within = [v for v in self._values[knob] if v <= most and v <= setting[knob]]
                values[knob] = within[-1] if within else self._values[knob][0]
        return values

    @property
    def resting(self) -> dict[str, Value]:
        """Return the setting without a trial or a hold: the original, lowered to the caps in force."""
        return self.clipped(self._default)

    def heed(self, answer: Mapping[str, Any]) -> None:
        """Update the caps from an answer of the actuator."""
        budget, now = answer.get("budget") or {}, self._clock.monotonic()
        steps = [
            CapStep(now + step["in_s"], step["cap_w"], step["at_most"])
            for step in budget.get("steps", ())
        ]
        self.kept = HostCaps(
            str(budget.get("group", "")),
            CapSchedule(int(budget.get("revision", 0)), tuple(steps)),
            str(answer.get("paused") or answer.get("trouble") or ""),
        )


def _cap_knob(about: Mapping[str, Any], space: Space, name: str, floor: float) -> CapKnob:
    """Return a cap knob; its watts are unknown unless it is a power limit."""
    knob = space.knob(name)
    default = dict(about.get("defaults") or ()).get(name, about["ranges"][name][-1])
    most = max(float(default), float(knob.default))
    if knob.role is not Role.POWER_LIMIT:
        return CapKnob(name, floor, default=most)
    return CapKnob(name, floor, float(floor), most, most)
