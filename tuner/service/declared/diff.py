"""The changes that a fleet file needs: studies and budgets to create, change, replace or stop, in order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

from tuner.core import (
    BudgetGroup,
    Exploration,
    MaintenanceWindow,
    Study,
    Terms,
    TimeSeries,
    TuningError,
    Unreadable,
    UnreadableStudy,
)
from tuner.service.budgets.divider import WattDivider
from tuner.service.budgets.operations import checked, group_of, put, release_budget
from tuner.service.declared.file import BudgetTable, Desired, FleetFile
from tuner.study.loop import Loop
from tuner.typed_toml import TomlText
from tuner.wire import Change, FleetChange

Action = Literal["create", "change", "stop"]
MOST_VALUES = 6
"""The most values of a knob that a line lists."""
OF_NO_FILE = frozenset({"name", "events", "revision"})
"""Fields of a group that no file declares."""


@dataclass(frozen=True)
class DeclaredWatts:
    """The groups of a file that select registered devices, and the names of those that select none."""

    groups: Sequence[BudgetGroup]
    empty: Sequence[str]


@dataclass(frozen=True, slots=True)
class Planned:
    """A change as operators see it, and the study or budget that it stores; without either it is a stop."""

    shown: FleetChange
    study: Study | None
    budget: BudgetGroup | None = None


def changes(loop: Loop, file: Desired, *, prune: bool) -> list[Planned]:
    """Return the changes, stops first. Raises Unreadable: a study that is in the way cannot be read."""
    active = {study.id: study for study in loop.store.studies.stored(active=True)}
    owners = {device: study for study in active.values() for device in study.devices}
    stops: dict[str, Planned] = {}
    others: list[Planned] = []
    continuing: set[str] = set()
    for declared in file.studies:
        study = declared.study
        present = {o.id: o for device in study.devices if (o := owners.get(device))}
        like = _same(study, present)
        if like is None:
            stops |= {id: _stop(o, study.group) for id, o in present.items()}
            others.append(_create(study))
            continue
        continuing.add(like.id)
        # Without `frozen` in the file a present freeze stays, even if the study is replaced.
        limits = declared.exploration.over(like.exploration)
        target = replace(study, exploration=limits)
        if reasons := tuple(_replacing(like, target)):
            stops[like.id] = _stop(like, study.group)
            others.append(_create(target, reasons))
        elif details := tuple(_changing(like, target)):
            others.append(Planned(_change("change", like, target, details), target))
    for device in file.observed:
        if (owner := owners.get(device)) is not None:
            stops[owner.id] = _stop(owner, file.observed[device])
    if prune:
        grouped = (s for s in active.values() if isinstance(s, Study) and s.group)
        stops |= {s.id: _stop(s, "") for s in grouped if s.id not in continuing | stops.keys()}
    return [*stops.values(), *others]


def fingerprint(planned: Sequence[Planned]) -> str:
    """Return a digest of a list of changes, which covers the revisions of the studies to change."""
    text = "\n".join(
        f"{p.shown.action} {p.shown.study} {p.shown.revision} {p.shown.devices} {p.shown.details}"
        f"{p.shown.budget}"
        for p in planned
    )
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _same(study: Study, present: Mapping[str, Study | UnreadableStudy]) -> Study | None:
    """Return the active study of exactly these devices; None if no study has exactly these."""
    if len(present) != 1:
        return None
    (owner,) = present.values()
    if set(owner.devices) != set(study.devices):
        return None
    if isinstance(owner, UnreadableStudy):
        raise Unreadable(
            f"study {owner.id} of {owner.devices[0]} cannot be read: {owner.error}",
            hint="delete it, then apply again",
        )
    return owner


def _create(study: Study, why: Sequence[str] = ()) -> Planned:
    """Return the creation of a study, with the reasons for it."""
    limits = ", ".join(map(str, study.constraints)) or "no constraint"
    details = (*why, f"{study.objective} under {limits}")
    return Planned(_change("create", study, study, details), study)


def _stop(study: Study | UnreadableStudy, group: str) -> Planned:
    """Return the stop of a study.

    `group` declares its device; it is empty if the file no longer has the study.
    """
    own = study.group if isinstance(study, Study) else ""
    why = f"its device is declared in group {group!r}" if group else f"group {own!r} has it no more"
    shown = FleetChange.of(study, action="stop", group=own, study=study.id, details=(why,))
    return Planned(shown, None)


def _change(action: Action, present: Study, target: Study, details: Sequence[str]) -> FleetChange:
    """Return a change of a study as operators see it."""
    id, revision = ("", 0) if action == "create" else (present.id, present.revision)
    return FleetChange.of(
        target, action=action, study=id, revision=revision, details=tuple(details)
    )


def _replacing(present: Study, target: Study) -> Iterator[str]:
    """Yield the differences that need a new study."""
    written = target.written
    for name, then in present.written.items():
        if name not in ("name", "terms", "constraints") and then != written[name]:
            yield f"{name}: {_shown(then)} → {_shown(written[name])}"
    # A change of constraints may have granted trials beyond the declared number: ignored here.
    granted = replace(present.terms, trials=min(present.terms.trials, target.terms.trials))
    for field in fields(Terms):
        then, now = getattr(granted, field.name), getattr(target.terms, field.name)
        if then != now:
            yield f"terms.{field.name}: {then} → {now}"
    then_knobs, now_knobs = (
        {k.name: (k.values, str(k.condition or "")) for k in s.space.knobs}
        for s in (present, target)
    )
    for name in dict.fromkeys([*then_knobs, *now_knobs]):
        then, now = then_knobs.get(name, ((), "")), now_knobs.get(name, ((), ""))
        if then != now:
            yield f"{name}: {_values(*then)} → {_values(*now)}"


def _changing(present: Study, target: Study) -> Iterator[str]:
    """Yield the differences that a study accepts while it continues."""
    if present.constraints != target.constraints:
        then, now = (", ".join(map(str, s.constraints)) or "none" for s in (present, target))
        yield f"constraints: {then} → {now}"
    for field in fields(Exploration):
        then, now = (getattr(s.exploration, field.name) for s in (present, target))
        if then != now:
            yield f"exploration.{field.name}: {_shown(then)} → {_shown(now)}"
    if present.group != target.group:
        yield f"group: {present.group or 'none'} → {target.group}"


def _values(values: Sequence[object], condition: str) -> str:
    """Return the values of a knob as text; of more than six, the first and the last."""
    if not values:
        return "none"
    many = len(values) > MOST_VALUES
    text = (
        f"{values[0]} … {values[-1]} ({len(values)} values)"
        if many
        else ", ".join(map(str, values))
    )
    return f"{text} if {condition}" if condition else text


def _shown(value: object) -> str:
    """Return a compared value as text."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {_shown(one)}" for name, one in value.items()) or "none"
    if isinstance(value, tuple):
        return ", ".join(map(_shown, value)) or "none"
    if isinstance(value, MaintenanceWindow):
        return f"{value.cron} for {value.hours:g} h"
    return str(value) or "none"


