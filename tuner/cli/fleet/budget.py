"""`jouletune budget`: groups that share watts, and events of the grid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone
from typing import Annotated

import typer

from tuner.cli.answers import Answer, Rows
from tuner.cli.asking import Api, with_api
from tuner.cli.options import Why, Yes, confirm, user_name
from tuner.core import RESERVE, ConfigError, HourRow
from tuner.moments import moment, when
from tuner.presentation.figures import how_many, joined
from tuner.presentation.standing import power_front
from tuner.wire import AdmitDraft, BudgetDraft, BudgetMemberView, BudgetView, Change, GridDraft

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the group.")]
Watts = Annotated[float | None, typer.Option(min=0.0, help="Watts for the whole group.")]
COLUMNS = ("budget", "watts", "may draw", "missing", "members", "next", "+!error", "+source")
MEMBERS = ("=device", "status", "priority", "floor", "cap", "may draw", "limits", "+front")


@with_api(watch=True, lists=True)
def list_(api: Api) -> Answer:
    """List the groups that share watts."""
    views = api.budgets()
    nothing = "no budgets yet; declare one with `jouletune budget set`"
    return Answer(views, Rows(COLUMNS, map(_row, views), nothing))


def _row(view: BudgetView) -> tuple[str, ...]:
    """Return a group in `COLUMNS`; an unreadable one has no watts."""
    if view.error:
        return (view.name, "unreadable", *"––––", view.error, "–")
    away = sum(member.state == "unreachable" for member in view.members)
    return (
        view.name,
        f"{view.budget_w:.0f} W",
        f"{view.may_draw_w:.0f} W",
        f"{view.missing_w:.0f} W" if view.missing_w > 0.0 else "–",
        f"{len(view.members)}{f', {away} unreachable' if away else ''}",
        "–"
        if view.next_at is None or view.next_w is None
        else f"{view.next_w:.0f} W {when(view.next_at)}",
        "–",
        view.source,
    )


@with_api(watch=True)
def show(api: Api, name: Name) -> Answer:
    """Show a group: its watts, its events, and the cap of each member."""
    return _shown(api.budget(name))


def _shown(view: BudgetView) -> Answer:
    """Return a group as the result of a verb."""
    lines: list[str | Rows] = [*_facts(view), Rows(MEMBERS, map(_member, view.members), "")]
    return Answer(view, lines)


def _facts(view: BudgetView) -> Iterator[str]:
    """Yield a group's watts, events, outside devices, unmet limits and missing watts."""
    yield f"{view.name}: {view.budget_w:.0f} W ({view.source}), may draw {view.may_draw_w:.0f} W"
    if view.next_at is not None and view.next_w is not None:
        yield f"next step: {view.next_w:.0f} W from {when(view.next_at)}"
    for event in view.events:
        most = f"{event.watts:g} W" if event.watts is not None else f"{event.share:.0%}"
        why = f": {event.why}" if event.why else ""
        lasts = f"{when(event.effective_at)} to {when(event.expires_at)}"
        yield f"event {event.id or event.who}: at most {most}, {lasts}{why}"
    if view.outside:
        watts = (
            f"may draw {sum(view.outside.values()):.0f} W of a reserve of {view.reserve_w:.0f} W"
        )
        yield f"outside the group: {joined(view.outside)} {watts}; let in: budget admit {view.name} DEVICE"
    unmet = [m.device for m in view.members if m.unmet]
    if unmet:
        yield f"LIMIT NOT MET: {joined(unmet)}"
    if view.missing_w > 0.0:
        away = [m.device for m in view.members if m.state == "unreachable"]
        yield f"{view.missing_w:.0f} W are missing{f'; unreachable: {joined(away)}' if away else ''}"


def _member(member: BudgetMemberView) -> tuple[str, ...]:
    """Return a member of a group in `MEMBERS`."""
    return (
        member.device,
        member.state,
        str(member.priority),
        f"{member.floor_w:g} W",
        f"{member.cap_w:g} W",
        f"{member.may_draw_w:g} W",
        "NOT MET" if member.unmet else "–",
        power_front(member),
    )


