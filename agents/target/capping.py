"""The power caps of a target: those of all its sides that can be members of a power budget."""

from __future__ import annotations

from collections.abc import Mapping

from agents.actuator_client.caps import HostCaps
from agents.target.side import Capped, Side
from tuner.core import CapKnob, CapSchedule, CapStep, Setting, Value, render_setting


class TargetCaps:
    """The caps of a target. Without cap knobs it cannot be a member, and no setting is clipped."""

    def __init__(self, sides: Mapping[str, Side]) -> None:
        self._members: list[Capped] = [s.capped for s in sides.values() if s.capped is not None]

    @property
    def knobs(self) -> tuple[CapKnob, ...]:
        """The cap knobs of all sides."""
        return tuple(knob for member in self._members for knob in member.caps.knobs)

    def look(self) -> HostCaps:
        """Return the caps that the guards keep; group and revision are the least advanced of all guards.

        Raises ActuationError.
        """
        kept = [member.caps.look() for member in self._members]
        if not kept:
            return HostCaps()
        wrong = "; ".join(k.wrong for k in kept if k.wrong)
        least = min(kept, key=lambda k: (bool(k.group), k.schedule.revision))
        return HostCaps(least.group, least.schedule, wrong)

    def most_w(self) -> float:
        """Return the highest cap in W of the guards' remaining steps, by their last answers."""
        steps = [step for m in self._members for step in m.caps.kept.schedule.steps]
        return max((step.cap_w for step in steps), default=0.0)

    def unsure(self) -> CapStep | None:
        """Return the step in force if all cap knobs are clocks, which bound no watts; else None."""
        if any(knob.floor_w is not None for knob in self.knobs):
            return None
        steps = [member.caps.step() for member in self._members]
        return max((s for s in steps if s is not None), key=lambda s: s.cap_w, default=None)

    def cap(self, group: str, schedule: CapSchedule) -> None:
        """Give all members these steps, whose times are in s from now.

        Raises Conflict, OutOfRange, ActuationError, StoreError.
        """
        for member in self._members:
            member.caps.cap(group, schedule)

    def fall(self) -> None:
        """Set all members to their floor until the next caps. Raises as `cap` does."""
        for member in self._members:
            member.caps.look()
            member.caps.fall()

    def leave(self) -> None:
        """Take all members out of the budget. Raises ActuationError, StoreError."""
        for member in self._members:
            member.caps.leave()

    def at_most(self) -> dict[str, float]:
        """Return the caps in force, by knob; empty if no side is a member."""
        return {k: v for member in self._members for k, v in member.caps.at_most().items()}

    def clipped(self, setting: Setting) -> dict[str, Value]:
        """Return a setting within the caps in force."""
        values = dict(setting)
        for member in self._members:
            values = member.caps.clipped(values)
        return values

    def refreshed(self, setting: Setting) -> dict[str, Value]:
        """Return a setting within the caps that the guards have in force now. Raises ActuationError."""
        if self.knobs:
            self.look()
        return self.clipped(setting)

    def rest(self) -> None:
        """Set members to their original within the caps; called while no setting is tried or held.

        Raises ActuationError.
        """
        for member in self._members:
            member.rest()

    def lowered(self, setting: Setting, now: Setting) -> bool:
        """Return whether only cap knobs of members differ from a setting, and are below it."""
        capped = self.at_most()
        wrong = [k for k, v in setting.items() if now.get(k) != v]
        return all(k in capped and float(now[k]) < float(setting[k]) for k in wrong)


def over_cap(setting: Setting, within: Setting) -> str:
    """Return as text how a setting differs from the one within the caps in force."""
    changed = {k: v for k, v in setting.items() if within[k] != v}
    allowed = render_setting({k: within[k] for k in changed})
    return f"the power cap allows {allowed}, not {render_setting(changed)}"
