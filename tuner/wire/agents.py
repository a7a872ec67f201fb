"""Between agent and tuner: orders, reports, and how they find each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, model_validator

from tuner.core import (
    Applied,
    CapKnob,
    Device,
    Finite,
    Limit,
    Measurement,
    Ordinal,
    Outcome,
    Phase,
    Seconds,
    Setting,
    Span,
    Watts,
)
from tuner.wire.message import Message, SentPlan

__all__ = [
    "Assignment",
    "BudgetOrder",
    "BudgetReport",
    "CapOrder",
    "Enrolled",
    "Enrolment",
    "HoldOrder",
    "HoldReport",
    "Idle",
    "LONGEST_POLL_S",
    "ORDER",
    "Order",
    "Poll",
    "Receipt",
    "Registered",
    "Registration",
    "Release",
    "Renewal",
    "Reverted",
    "StepReport",
    "TrialReport",
]

LONGEST_POLL_S = 60.0
"""How long an agent may have the tuner wait for news before it answers."""


class Enrolment(Message):
    """An agent asks for a token of its own: its name, and the SHA-256 of the token it has made.

    The token itself never travels before it counts; asking again, after a lost answer, is no harm.
    """

    agent: str
    digest: str = Field(pattern="^[0-9a-f]{64}$")


class Enrolled(Message):
    """The tuner's answer: the agent's own token counts from now on."""

    agent: str


class Registration(Message):
    """An agent introduces a device and the workload on it."""

    device: Device


class Registered(Message):
    """The tuner's answer: how long a lease lasts and when to renew it."""

    lease_s: Seconds


class Poll(Message):
    """A poll: an agent requests an assignment for a device and reports its status.

    `agent` is its name, a slash, and a new word at each of its starts: asking twice gives the
    same assignment, asking after a crash a further attempt.
    `holding` and `revision` name the hold in force (empty: none). The tuner waits up to `wait_s` for
    something new before it answers. `unable` says why the device takes no order now (empty: it does).
    """

    agent: str
    applied: Applied
    holding: str = ""
    revision: Ordinal = 0
    context: dict[str, Finite] = Field(default_factory=dict)
    wait_s: float = Field(default=0.0, ge=0.0, le=LONGEST_POLL_S)
    unable: str = ""


class Assignment(Message):
    """Try this setting: apply, settle, measure, report, under the lease that `token` names.

    `nonce` is that lease's secret: without it neither a renewal nor a report counts.
    `metrics` must be measured for the trial to be complete; `limits` are for aborting early;
    `context` is the load that is requested, empty where any will do; `expected` the load that the window
    is to be compared with, empty where there is none. `follows` is a signal whose mean the window is to
    tell as its load, too; empty for none. `plan` is a table that is followed instead of the setting, which
    is that of its row at the requested load, else its first row's.
    """

    kind: Literal["trial"] = "trial"
    study: str
    revision: Ordinal
    trial: Ordinal
    attempt: Ordinal
    token: Ordinal
    nonce: str
    lease_s: Seconds
    phase: Phase
    setting: Setting
    baseline: Setting
    metrics: tuple[str, ...]
    limits: tuple[Limit, ...] = ()
    window_s: Seconds
    max_window_s: Seconds
    context: Mapping[str, Finite] = Field(default_factory=dict)
    expected: Mapping[str, Finite] = Field(default_factory=dict)
    follows: str = ""
    plan: SentPlan | None = None
    why: str = ""


class HoldOrder(Message):
    """Hold this plan, also without the tuner, for `valid_for_s`; observe it every `observe_s`.

    `limits` has those of each row of the plan, in order. Of windows that break none, one every
    `report_s` is enough: the tuner of a large fleet says so. `follows` is as in an `Assignment`.
    """

    kind: Literal["hold"] = "hold"
    study: str
    revision: Ordinal
    plan: SentPlan
    baseline: Setting
    limits: tuple[tuple[Limit, ...], ...]
    metrics: tuple[str, ...]
    valid_for_s: Seconds
    observe_s: Seconds
    window_s: Seconds
    report_s: Span = 0.0
    follows: str = ""

    @model_validator(mode="after")
    def _of_every_row(self) -> HoldOrder:
        if len(self.limits) != len(self.plan.rows):
            raise ValueError("a hold assignment needs the limits of every row of its plan")
        return self


