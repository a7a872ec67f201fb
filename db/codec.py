"""Core values to JSON-able ones and back, exactly: bool, int, float and text stay what they are.

JSON has no infinity, so an open end is `null`: a plan's last boundary. Everything else that is not
finite has no place in these values.
"""

from __future__ import annotations

import math
from dataclasses import asdict
from datetime import datetime
from typing import Any

from tuner.core import (
    Better,
    Constraint,
    Cost,
    Kind,
    Knob,
    Limit,
    Metric,
    Mode,
    Objective,
    Origin,
    OverDevices,
    OverWindows,
    Part,
    Phase,
    Plan,
    Quantity,
    Role,
    Row,
    Safety,
    Scope,
    Setting,
    Signal,
    Space,
    Study,
    Terms,
    Value,
)

Json = dict[str, Any]
"""An object of a JSON document."""


def encode_setting(setting: Setting) -> dict[str, Value]:
    """Return a setting as a JSON object, its knobs in the order they came."""
    return dict(setting)


def encode_space(space: Space) -> Json:
    """Return a space as a JSON object; listed combinations as rows in the order of the knobs."""
    names = [knob.name for knob in space.knobs]
    return {
        "knobs": [_encode_knob(knob) for knob in space.knobs],
        "only": [[setting[name] for name in names] for setting in space.only],
    }


def decode_space(doc: Json) -> Space:
    """Return the space of a JSON object."""
    knobs = tuple(_decode_knob(knob) for knob in doc["knobs"])
    names = [knob.name for knob in knobs]
    return Space(knobs, tuple(dict(zip(names, row, strict=True)) for row in doc["only"]))


def encode_plan(plan: Plan) -> Json:
    """Return a plan as a JSON object; the last row is below nothing."""
    return {
        "rows": [
            {
                "below": row.below if math.isfinite(row.below) else None,
                "setting": encode_setting(row.setting),
                "gain": row.gain,
                "at": row.at,
            }
            for row in plan.rows
        ],
        "by": plan.by,
        "hysteresis": plan.hysteresis,
    }


def decode_plan(doc: Json) -> Plan:
    """Return the plan of a JSON object."""
    rows = tuple(
        Row(
            math.inf if row["below"] is None else row["below"],
            row["setting"],
            row.get("gain", 1.0),  # Plans from before rows had one.
            row.get("at"),
        )
        for row in doc["rows"]
    )
    return Plan(rows, doc["by"], doc["hysteresis"])


def encode_limit(limit: Limit | None) -> str | None:
    """Return a limit as text that reads back exactly."""
    return None if limit is None else str(limit)


def decode_limit(text: str | None) -> Limit | None:
    """Return the limit of a text."""
    return None if text is None else Limit.parse(text)


def encode_metrics(metrics: tuple[Metric, ...]) -> list[Json]:
    """Return metrics as a JSON array."""
    return [
        {
            "name": m.name,
            "origin": m.origin.value,
            "scope": m.scope.value,
            "quantity": asdict(m.quantity),
        }
        for m in metrics
    ]


def decode_metrics(docs: list[Json]) -> tuple[Metric, ...]:
    """Return the metrics of a JSON array."""
    return tuple(
        Metric(d["name"], Origin(d["origin"]), Scope(d["scope"]), _decode_quantity(d["quantity"]))
        for d in docs
    )


def encode_signals(signals: tuple[Signal, ...]) -> list[Json]:
    """Return signals as a JSON array."""
    return [asdict(signal) for signal in signals]


def decode_signals(docs: list[Json]) -> tuple[Signal, ...]:
    """Return the signals of a JSON array."""
    return tuple(Signal(**doc) for doc in docs)


def encode_study(study: Study) -> Json:
    """Return a study, as one revision of it, as a JSON object."""
    return {
        "id": study.id,
        "devices": list(study.devices),
        "workload": study.workload,
        "space": encode_space(study.space),
        "objective": asdict(study.objective),
        "quantities": {name: asdict(q) for name, q in study.quantities.items()},
        "signals": encode_signals(study.signals),
        "constraints": [asdict(constraint) for constraint in study.constraints],
        "policy": study.policy,
        "seed": study.seed,
        "terms": asdict(study.terms),
        "phase": study.phase.value,
        "paused_from": study.paused_from.value if study.paused_from is not None else None,
        "reason": study.reason,
        "paused_reason": study.paused_reason,
        "plan": encode_plan(study.plan) if study.plan is not None else None,
        "revision": study.revision,
        "since_trial": study.since_trial,
        "phase_since": study.phase_since,
        "created_at": study.created_at.isoformat(),
    }


def decode_study(doc: Json) -> Study:
    """Return the study of a JSON object."""
    return Study(
        id=doc["id"],
        devices=tuple(doc["devices"]),
        workload=doc["workload"],
        space=decode_space(doc["space"]),
        objective=Objective(**doc["objective"]),
        quantities={name: _decode_quantity(q) for name, q in doc["quantities"].items()},
        signals=decode_signals(doc["signals"]),
        constraints=tuple(Constraint(**constraint) for constraint in doc["constraints"]),
        policy=doc["policy"],
        seed=doc["seed"],
        terms=_decode_terms(doc["terms"]),
        phase=Phase(doc["phase"]),
        paused_from=Phase(doc["paused_from"]) if doc["paused_from"] is not None else None,
        reason=doc.get("reason", ""),
        paused_reason=doc.get("paused_reason", ""),
        plan=decode_plan(doc["plan"]) if doc["plan"] is not None else None,
        revision=doc["revision"],
        since_trial=doc["since_trial"],
        phase_since=doc["phase_since"],
        created_at=datetime.fromisoformat(doc["created_at"]),
    )


def _decode_quantity(doc: Json) -> Quantity:
    return Quantity(
        doc["unit"],
        Better(doc["better"]) if doc["better"] is not None else None,
        Kind(doc["kind"]),
        OverDevices(doc["over_devices"]),
        OverWindows(doc["over_windows"]),
        doc["signed"],
    )


def _encode_knob(knob: Knob) -> Json:
    return {
        "name": knob.name,
        "values": list(knob.values),
        "default": knob.default,
        "part": knob.part.value,
        "cost": asdict(knob.cost),
        "role": knob.role.value,
        "by_choice": knob.by_choice,
    }


def _decode_knob(doc: Json) -> Knob:
    return Knob(
        doc["name"],
        tuple(doc["values"]),
        doc["default"],
        Part(doc["part"]),
        Cost(**doc["cost"]),
        Role(doc["role"]),
        bool(doc.get("by_choice")),
    )


def _decode_terms(doc: Json) -> Terms:
    return Terms(**{**doc, "safety": Safety(doc["safety"]), "mode": Mode(doc["mode"])})
