"""Budgets as operators declare and see them."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import AwareDatetime, ConfigDict, Field

from tuner.core import RESERVE, GridEvent, HourRow, Priority, Share, Span, Watts
from tuner.wire.message import OperatorView, Shown
from tuner.wire.operators import Change

__all__ = ["AdmitDraft", "BudgetDraft", "BudgetMemberView", "BudgetView", "GridDraft"]


class BudgetDraft(Change):
    """A group of devices and the watts they share: `watts`, `rows` by hour, or the name of a `series`.

    `select` has patterns by `id`, `board`, `kind`, `host`, `workload` or label. `priorities` are by
    patterns of device ids. With `measure` a member without a front has it measured by a study of its own.
    `reserve` is the share of the watts for devices that match later, until they are let in.
    """

    model_config = ConfigDict(ser_json_inf_nan="strings", frozen=True, extra="forbid")

    select: dict[str, tuple[str, ...]]
    watts: Watts | None = None
    rows: tuple[HourRow, ...] = ()
    time_zone: str = "UTC"
    series: str = ""
    reboot_after_s: Span = 120.0
    priorities: dict[str, Priority] = Field(default_factory=dict)
    measure: bool = True
    reserve: Share = RESERVE


class AdmitDraft(Change):
    """Devices to let into a group that selects them."""

    model_config = ConfigDict(ser_json_inf_nan="strings", frozen=True, extra="forbid")

    devices: tuple[str, ...]


class GridDraft(Change):
    """A limit for some time on `groups` (none named: on all): `watts`, or a `share` of their own watts.

    Without `effective_at` it counts from now on. It takes the place of an event with its `id` (empty: a new
    one). It ends within 7 days.
    """

    model_config = ConfigDict(ser_json_inf_nan="strings", frozen=True, extra="forbid")

    groups: tuple[str, ...] = ()
    watts: Watts | None = None
    share: Share | None = None
    effective_at: AwareDatetime | None = None
    expires_at: AwareDatetime
    id: str = ""


class BudgetMemberView(OperatorView):
    """A member: the cap that it was sent last, and the most that it may draw, in watts.

    `front` is the metric by which its watts are valued; empty: not measured, it shares uniformly.
    `measured_by` is the study that measures it now. `unmet` says that its cap does not keep its limits,
    `by_clock` that its cap is a clock ceiling: its watts are measured, and no hard cap.
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
    """A group: its watts now and at the next step, what its members may draw, and what does not fit.

    `missing_w` are the watts above the budget that no reachable member can give up. `outside` are devices
    that it selects and that nobody has let in, with the watts that each may draw; `reserve_w` covers them.
    `error` says why the group cannot be worked out (empty: it can); its watts are then none that count.
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
