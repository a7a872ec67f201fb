"""A device's membership of a power budget: the caps of its knobs over time, and its floor."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Membership:
    """What a member's knobs fall back to, and steps in order: from `at_s` on what they are `at_most`.

    Times are on the boot clock. Of no member all is empty. Before the first step the floor is the cap.
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
        """Return it as sent to an agent, with seconds from now on."""
        steps = [{**step, "in_s": step["at_s"] - now} for step in self.steps]
        return {"group": self.group, "revision": self.revision, "floor": self.floor, "steps": steps}
