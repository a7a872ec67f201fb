"""The surfaces of a measured table, and remarks on possible misunderstandings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from jouletune_bench.replay.table import (
    LABELS,
    METRICS,
    ROLES_FILE,
    Roles,
    Row,
    Surface,
    _numeric,
    _roles,
    _rows,
    _section,
    _settings,
    _surface,
)
from tuner.core import InvalidInput, setting_key


def load_surfaces(path: Path) -> tuple[Surface, ...]:
    """Read every surface of a table with the two metrics of its studies.

    Other metrics are read if every cell of them is usable, and ignored otherwise. A surface of one
    configuration is left out.

    Raises:
        InvalidInput: no such file, a column is missing, or a cell is no usable number.
        ConfigError: `surfaces.toml` is wrong.
    """
    rows = _rows(path)
    roles = _roles(path, rows)
    columns = list(dict.fromkeys([roles.objective, roles.constrained]))
    missing = [c for c in columns if c not in rows[0]]
    if missing:
        raise InvalidInput(
            f"{path} has no column {', '.join(missing)}",
            hint=f"name the objective and what is constrained in {path.with_name(ROLES_FILE)}",
        )
    surfaces = [
        _surface(path, group, roles, list(dict.fromkeys([*columns, *_beside(group)])))
        for group in _by_surface(rows)
    ]
    return tuple(surface for surface in surfaces if surface.space.knobs)


def presumed(path: Path) -> list[str]:
    """Return the columns taken for resources although `surfaces.toml` does not list them.

    A measurement that is neither energy, latency nor power looks like a knob. Raises as
    `load_surfaces`.
    """
    rows = _rows(path)
    resources, listed = _roles(path, rows).resources, _section(path).get("resources")
    others = resources[len(listed) :] if isinstance(listed, list) else ()
    return [c for c in others if _numeric(rows, c) and len({row[c] for row in rows}) > 1]


def blurred(path: Path) -> list[str]:
    """Return the columns without numbers whose values differ between averaged repeats of one setting.

    Such a column may be a remark, or the levels of a knob; only columns of numbers become knobs. Raises
    as `load_surfaces`.
    """
    rows = _rows(path)
    roles = _roles(path, rows)
    texts = [
        c for c in rows[0] if c not in LABELS and not roles.metric(c) and not _numeric(rows, c)
    ]
    return [c for c in texts if any(_differs(path, g, roles, c) for g in _by_surface(rows))]


def _differs(path: Path, rows: Sequence[Row], roles: Roles, column: str) -> bool:
    keys = [setting_key(setting) for setting in _settings(path, rows, roles)]
    return len(set(zip(keys, (row[column] for row in rows), strict=True))) > len(set(keys))


def _by_surface(rows: Sequence[Row]) -> list[list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row["surface"], []).append(row)
    return list(groups.values())


def _beside(rows: Sequence[Row]) -> list[str]:
    """Return the columns of known metrics with only numbers above zero."""
    return [c for c in METRICS if c in rows[0] and all(_is_positive(row[c]) for row in rows)]


def _is_positive(cell: str) -> bool:
    try:
        return 0.0 < float(cell) < math.inf
    except ValueError:
        return False