class Idle(Message):
    """Nothing to do now; stay at the hold, or at what the device was before."""

    kind: Literal["idle"] = "idle"
    why: str = ""


class Release(Message):
    """No active study: end any hold and restore the device to its original setting."""

    kind: Literal["release"] = "release"
    why: str = ""


Order = Annotated[Assignment | HoldOrder | Idle | Release, Field(discriminator="kind")]
ORDER: TypeAdapter[Assignment | HoldOrder | Idle | Release] = TypeAdapter(Order)


class BudgetReport(Message):
    """A device whose host lets it be a member of a budget, and what is in force there.

    `POST /v1/devices/ID/budget`; the tuner waits up to `wait_s` for other caps before it answers with a
    `BudgetOrder`. `group` is empty for no member. `revision` is that of the steps acknowledged, after the
    write; 0: the host has none, as after a reboot, and the floor is in force. `at_most` is the cap in force
    by knob, `most_w` the highest cap in watts of the steps that the host still has before it. `unable` says
    why no cap can be kept (empty: it can). `above_w` is the power measured above what the clock ceilings
    `above_at` count with, since these steps arrived (0: none was): the host is at its floor since then.
    """

    agent: str
    knobs: tuple[CapKnob, ...]
    group: str = ""
    revision: Ordinal = 0
    at_most: dict[str, Finite] = Field(default_factory=dict)
    most_w: Watts = 0.0
    above_w: Watts = 0.0
    above_at: dict[str, Finite] = Field(default_factory=dict)
    wait_s: float = Field(default=0.0, ge=0.0, le=LONGEST_POLL_S)
    unable: str = ""


class CapOrder(Message):
    """From `in_s` seconds after its receipt on, no cap knob is above `at_most`; that counts as `cap_w`."""

    in_s: Span
    cap_w: Watts
    at_most: dict[str, Finite]


class BudgetOrder(Message):
    """The tuner's answer to a `BudgetReport`.

    `none`: nothing new; what is in force stays, also where the tuner knows no such group. `caps`: be a
    member of `group` with these steps in place of all earlier ones, the first of them now. `release`: leave
    `group` and go back to the original setting.
    """

    kind: Literal["none", "caps", "release"] = "none"
    group: str = ""
    revision: Ordinal = 0
    steps: tuple[CapOrder, ...] = ()

    @model_validator(mode="after")
    def _whole(self) -> BudgetOrder:
        times = [step.in_s for step in self.steps]
        if self.kind != "none" and not self.group:
            raise ValueError(f"{self.kind} needs a group")
        if self.kind == "caps" and (times[:1] != [0.0] or times != sorted(times)):
            raise ValueError("caps need steps in order of time, the first of them now")
        if self.kind == "caps" and self.revision < 1:
            raise ValueError("caps need a revision above 0")
        return self


class Renewal(Message):
    """An agent is still at work on a trial."""

    device: str
    token: Ordinal
    nonce: str


class TrialReport(Message):
    """How one device's attempt at a trial ended."""

    device: str
    study: str
    trial: Ordinal
    attempt: Ordinal
    token: Ordinal
    nonce: str
    outcome: Outcome


class StepReport(Message):
    """A step of a continuous study that an agent made by itself while the tuner was away.

    `key` is the agent's own word for it: a step reported twice counts once.
    """

    device: str
    study: str
    key: str = Field(min_length=8, max_length=64, pattern="^[0-9a-zA-Z-]+$")
    setting: Setting
    outcome: Outcome


class Receipt(Message):
    """What became of a report: it closed the trial, waits for other devices, was late or known."""

    result: Literal["closed", "kept", "late", "duplicate"]


class HoldReport(Message):
    """One window measured while holding, or the end of a hold (`ended` says why)."""

    device: str
    study: str
    revision: Ordinal
    setting: Setting
    measurement: Measurement | None = None
    ended: str = ""


class Reverted(Message):
    """An operator reverts a device on its host; `why` says so, and when, unlike any other time."""

    device: str
    why: str
