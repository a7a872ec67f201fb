"""Convert values of the core to JSON-able ones and back; bool, int, float and text keep their type.

A document is pydantic's dump of the dataclass, with two differences. JSON has no infinity, so that the
last boundary of a plan, which is open, is `null`. A space lists its combinations as rows in the order of
the knobs. A missing field gets its default. An unknown field is ignored at the top level, because a newer
release that shares the database may write it; deeper it is refused, because it may change the meaning of
the others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter

from tuner.core import Metric, Plan, Signal, Space, Study, Transfer

Json = dict[str, Any]
"""An object of a JSON document."""
Kept = TypeVar("Kept")


@dataclass(frozen=True, slots=True)
class Description:
    """The properties of a device that are stored as one JSON document."""

    space: Space
    metrics: tuple[Metric, ...]
    signals: tuple[Signal, ...]
    cannot: Mapping[str, str]
    versions: Mapping[str, str]
    shared: str
    labels: Mapping[str, str] = field(default_factory=dict)
    observed: bool = False


class Documents(Generic[Kept]):
    """Encode and decode one type of value as JSON objects."""

    def __init__(self, kind: type[Kept]) -> None:
        self._names = {field.name for field in fields(kind)}  # type: ignore[arg-type]
        self._adapter = TypeAdapter(kind)

    def encode(self, value: Kept) -> Json:
        """Return the value as a JSON object."""
        doc: Json = self._adapter.dump_python(value, warnings=False)
        names = [knob["name"] for knob in doc["space"]["knobs"]]
        doc["space"]["only"] = [[row[name] for name in names] for row in doc["space"]["only"]]
        if "created_at" in doc:
            doc["created_at"] = doc["created_at"].isoformat()
        if doc.get("plan") is not None:
            doc["plan"] = _opened(doc["plan"])
        return doc

    def decode(self, doc: Json) -> Kept:
        """Return the value of a JSON object. Raises ValueError, TypeError, KeyError, InvalidInput."""
        doc = {name: doc[name] for name in self._names if name in doc}
        space, plan = doc["space"], doc.get("plan")
        names = [knob["name"] for knob in space["knobs"]]
        only = [dict(zip(names, row, strict=True)) for row in space["only"]]
        doc["space"] = space | {"only": only}
        if plan is not None:
            doc["plan"] = _ended(_baseline(space) if plan.get("columns_by") else plan)
        if "transfer" in doc:  # Up to schema 0006 it also named siblings.
            doc["transfer"] = {n: v for n, v in doc["transfer"].items() if n in TRANSFER}
        return self._adapter.validate_python(doc, extra="forbid")


def plan_document(plan: Plan) -> Json:
    """Return a plan as a JSON object."""
    return _opened(PLANS.dump_python(plan, warnings=False))


def plan_of(doc: Json) -> Plan:
    """Return the plan of a JSON object. Raises ValueError, KeyError, InvalidInput."""
    return PLANS.validate_python(_ended(doc))


def _opened(plan: Json) -> Json:
    """Return a plan's object with null for its infinite last boundary: JSON has no infinity."""
    rows = [r | {"below": r["below"] if math.isfinite(r["below"]) else None} for r in plan["rows"]]
    return plan | {"rows": rows}


def _ended(plan: Json) -> Json:
    """Return a plan's object with infinity for its last boundary, without what earlier releases kept."""
    rows = [r | {"below": math.inf} if r["below"] is None else r for r in plan["rows"]]
    return plan | {"rows": [{n: v for n, v in r.items() if n != "bursts"} for r in rows]}


def _baseline(space: Json) -> Json:
    """Return a plan of the baseline only, for a plan over two signals, which is no longer supported."""
    return {"rows": [{"below": None, "setting": {k["name"]: k["default"] for k in space["knobs"]}}]}


TRANSFER = {field.name for field in fields(Transfer)}
PLANS = TypeAdapter(Plan)
STUDIES = Documents(Study)
DESCRIPTIONS = Documents(Description)
