"""The present studies and budgets, as a fleet file that declares them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, fields
from itertools import chain
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
from tuner.service.budgets.measuring import SWEEP
from tuner.service.declared.file import BudgetTable, StudyTable
from tuner.service.drafts import space_of
from tuner.study.loop import Loop
from tuner.typed_toml import to_toml
from tuner.wire import StudyDraft

IN_HEAD = frozenset({"name", "terms"})
"""Fields that a table writes by itself; the name of a group is that of its studies."""
OF_A_STUDY = tuple(f.name for f in fields(StudyTable) if f.name != "device")
"""Keys in which one study of a group may differ."""
HEAD = "# The active studies, by their devices' ids; `select` may also go by board, workload and labels."


def exported(loop: Loop) -> str:
    """Return the active studies and the budgets as a fleet file; studies of a group share a table.

    Each that cannot be read is a comment with the reason.
    """
    devices = {device.id: device for device in loop.store.devices.list()}
    alike: dict[str, list[tuple[Study, dict[str, Any]]]] = {}
    stored, budgets = loop.store.studies.stored(active=True), loop.store.budgets.groups()
    lost = dict(budgets.unread)
    for study in stored:
        if isinstance(study, UnreadableStudy):
            lost[study.id] = study.error
        elif study.policy != SWEEP:  # it ends by itself
            table = _table(study, [devices[n] for n in study.devices if n in devices])
            shared = {n: v for n, v in table.items() if not study.group or n not in OF_A_STUDY}
            key = f"{study.group or study.name} {_toml(shared)}"
            key = study.id if len(study.devices) > 1 else key
            alike.setdefault(key, []).append((study, table))
    names: set[str] = set()
    groups = [_group(studies, names) for studies in alike.values()]
    groups += [_budget(group) for group in budgets]
    groups += [
        f"# {name} is left out: {' '.join(redacted(why).split())}" for name, why in lost.items()
    ]
    return "\n\n".join([HEAD, *groups]) + "\n"


def _group(studies: Sequence[tuple[Study, Mapping[str, Any]]], names: set[str]) -> str:
    """Return the table of a group, with a table of each study whose own keys differ from the first's."""
    first, own = studies[0]
    called = first.group or first.name
    name = called if called and called not in names else first.id
    names.add(name)
    ids = [device for study, _ in studies for device in study.devices]
    together = {"together": True} if len(first.devices) > 1 else {}
    table = {"name": name, "select": {"id": ids}, **together, **own}
    lost = [
        f"# {study.id}: the {what} {text!r} is not exported"
        for study, _ in studies
        for what, text in (("name", study.name), ("group", study.group))
        if text not in ("", name)
    ]
    others = [
        ["[[group.study]]", *_lines({"device": study.devices[0], **differing})]
        for study, table in studies
        if (differing := _differing(study, table, own))
    ]
    return "\n".join([*lost, "[[group]]", *_lines(table), *chain.from_iterable(others)])


def _differing(
    study: Study, table: Mapping[str, Any], usual: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return each key of a study whose value differs from its group's, with its complete value."""
    whole = {"terms": {}, "choices": {}, **table, "exploration": asdict(study.exploration)}
    return {n: whole[n] for n in OF_A_STUDY if table.get(n) != usual.get(n)}


def _lines(table: Mapping[str, Any]) -> list[str]:
    """Return the lines of a table."""
    return [f"{key} = {_toml(value)}" for key, value in table.items()]


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
    return "\n".join(["[[budget]]", *_lines(table)])


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
