"""The bodies of `/knobs`, for the server and for its client."""

from __future__ import annotations

from pydantic import BaseModel, Field

from tuner.core import Condition, Cost, Knob, Part, Role, Setting, Space, Value


class CostReply(BaseModel):
    """The cost of changing a knob: seconds, and whether the workload restarts."""

    seconds: float = Field(default=0.0, ge=0.0, allow_inf_nan=False)
    restart: bool = False


class KnobReply(BaseModel):
    """One knob of a workload.

    The knob has an effect only while `condition` holds, like `workers > 0`; an empty condition always
    holds. Beyond each of its `breaks`, which ascend, its effect may change.
    """

    name: str
    values: tuple[Value, ...]
    default: Value
    cost: CostReply = CostReply()
    role: Role = Role.UNKNOWN
    condition: str = ""
    breaks: tuple[float, ...] = ()


class KnobsReply(BaseModel):
    """The reply to `GET /knobs`."""

    name: str = Field(min_length=1)
    version: str
    knobs: tuple[KnobReply, ...] = Field(min_length=1)
    only: tuple[dict[str, Value], ...] = ()
    setting: dict[str, Value]

    def space(self) -> Space:
        """Return the knobs as a space. Raises InvalidInput: the knobs do not form a valid space."""
        knobs = tuple(
            Knob(
                k.name,
                k.values,
                k.default,
                Part.WORKLOAD,
                Cost(seconds=k.cost.seconds, restart=k.cost.restart),
                k.role,
                condition=Condition.parse(k.condition) if k.condition else None,
                breaks=k.breaks,
            )
            for k in self.knobs
        )
        space = Space(knobs, self.only)
        space.refuse_unreached(knob.name for knob in knobs)
        return space


def knobs_reply(name: str, version: str, space: Space, setting: Setting) -> KnobsReply:
    """Return a server's reply about its knobs and the setting in force."""
    knobs = tuple(
        KnobReply(
            name=knob.name,
            values=knob.values,
            default=knob.default,
            cost=CostReply(seconds=knob.cost.seconds, restart=knob.cost.restart),
            role=knob.role,
            condition=str(knob.condition or ""),
            breaks=knob.breaks,
        )
        for knob in space.knobs
    )
    only = tuple(dict(one) for one in space.only)
    return KnobsReply(name=name, version=version, knobs=knobs, only=only, setting=dict(setting))
