"""A device's membership of a power budget: the caps of its knobs over time, and its floor."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Membership:
    """The membership of a power budget: a `floor`, and `steps` in order of time that cap the knobs.

    From its `at_s` (boot clock) on, a step limits each knob to its value in `at_most`. Before the first
    step the floor is the cap. All fields are empty for a device outside any budget.
    """

    group: str = ""
    revision: int = 0
    floor: Mapping[str, Any] = field(default_factory=dict)
    steps: Sequence[Mapping[str, Any]] = ()

    def at_most(self, now: float, granted: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
        """Return the highest granted values within the cap in force, at least the floor."""
        due = [step["at_most"] for step in self.steps if step["at_s"] <= now]
        most = due[-1] if due else {}
        return {
            knob: max([least, *(v for v in granted.get(knob, ()) if v <= most.get(knob, least))])
            for knob, least in self.floor.items()
        }

    def reported(self, now: float) -> dict[str, Any]:
        """Return the membership as sent to an agent; `in_s` is the time until a step, in seconds."""
        steps = [{**step, "in_s": step["at_s"] - now} for step in self.steps]
        return {"group": self.group, "revision": self.revision, "floor": self.floor, "steps": steps}