def declared_watts(
    divider: WattDivider, text: TomlText, file: FleetFile, *, prune: bool
) -> DeclaredWatts:
    """Return the groups that a file declares, checked beside the stored groups that stay.

    Raises:
        ConfigError: a group is not valid; the error names line and key.
    """
    names = [table.name for table in file.budgets]
    stored = divider.loop.store.budgets.groups()
    others = [g for g in stored if g.name not in names and not (prune and g.declared)]
    devices = divider.loop.store.devices.list()
    groups: list[BudgetGroup] = []
    empty = []
    for at, table in enumerate(file.budgets):
        if table.name in names[:at]:
            raise text.refuses(("budget", at, "name"), f"name {table.name!r} is used twice")
        draft = table.draft()
        try:
            if any(map(group_of(table.name, draft).selects, devices)):
                group = checked(divider, table.name, draft, [*others, *groups])
                groups.append(replace(group, declared=True))
            else:
                empty.append(table.name)
        except TuningError as error:
            key = error.key or _key(error.message)
            raise text.refuses(("budget", at, key), error.message, error.hint) from error
    return DeclaredWatts(groups, empty)


def watts_changes(divider: WattDivider, target: DeclaredWatts, *, prune: bool) -> list[Planned]:
    """Return the changes: groups whose watts fall first, new ones, then those whose watts rise.

    With `prune`, declared groups that the file no longer has are removed last.
    """
    stored = {g.name: g for g in divider.loop.store.budgets.groups()}
    planned: list[tuple[float, Planned]] = []
    for group in target.groups:
        former = stored.pop(group.name, None)
        if former is None:
            planned.append((0.0, _planned("create", group, (_watts(group),))))
        elif details := tuple(_differences(former, group)):
            more_w = _now_w(divider, group) - _now_w(divider, former)
            planned.append((more_w, _planned("change", group, details)))
    changes = [one for _, one in sorted(planned, key=lambda pair: pair[0])]
    kept = {group.name for group in target.groups} | set(target.empty)
    if prune:
        gone = [g for g in stored.values() if g.declared and g.name not in kept]
        why = ("the file has it no more; its devices return to their originals",)
        changes += [replace(_planned("stop", g, why), budget=None) for g in gone]
    return changes


def change_watts(divider: WattDivider, one: Planned, who: str, why: str) -> None:
    """Make one change of a group."""
    if one.budget is None:
        release_budget(divider, one.shown.budget, Change(who=who, why=why))
    else:
        put(divider, one.budget, f"set by {who}: {why}")


def _planned(action: Action, group: BudgetGroup, details: tuple[str, ...]) -> Planned:
    """Return a change of a group as operators see it, and the group to store."""
    shown = FleetChange(
        action=action,
        group="",
        devices=(),
        study="",
        revision=0,
        details=details,
        budget=group.name,
    )
    return Planned(shown, None, group)


def _differences(former: BudgetGroup, group: BudgetGroup) -> Iterator[str]:
    """Yield the differences between a stored group and a declared one."""
    for field in fields(BudgetGroup):
        then, now = getattr(former, field.name), getattr(group, field.name)
        if field.name in OF_NO_FILE or then == now:
            continue
        if field.name in ("watts", "series"):
            if field.name == "series" or former.series == group.series:
                yield f"watts: {_watts(former)} → {_watts(group)}"
        elif field.name == "declared":
            yield "declared: by hand → by a file"
        else:
            yield f"{field.name}: {_shown(then)} → {_shown(now)}"


def _watts(group: BudgetGroup) -> str:
    """Return the watts of a group as text."""
    series = group.watts or TimeSeries()
    if group.series:
        return f"the series {group.series}"
    if series.constant is not None:
        return f"{series.constant:g} W"
    rows = ", ".join(f"{' '.join((*row.days, row.hours))} {row.value:g} W" for row in series.rows)
    return f"{rows} ({series.time_zone})"


def _now_w(divider: WattDivider, group: BudgetGroup) -> float:
    """Return the present watts of a group."""
    return group.steps(divider.source(group), divider.loop.now())[0][1]


def _key(message: str) -> str:
    """Return the key with which a message begins; `name` if it begins with no key."""
    word = message.partition(" ")[0]
    return word if word in {field.name for field in fields(BudgetTable)} else "name"
