"""Measured configuration surfaces from a CSV file: one row is one measured configuration.

Columns: `surface`, `device`, `workload`, knobs with the unit in their name, and any of `energy_j`
(per item), `latency_s`, `power_w`. `surfaces.toml` beside the file may list, under the file's name
without its suffix, the columns that are resources (the baseline has each at its maximum, in that
order), those that are batch sizes (then the lower median of the rest), the minimised `objective` and
the `constrained` column. A column that does not vary, or has no numbers, is not a knob.
"""

from __future__ import annotations

import csv
import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from jouletune_bench.replay.names import quantity_named, roles_of
from tuner.core import (
    ConfigError,
    ConstraintSyntax,
    InvalidInput,
    Knob,
    Objective,
    Part,
    Quantities,
    Setting,
    SettingKey,
    Space,
    setting_key,
)
from tuner.toml import loads

LABELS = ("surface", "device", "workload")
METRICS = {
    "energy_j": ("energy_j", 1.0),
    "latency_s": ("latency_ms", 1000.0),
    "power_w": ("power_w", 1.0),
}
"""The metric of each column, and the factor to its unit."""
ROLES_FILE = "surfaces.toml"
WORKLOAD_KNOBS = ("batch_size", "threads")

Row = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Roles:
    """The columns of resources and batch sizes, for the baseline, and those of a study's goals.

    `objective` is the minimised column, `constrained` the one with a limit.
    """

    resources: tuple[str, ...]
    batch: tuple[str, ...]
    objective: str
    constrained: str

    def metric(self, column: str) -> tuple[str, float] | None:
        """Return a column's metric and the factor to its unit, None for other columns."""
        is_metric = column in METRICS or column in (self.objective, self.constrained)
        return _as_metric(column) if is_metric else None


@dataclass(frozen=True, slots=True)
class Surface:
    """One workload on one device: its settings and the metrics of each.

    `objective` and `constrained` are the metrics that a study minimises and limits.
    """

    name: str
    device: str
    workload: str
    space: Space
    metrics: tuple[str, ...]
    objective: str
    constrained: str
    values: Mapping[SettingKey, Mapping[str, float]]
    digest: str

    @property
    def quantities(self) -> Quantities:
        """The quantities of its metrics, by name."""
        names = dict.fromkeys((*self.metrics, self.objective, self.constrained))
        return {name: quantity_named(name) for name in names}

    def row(self, setting: Setting) -> Mapping[str, float]:
        """Return the measured metrics of a setting. Raises UnknownKnob, OutOfRange."""
        self.space.check(setting)
        return self.values[setting_key(setting)]


def load_surface(spec: str) -> Surface:
    """Read `FILE.csv[#SURFACE]`; the surface is optional if the file has only one.

    Raises:
        InvalidInput: no such file or surface, a column is missing, or a cell is no usable number.
        ConfigError: `surfaces.toml` is wrong.
    """
    file, _, name = spec.partition("#")
    path = Path(file)
    rows = _rows(path)
    names = list(dict.fromkeys(row["surface"] for row in rows))
    if not name and len(names) == 1:
        name = names[0]
    if name not in names:
        problem = f"no surface {name!r}" if name else f"{len(names)} surfaces"
        raise InvalidInput(
            f"{path} has {problem}", hint=f"write {file}#SURFACE with one of: {', '.join(names)}"
        )
    chosen = [row for row in rows if row["surface"] == name]
    roles = _roles(path, rows)
    surface = _surface(path, chosen, roles, [c for c in rows[0] if roles.metric(c)])
    if not surface.space.knobs:
        raise InvalidInput(
            f"{path}: surface {name!r} has only one configuration",
            hint="there is nothing to tune; choose another surface",
        )
    return surface


def _rows(path: Path) -> list[dict[str, str]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, strict=True, skipinitialspace=True)
            columns = reader.fieldnames or []
            rows = list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidInput(
            f"cannot read the measured table {str(path)!r}: {getattr(error, 'strerror', None) or error}",
            hint="name a CSV file of measured surfaces",
        ) from error
    twice = sorted({name for name in columns if columns.count(name) > 1})
    if twice:
        raise InvalidInput(f"{path} has two columns {', '.join(twice)}", hint="rename one of them")
    missing = [name for name in LABELS if name not in columns]
    if missing or not ({*METRICS} & {*columns} or "objective" in _section(path)):
        lacking = ", ".join(missing) or f"any of {', '.join(METRICS)}"
        raise InvalidInput(
            f"{path} has no column {lacking}", hint="see docs/figures.md for the format"
        )
    if not rows:
        raise InvalidInput(f"{path} has no rows", hint="name a file with measurements")
    for number, row in enumerate(rows, 2):
        # DictReader files surplus cells under None and fills missing ones with None.
        if None in row or None in row.values():
            raise InvalidInput(
                f"{path}, row {number}: not as many cells as columns", hint="correct the row"
            )
    return rows


def _as_metric(column: str) -> tuple[str, float]:
    """Return the metric's name of a column of measurements, and the factor to its unit."""
    return METRICS.get(column, (column, 1.0))


def _section(path: Path) -> dict[str, object]:
    """Return the section of a table in `surfaces.toml`; empty without such a file."""
    file = path.with_name(ROLES_FILE)
    try:
        section = loads(file.read_text(encoding="utf-8-sig")).get(path.stem, {})
        if not isinstance(section, dict):
            raise ValueError(f"{path.stem} is not a table")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read {file}: {error}", hint="correct or remove it") from error
    return section