@with_api()
def set_(
    api: Api,
    name: Name,
    select: Annotated[
        list[str],
        typer.Option(metavar="FIELD=PATTERN", help='Members, like "board=A100*"; repeatable.'),
    ],
    watts: Watts = None,
    row: Annotated[
        list[str] | None,
        typer.Option(metavar="HH-HH=WATTS", help="Watts by hour; the first that covers counts."),
    ] = None,
    time_zone: Annotated[str, typer.Option(help="The zone of --row.")] = "UTC",
    series: Annotated[str, typer.Option(help="A series of tuner.toml, in watts.")] = "",
    priority: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN=N", help="Devices whose limits are kept longer."),
    ] = None,
    reboot_after_s: Annotated[
        float, typer.Option(min=30.0, help="Silence after which a host may have rebooted.")
    ] = 120.0,
    measure: Annotated[
        bool, typer.Option(help="Measure members without a front of power by a short study.")
    ] = True,
    reserve: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Part of the watts for devices not let in yet.")
    ] = RESERVE,
    why: Why = "",
) -> Answer:
    """Declare a group that shares watts, or change it."""
    rows = [(h, _number("--row", w)) for h, w in (_pair("--row", r) for r in row or ())]
    chosen: dict[str, tuple[str, ...]] = {}
    for field, pattern in (_pair("--select", one) for one in select):
        chosen[field] = (*chosen.get(field, ()), pattern)
    draft = BudgetDraft(
        select=chosen,
        watts=watts,
        rows=tuple(HourRow(value, hours) for hours, value in rows),
        time_zone=time_zone,
        series=series,
        reboot_after_s=reboot_after_s,
        priorities={
            p: int(_number("--priority", n))
            for p, n in (_pair("--priority", one) for one in priority or ())
        },
        measure=measure,
        reserve=reserve,
        who=user_name(),
        why=why,
    )
    return _shown(api.set_budget(name, draft))


@with_api()
def admit(
    api: Api,
    name: Name,
    device: Annotated[
        list[str], typer.Argument(metavar="DEVICE...", help="Devices outside of it.")
    ],
    why: Why = "",
) -> Answer:
    """Admit devices to a group whose patterns select them."""
    return _shown(api.admit(name, AdmitDraft(devices=tuple(device), who=user_name(), why=why)))


@with_api()
def release(api: Api, name: Name, yes: Yes = False, why: Why = "") -> Answer:
    """Remove a group; its devices return to their original settings."""
    confirm(f"{name} is removed, and its devices may draw their original power.", yes)
    api.release_budget(name, Change(who=user_name(), why=why))
    return Answer({"released": name}, f"{name} is released")


@with_api()
def event(
    api: Api,
    end: Annotated[
        list[str] | None,
        typer.Argument(metavar="[end ID]", help="End an event, or all of a sender."),
    ] = None,
    hours: Annotated[
        float | None, typer.Option(min=0.01, max=168.0, help="How long it lasts.")
    ] = None,
    watts: Watts = None,
    share: Annotated[
        float | None, typer.Option(min=0.0, max=1.0, help="Part of the watts; 0.75 is -25 %.")
    ] = None,
    group: Annotated[
        list[str] | None, typer.Option(help="A group; repeatable. Default: all.")
    ] = None,
    at: Annotated[str, typer.Option(metavar="TIME", help="When it begins. Default: now.")] = "",
    why: Why = "",
) -> Answer:
    """Limit budgets for some time, like an event of the power grid; or end such an event early."""
    if end:
        if len(end) != 2 or end[0] != "end" or any((hours, watts, share, group, at)):
            raise ConfigError(f"cannot read {' '.join(end)!r}", hint="write: budget event end ID")
        ended = api.end_grid_event(end[1], Change(who=user_name(), why=why))
        return Answer(ended, [f"{end[1]} is ended", *_each(ended)])
    if not hours:
        raise ConfigError("--hours is missing", hint="give an event an end, like --hours 3")
    now = datetime.now(timezone.utc)
    begins = moment("--at", at, now)
    draft = GridDraft(
        groups=tuple(group or ()),
        watts=watts,
        share=share,
        effective_at=begins,
        expires_at=(begins or now) + timedelta(hours=hours),
        who=user_name(),
        why=why,
    )
    views = api.grid_event(draft)
    return Answer(views, [how_many(len(views), "budget"), *_each(views)])


def _each(views: Sequence[BudgetView]) -> Iterator[str]:
    """Yield the lines of several groups."""
    for view in views:
        yield from _facts(view)


def _pair(option: str, text: str) -> tuple[str, str]:
    """Return both sides of an equals sign. Raises ConfigError."""
    left, equals, right = text.rpartition("=")
    if not (left and equals and right):
        raise ConfigError(
            f"{option} cannot be {text!r}", hint="write it with a =, like board=A100*"
        )
    return left, right


def _number(option: str, text: str) -> float:
    """Return the number that an option has. Raises ConfigError."""
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"{option} cannot be {text!r}", hint="write a number") from None
