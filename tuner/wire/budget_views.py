"""Budgets as operators declare and see them."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import AwareDatetime, ConfigDict, Field

from tuner.core import BudgetTerms, GridEvent, HourRow, Priority, Share, Watts
from tuner.wire.message import OperatorView, Shown
from tuner.wire.operators import Change


class BudgetDraft(Change, BudgetTerms):  # type: ignore[misc] # pydantic freezes it
    """A group of devices and the watts they share: `watts`, `rows` by hour, or the name of a `series`.

    `select` has patterns of `id`, `board`, `kind`, `host`, `workload` or a label. `priorities` are by
    patterns of device ids. With `measure` a study is created for each member without a measured front.
    `reserve` is the share of the watts kept for devices that match later, until an operator admits them.
    """

    model_config = ConfigDict(ser_json_inf_nan="strings", frozen=True, extra="forbid")

    select: dict[str, tuple[str, ...]]
    watts: Watts | None = None
    rows: tuple[HourRow, ...] = ()
    time_zone: str = "UTC"
    priorities: dict[str, Priority] = Field(default_factory=dict)


class AdmitDraft(Change):
    """The devices to admit into a group that selects them."""

    model_config = ConfigDict(ser_json_inf_nan="strings", frozen=True, extra="forbid")

    devices: tuple[str, ...]


class GridDraft(Change):
    """A temporary limit on `groups` (empty: all groups): `watts`, or a `share` of each group's own watts.

    Without `effective_at` it starts now. It replaces the event with the same `id`; an empty `id` creates
    a new event. It ends within 7 days.
    """

    model_config = ConfigDict(ser_json_inf_nan="strings", frozen=True, extra="forbid")

    groups: tuple[str, ...] = ()
    watts: Watts | None = None
    share: Share | None = None
    effective_at: AwareDatetime | None = None
    expires_at: AwareDatetime
    id: str = ""


class BudgetMemberView(OperatorView):
    """A member: the cap that was last sent to it, and the most that it may draw, in watts.

    `front` is the metric that values its watts; empty: not measured, the member gets an equal share.
    `measured_by` is the study that measures it now. `unmet`: its limits are not kept under its cap.
    `by_clock`: its cap is a clock ceiling whose watts are measured; it is not a hard cap.
    """

    device: str
    state: Literal["joined", "joining", "unreachable", "leaving"]
    priority: int
    floor_w: float
    cap_w: float
    may_draw_w: float
    front: str = ""
    measured_by: str = ""
    unmet: bool = False
    by_clock: bool = False


class BudgetView(OperatorView):
    """A group: its watts now and at the next step, the draw of its members, and the watts that do not fit.

    `missing_w` are the watts above the budget that no reachable member can give up. `outside` are the
    devices that the group selects and that no operator has admitted, with the watts that each may draw;
    `reserve_w` covers them. `error` is the reason why the group cannot be computed, empty if it can; with
    an error its watts do not count.
    """

    name: str
    select: dict[str, tuple[str, ...]]
    source: str
    budget_w: float
    next_at: datetime | None = None
    next_w: float | None = None
    may_draw_w: float
    missing_w: float = 0.0
    reboot_after_s: float
    measure: bool = True
    reserve_w: float = 0.0
    outside: dict[str, float] = Field(default_factory=dict)
    events: tuple[GridEvent, ...] = ()
    error: Shown = ""
    members: tuple[BudgetMemberView, ...] = ()