def _roles(path: Path, rows: Sequence[Row]) -> Roles:
    section, file, columns = _section(path), path.with_name(ROLES_FILE), list(rows[0])
    aims = {"objective": "energy_j", "constrained": "latency_s"}
    for key in aims:
        name = section.get(key, aims[key])
        if not isinstance(name, str) or (key in section and name not in columns):
            raise ConfigError(
                f"{file}, {path.stem}.{key}: {name!r} is not a column of {path.name}",
                hint=f"columns: {', '.join(columns)}",
            )
        try:
            Objective(_as_metric(name)[0])
        except ConstraintSyntax as error:
            raise ConfigError(
                f"{file}, {path.stem}.{key}: {error}",
                hint="rename the column: small letters, digits, dots and underscores",
            ) from error
        aims[key] = name
    reserved = {*LABELS, *METRICS, *aims.values()}
    knobs = [c for c in columns if c not in reserved]
    default_batch = [c for c in knobs if c == "batch_size"]
    listed: dict[str, list[str]] = {"resources": [], "batch": default_batch}
    for key in listed:
        names = section.get(key, listed[key])
        if not isinstance(names, list) or any(name not in knobs for name in names):
            raise ConfigError(
                f"{file}, {path.stem}.{key}: {names!r} is not a list of knobs of {path.name}",
                hint=f"knobs: {', '.join(knobs)}",
            )
        for name in names:
            if not _numeric(rows, name):
                raise ConfigError(
                    f"{file}, {path.stem}.{key}: {name} of {path.name} holds no numbers",
                    hint="write its levels as numbers; or give it no "
                    "role: then rows that differ only in it are averaged",
                )
        listed[key] = names
    # A knob without a role is a resource like the others, after them.
    rest = [c for c in knobs if c not in listed["resources"] and c not in listed["batch"]]
    return Roles((*listed["resources"], *rest), tuple(listed["batch"]), **aims)


def _surface(path: Path, rows: Sequence[Row], roles: Roles, columns: Sequence[str]) -> Surface:
    """Return the surface of some rows, with the metrics of some columns."""
    first = rows[0]
    settings = _settings(path, rows, roles)
    metrics = {c: meant for c in columns if (meant := roles.metric(c)) is not None}
    values = _averages(path, rows, settings, metrics)
    distinct = {setting_key(setting): setting for setting in settings}.values()
    default = _baseline(list(distinct), roles)
    does = roles_of(default)
    knobs = tuple(
        Knob(
            name,
            tuple(sorted({s[name] for s in distinct})),
            default[name],
            Part.WORKLOAD if name in WORKLOAD_KNOBS else Part.DEVICE,
            role=does[name],
        )
        for name in default
    )
    return Surface(
        name=first["surface"],
        device=first["device"],
        workload=first["workload"],
        space=Space(knobs, tuple(distinct)),
        metrics=tuple(metric for metric, _ in metrics.values()),
        objective=_as_metric(roles.objective)[0],
        constrained=_as_metric(roles.constrained)[0],
        values=values,
        digest=hashlib.sha256(repr([list(row.items()) for row in rows]).encode()).hexdigest()[:12],
    )


def _settings(path: Path, rows: Sequence[Row], roles: Roles) -> list[dict[str, int | float]]:
    """Return each row's setting: the columns that vary, as numbers."""
    others = [c for c in rows[0] if c not in LABELS and roles.metric(c) is None]
    columns = [c for c in others if len({row[c] for row in rows}) > 1 and _numeric(rows, c)]
    cells = {c: [_tidy(_number(path, row, c)) for row in rows] for c in columns}
    names = [c for c in columns if len(set(cells[c])) > 1]
    return [{name: cells[name][i] for name in names} for i in range(len(rows))]


def _averages(
    path: Path,
    rows: Sequence[Row],
    settings: Sequence[Setting],
    metrics: Mapping[str, tuple[str, float]],
) -> dict[SettingKey, Mapping[str, float]]:
    """Return the metrics of each setting, repeats averaged."""
    groups: dict[SettingKey, list[Row]] = {}
    for row, setting in zip(rows, settings, strict=True):
        groups.setdefault(setting_key(setting), []).append(row)
    return {
        key: {
            metric: fmean(_positive(path, row, column) * scale for row in repeats)
            for column, (metric, scale) in metrics.items()
        }
        for key, repeats in groups.items()
    }


def _baseline(settings: Sequence[dict[str, int | float]], roles: Roles) -> dict[str, int | float]:
    """Return the setting with every resource at its maximum and batches at their lower median."""
    left = list(settings)
    for name in roles.resources:
        if name in left[0]:
            most = max(s[name] for s in left)
            left = [s for s in left if s[name] == most]
    for name in roles.batch:
        if name in left[0]:
            sizes = sorted({s[name] for s in left})
            middle = sizes[(len(sizes) - 1) // 2]
            left = [s for s in left if s[name] == middle]
    return left[0]


def _number(path: Path, row: Row, column: str) -> float:
    try:
        value = float(row[column])
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InvalidInput(
            f"{path}, surface {row['surface']!r}: {column} = {row[column]!r} is not a finite number",
            hint=_mend(row),
        )
    return value


def _positive(path: Path, row: Row, column: str) -> float:
    value = _number(path, row, column)
    if value <= 0.0:
        raise InvalidInput(
            f"{path}, surface {row['surface']!r}: {column} = {row[column]!r} is not above zero",
            hint=_mend(row),
        )
    return value


def _mend(row: Row) -> str:
    return f"correct or remove the row {','.join(row.values())}"


def _numeric(rows: Sequence[Row], column: str) -> bool:
    """Return whether any cell of a column is a number, `nan` included; else it is a remark."""
    for row in rows:
        try:
            float(row[column])
        except ValueError:
            continue
        return True
    return False


def _tidy(value: float) -> int | float:
    return int(value) if value.is_integer() else value
