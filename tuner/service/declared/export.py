"""The present studies and budgets, as a fleet file that declares them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, fields
from typing import Any

from tuner.bounds import redacted
from tuner.core import (
    BudgetGroup,
    BudgetTerms,
    Device,
    Exploration,
    HourRow,
    Study,
    Terms,
    TimeSeries,
    TuningError,
    UnreadableStudy,
    Value,
    Written,
)
from tuner.service.budgets.fronts import SWEEP
from tuner.service.declared.file import BudgetTable
from tuner.service.drafts import space_of
from tuner.study.loop import Loop
from tuner.typed_toml import to_toml
from tuner.wire import StudyDraft

IN_HEAD = frozenset({"name", "terms"})
"""Fields that a table writes by itself; the name of a group is that of its studies."""
HEAD = "# The active studies, by their devices' ids; `select` may also go by board, workload and labels."


def exported(loop: Loop) -> str:
    """Return the active studies and the budgets as a fleet file; equal studies of a group share a table.

    Each that cannot be read is a comment with the reason.
    """
    devices = {device.id: device for device in loop.store.devices.list()}
    alike: dict[str, list[Study]] = {}
    tables: dict[str, dict[str, Any]] = {}
    stored, budgets = loop.store.studies.stored(active=True), loop.store.budgets.groups()
    lost = dict(budgets.unread)
    for study in stored:
        if isinstance(study, UnreadableStudy):
            lost[study.id] = study.error
        elif study.policy != SWEEP:  # it ends by itself
            table = _table(study, [devices[n] for n in study.devices if n in devices])
            key = f"{study.group or study.name} {_toml(table)}"
            key = study.id if len(study.devices) > 1 else key
            tables[key] = table
            alike.setdefault(key, []).append(study)
    names: set[str] = set()
    groups = [_group(studies, tables[key], names) for key, studies in alike.items()]
    groups += [_budget(group) for group in budgets]
    groups += [
        f"# {name} is left out: {' '.join(redacted(why).split())}" for name, why in lost.items()
    ]
    return "\n\n".join([HEAD, *groups]) + "\n"


def _group(studies: list[Study], own: Mapping[str, Any], names: set[str]) -> str:
    """Return the table of studies that differ only in their devices."""
    first = studies[0]
    called = first.group or first.name
    name = called if called and called not in names else first.id
    names.add(name)
    ids = [device for study in studies for device in study.devices]
    together = {"together": True} if len(first.devices) > 1 else {}
    table = {"name": name, "select": {"id": ids}, **together, **own}
    lost = [
        f"# {s.id}: the name {s.name!r} is not exported"
        for s in studies
        if s.name not in ("", name)
    ]
    return "\n".join(
        [*lost, "[[group]]", *(f"{key} = {_toml(value)}" for key, value in table.items())]
    )


def _budget(group: BudgetGroup) -> str:
    """Return the table of a group that shares watts, without its events, which end by themselves."""
    series, usual = group.watts or TimeSeries(), BudgetTable(name=group.name, select={})
    rows = [
        {n: v for n, v in asdict(row).items() if v != asdict(HourRow(0.0))[n] or n == "value"}
        for row in series.rows
    ]
    values = {
        "watts": series.constant,
        "rows": rows,
        "time_zone": series.time_zone,
        "priorities": group.priorities,
        **{field.name: getattr(group, field.name) for field in fields(BudgetTerms)},
    }
    chosen = {n: v for n, v in values.items() if v not in (None, []) and v != getattr(usual, n)}
    table = {"name": group.name, "select": group.select, **chosen}
    return "\n".join(["[[budget]]", *(f"{key} = {_toml(value)}" for key, value in table.items())])


def _table(study: Study, devices: Sequence[Device]) -> dict[str, Any]:
    """Return the declaration of a study without its devices; defaults are left out."""
    own, usual = study.written, asdict(Written())
    optional = {
        **{n: value for n, value in own.items() if value != usual[n] and n not in IN_HEAD},
        "terms": _changed(study.terms, Terms()),
        "choices": _choices(study, devices),
        "conditions": {k.name: str(k.condition) for k in study.space.knobs if k.condition},
        "exploration": _changed(study.exploration, Exploration()),
    }
    always = {n: own[n] for n in ("objective", "constraints", "policy")}
    return always | {name: value for name, value in optional.items() if value}


def _changed(limits: Terms | Exploration, usual: Terms | Exploration) -> dict[str, Any]:
    """Return the fields that do not have their default."""
    return {n: v for n, v in asdict(limits).items() if v != asdict(usual)[n]}


def _choices(study: Study, devices: Sequence[Device]) -> dict[str, list[Value]]:
    """Return the values of knobs that differ from those that a study of these devices has by default."""
    usual: dict[str, tuple[Value, ...]] = {}
    if len(devices) == len(study.devices):
        with suppress(TuningError):  # the devices have changed: every knob is named
            space = space_of(devices, StudyDraft(devices=study.devices, terms=study.terms))
            usual = {knob.name: knob.values for knob in space.knobs}
    knobs = study.space.knobs
    return {k.name: list(k.values) for k in knobs if usual.get(k.name) != k.values}


def _toml(value: Any) -> str:  # noqa: ANN401  any TOML value
    """Return a value as TOML; text, numbers and lists are written as in JSON."""
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_key(key)} = {_toml(one)}" for key, one in value.items())
        return f"{{ {inner} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return to_toml(value)


def _key(name: str) -> str:
    """Return a key as TOML, quoted if needed."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else to_toml(name)
