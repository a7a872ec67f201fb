"""The groups that share watts in a fleet file: the changes that they need, and making these."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

from tuner.core import BudgetGroup, TimeSeries, TuningError
from tuner.service.budgets.declare import checked, group_of, put, release_budget
from tuner.service.budgets.divider import WattDivider
from tuner.service.declared.diff import Planned
from tuner.service.declared.file import BudgetTable, FleetFile
from tuner.typed_toml import TomlText
from tuner.wire import Change, FleetChange

OF_NO_FILE = frozenset({"name", "events", "revision"})


@dataclass(frozen=True)
class DeclaredWatts:
    """The groups of a file that select registered devices, and the names of those that select none."""

    groups: Sequence[BudgetGroup]
    empty: Sequence[str]


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


def _planned(action: str, group: BudgetGroup, details: tuple[str, ...]) -> Planned:
    """Return a change of a group as operators see it, and the group to store."""
    shown = FleetChange(
        action=action,  # type: ignore[arg-type]
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


def _shown(value: object) -> str:
    """Return a value of a group as text."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {_shown(one)}" for name, one in value.items()) or "none"
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _now_w(divider: WattDivider, group: BudgetGroup) -> float:
    """Return the present watts of a group."""
    return group.steps(divider.source(group), divider.loop.now())[0][1]


def _key(message: str) -> str:
    """Return the key with which a message begins; `name` if it begins with no key."""
    word = message.partition(" ")[0]
    return word if word in {field.name for field in fields(BudgetTable)} else "name"
