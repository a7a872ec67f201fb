"""Messages between agent and tuner: enrolment, registration, orders and reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, TypeAdapter, model_validator

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
    refuse_hours,
)
from tuner.wire.message import MOST_ORDER_BYTES, Message, SentPlan

LONGEST_POLL_S = 60.0
"""The longest time that an agent may let the tuner wait for news before it answers."""


class Enrolment(Message):
    """An agent's request for its own token: its name, and the SHA-256 of the token that it has made.

    The token itself is not sent before it is valid. Repeating the request after a lost answer is
    harmless.
    """

    agent: str
    digest: str = Field(pattern="^[0-9a-f]{64}$")


class Enrolled(Message):
    """The tuner's answer to an `Enrolment`: the agent's own token is valid from now on."""

    agent: str


class Registration(Message):
    """A device that an agent registers, with its workload."""

    most_bytes = MOST_ORDER_BYTES
    device: Device


class Registered(Message):
    """The tuner's answer to a registration or a renewal: the length of a lease, after which it expires."""

    lease_s: Seconds


ONLY_OBSERVED = "it is only observed: agent.toml has `observe = true` in its [[device]] table"
"""Why an observed device that is measured accepts no orders; any other reason is a fault."""


class Poll(Message):
    """An agent's request for an assignment for a device, with the device's status.

    `agent` is the agent's name, a slash and a word that is new at each start of the agent: a repeated
    poll gets the same assignment, a poll after a crash another attempt. `holding` and `revision` name the
    hold in force; empty without one. The tuner waits up to `wait_s` for news before it answers. `unable`
    is the reason why the device accepts no orders now; empty if it accepts them.
    """

    agent: str
    applied: Applied
    holding: str = ""
    revision: Ordinal = 0
    context: dict[str, Finite] = Field(default_factory=dict)
    wait_s: float = Field(default=0.0, ge=0.0, le=LONGEST_POLL_S)
    unable: str = ""


class Assignment(Message):
    """A trial to run: apply the setting, settle, measure and report, under the lease that `token` names.

    `nonce` is that lease's secret: a renewal or a report without it does not count. A complete trial has
    measured all `metrics`; `limits` serve to abort it early. `context` is the requested load, empty for
    any load. `expected` is the load that the window is compared with, empty for no comparison. `follows`
    is a signal whose mean in the window is also reported as load, empty for no signal. `plan` is followed
    in place of the setting; `setting` is then that of the plan's row at the requested load, else that of
    its first row.
    """

    most_bytes = MOST_ORDER_BYTES
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
    """An order to hold a plan for `valid_for_s`, even without the tuner, measured every `observe_s`.

    `limits` has the limits of each row of the plan, in the plan's order. Of the windows that break no
    limit, one every `report_s` is enough; the tuner of a large fleet sets it. `follows` is as in an
    `Assignment`.
    """

    most_bytes = MOST_ORDER_BYTES
    kind: Literal["hold"] = "hold"
    study: str
    revision: Ordinal
    plan: Annotated[SentPlan, AfterValidator(refuse_hours)]
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
        """Refuse an order whose limits do not match the rows of its plan."""
        if len(self.limits) != len(self.plan.rows):
            raise ValueError("a hold assignment needs the limits of every row of its plan")
        return self


class Idle(Message):
    """Nothing to do now: keep the hold or, without a hold, leave the device as it is."""

    kind: Literal["idle"] = "idle"
    why: str = ""


class Release(Message):
    """No active study: end any hold and restore the device to its original setting."""

    kind: Literal["release"] = "release"
    why: str = ""


Order = Annotated[Assignment | HoldOrder | Idle | Release, Field(discriminator="kind")]
ORDER: TypeAdapter[Assignment | HoldOrder | Idle | Release] = TypeAdapter(Order)


class BudgetReport(Message):
    """The caps in force on a device whose host allows it to join a budget.

    `POST /v1/devices/ID/budget`; the tuner waits up to `wait_s` for other caps before it answers with a
    `BudgetOrder`. `group` is empty for a device in no group. `revision` is that of the last steps that
    the host wrote and acknowledged; 0: the host has no steps, as after a reboot, and the floor is in
    force. `at_most` is the cap in force by knob. `most_w` is the highest cap in watts of the steps that
    the host keeps, later ones included. `unable` is the reason why no cap can be kept; empty if it can.

    `above_w` is the highest measured power that exceeded the watts counted for the clock ceilings
    `above_at`, since these steps arrived; 0 without an excess. After an excess the host stays at its
    floor.
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
    """From `in_s` seconds after receipt, no cap knob is above `at_most`, which counts as `cap_w` watts."""

    in_s: Span
    cap_w: Watts
    at_most: dict[str, Finite]


class BudgetOrder(Message):
    """The tuner's answer to a `BudgetReport`.

    `none`: no change; the caps in force stay, even if the tuner has no such group. `caps`: join `group`
    with these steps, which replace all earlier ones; the first applies now. `release`: leave `group` and
    return to the original setting.
    """

    kind: Literal["none", "caps", "release"] = "none"
    group: str = ""
    revision: Ordinal = 0
    steps: tuple[CapOrder, ...] = ()

    @model_validator(mode="after")
    def _whole(self) -> BudgetOrder:
        """Refuse an order without a group, steps out of order, and caps without a revision."""
        times = [step.in_s for step in self.steps]
        if self.kind != "none" and not self.group:
            raise ValueError(f"{self.kind} needs a group")
        if self.kind == "caps" and (times[:1] != [0.0] or times != sorted(times)):
            raise ValueError("caps need steps in order of time, the first of them now")
        if self.kind == "caps" and self.revision < 1:
            raise ValueError("caps need a revision above 0")
        return self


class Renewal(Message):
    """An agent's request to renew the lease of a trial that is still running."""

    device: str
    token: Ordinal
    nonce: str


class TrialReport(Message):
    """The outcome of one device's attempt at a trial."""

    device: str
    study: str
    trial: Ordinal
    attempt: Ordinal
    token: Ordinal
    nonce: str
    outcome: Outcome


class StepReport(Message):
    """A step of a continuous study that an agent made on its own while the tuner was away.

    `key` is an identifier that the agent chooses: a step reported twice counts once.
    """

    device: str
    study: str
    key: str = Field(min_length=8, max_length=64, pattern="^[0-9a-zA-Z-]+$")
    setting: Setting
    outcome: Outcome


class Receipt(Message):
    """The tuner's answer to a report.

    `closed`: the trial or the hold is closed. `kept`: a hold's window is stored, or the trial waits for
    the reports of other devices. `late`: the report no longer counts. `duplicate`: the tuner already has
    it.
    """

    result: Literal["closed", "kept", "late", "duplicate"]


class HoldReport(Message):
    """One window measured during a hold, or the end of a hold, with its reason in `ended`.

    `study` is empty for a window of a device that is only observed. The window counts for `speaks_s`: the
    time in s since the last due one ended, and that of windows which `report_s` left out. None: unknown.
    """

    device: str
    study: str
    revision: Ordinal
    setting: Setting
    measurement: Measurement | None = None
    ended: str = ""
    speaks_s: Span | None = None


class Reverted(Message):
    """The notice that an operator reverted a device on its host.

    `why` includes the time, so that it identifies this revert: a repeated notice changes nothing.
    """

    device: str
    why: str
