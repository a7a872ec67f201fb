"""The studies that there are, as a fleet file that declares them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from tuner.core import Exploration, Objective, Study, Terms
from tuner.study.loop import Loop

HEAD = "# The active studies, by their devices' ids; `select` may also go by board, workload and labels."


def exported(loop: Loop) -> str:
    """Return the active studies as a fleet file; those of a group that are alike share a table."""
    alike: dict[str, list[Study]] = {}
    for study in loop.store.studies.stored(active=True):
        if isinstance(study, Study):
            key = study.id if len(study.devices) > 1 else json.dumps(_table(study), default=str)
            alike.setdefault(key, []).append(study)
    names: set[str] = set()
    tables = [_group(studies, names) for studies in alike.values()]
    return "\n\n".join([HEAD, *tables]) + "\n"


def _group(studies: list[Study], names: set[str]) -> str:
    """Return the table of some studies that differ in their devices only."""
    first = studies[0]
    name = first.group if first.group and first.group not in names else first.id
    names.add(name)
    devices = [device for study in studies for device in study.devices]
    together = {"together": True} if len(first.devices) > 1 else {}
    table = {"name": name, "select": {"id": devices}, **together, **_table(first)}
    return "\n".join(["[[group]]", *(f"{key} = {_toml(value)}" for key, value in table.items())])


def _table(study: Study) -> dict[str, Any]:
    """Return what a study is declared by, beside its devices."""
    limits = {
        field.name: value
        for field in fields(Exploration)
        if (value := asdict(study.exploration)[field.name]) != asdict(Exploration())[field.name]
    }
    return {
        "objective": _aim(study.objective),
        **({"second_objective": _aim(study.second_objective)} if study.second_objective else {}),
        "constraints": [str(constraint) for constraint in study.constraints],
        "policy": study.policy,
        "seed": study.seed,
        "terms": {n: v for n, v in asdict(study.terms).items() if v != asdict(Terms())[n]},
        "choices": {knob.name: list(knob.values) for knob in study.space.knobs},
        **({"exploration": limits} if limits else {}),
    }


def _aim(objective: Objective) -> str:
    return f"{objective.goal} {objective.metric}"


def _toml(value: Any) -> str:  # noqa: ANN401  whatever a table holds
    """Return a value as TOML; text, numbers and lists are written as in JSON."""
    if isinstance(value, Mapping):
        inner = ", ".join(f"{json.dumps(key)} = {_toml(one)}" for key, one in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False)
