"""The problems for judging a tuner: measured surfaces, their baselines, limits and best settings."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jouletune_bench.replay.table import ROLES_FILE, Surface
from tests.bench.contest.tables_read import blurred, load_surfaces, presumed
from tuner.core import (
    Better,
    ConfigError,
    Constraint,
    Estimate,
    InvalidInput,
    Limit,
    Objective,
    Quantities,
    Quantity,
    Setting,
    limits,
    setting_key,
)

WORTH_TUNING = 0.03
"""Surfaces whose best setting saves less than this are left out of the comparison."""

FLAT = 0.01
"""Surfaces whose best setting saves less than this are the negative controls."""


@dataclass(frozen=True, slots=True)
class SurfaceProblem:
    """One surface of one source: minimise `objective` while every limit is kept.

    The slack sets the limit on the table's `constrained` metric; `floors` are further constraints,
    relative to the baseline. Every value here is the table's, without noise. `noise` is by metric the
    noise of a window relative to the usual one, by default 1. `told` is the factor by which the
    standard errors shown to a tuner are wrong.
    """

    source: str
    surface: Surface
    floors: tuple[Constraint, ...] = ()
    noise: Mapping[str, float] = field(default_factory=dict)
    told: float = 1.0

    @property
    def aim(self) -> Objective:
        """The metric that a study minimises."""
        return Objective(self.surface.objective)

    @property
    def quantities(self) -> Quantities:
        """The quantities of its metrics. More is better for a metric with a floor."""
        floors = {c.metric: Quantity("1", Better.MORE, signed=True) for c in self.floors}
        return {**self.surface.quantities, **floors}

    def objective(self, setting: Setting) -> float:
        """Return the objective."""
        return self._row(setting)[self.surface.objective]

    def constraints(self, slack: float) -> tuple[Constraint, ...]:
        """Return the constraints, relative to the baseline."""
        return (Constraint(self.surface.constrained, "<=", slack, relative=True), *self.floors)

    def limits(self, slack: float) -> tuple[Limit, ...]:
        """Return the limits that the true baseline sets."""
        true = {name: Estimate(value) for name, value in self._row(self._baseline).items()}
        return limits(self.constraints(slack), true) or ()

    def excess(self, setting: Setting, slack: float) -> float:
        """Return the share of a limit by which a setting truly exceeds it; 0 if it keeps all limits."""
        return _excess(self._row(setting), self.limits(slack))

    def oracle(self, slack: float) -> float:
        """Return the lowest objective among the settings that truly keep the limits."""
        in_force, objective = self.limits(slack), self.surface.objective
        rows = self.surface.values.values()
        return min(row[objective] for row in rows if _excess(row, in_force) == 0.0)

    def best(self, slack: float) -> Setting:
        """Return a setting with the lowest objective among those that truly keep the limits."""
        return min(
            (dict(key) for key in self.surface.values if self.excess(dict(key), slack) == 0.0),
            key=self.objective,
        )

    def saving(self, slack: float) -> float:
        """Return the share of the baseline's objective that the best setting saves."""
        return self.share_saved(self.oracle(slack))

    def share_saved(self, objective: float) -> float:
        """Return the saving of an objective, as a share of the baseline's."""
        return 1.0 - objective / self.objective(self._baseline)

    def captured(self, setting: Setting, slack: float) -> float:
        """Return a setting's true saving as a share of the best one, within -1 … 1.

        It is 0 for a setting truly beyond a limit, and if nothing can be saved.
        """
        possible = self.saving(slack)
        if possible <= 0.0 or self.excess(setting, slack) > 0.0:
            return 0.0
        return max(-1.0, min(1.0, self.share_saved(self.objective(setting)) / possible))

    @property
    def _baseline(self) -> Setting:
        return self.surface.space.default

    def _row(self, setting: Setting) -> Mapping[str, float]:
        return self.surface.values[setting_key(setting)]


def _excess(row: Mapping[str, float], in_force: Sequence[Limit]) -> float:
    """Return the share of a limit by which a row exceeds it; 0 if it keeps all limits."""
    return max(0.0, *(x.sign * (row[x.metric] / x.value - 1.0) for x in in_force))


def load_problems(folder: Path) -> tuple[SurfaceProblem, ...]:
    """Read every table of a folder that its `surfaces.toml` names.

    Raises:
        InvalidInput: no such folder, no `surfaces.toml`, nothing to tune, or an unusable table.
        ConfigError: `surfaces.toml` cannot be read, or does not fit a table.
    """
    named = _sections(folder)
    problems = tuple(
        SurfaceProblem(path.stem, surface)
        for path in sorted(folder.glob("*.csv"))
        if path.stem in named
        for surface in load_surfaces(path)
    )
    if not problems:
        raise InvalidInput(
            f"{folder / ROLES_FILE} names no table with anything to tune",
            hint="; ".join(remarks(folder)) or "a surface needs two settings that differ",
        )
    return problems


def remarks(folder: Path) -> list[str]:
    """Return remarks on possible misunderstandings: omitted tables and names, columns taken for knobs.

    Raises as `load_problems`.
    """
    sections, tables = _sections(folder), {path.stem for path in folder.glob("*.csv")}
    unnamed = [f"left out {name}.csv: {ROLES_FILE} does not name it" for name in tables - sections]
    missing = [f"left out {name}: there is no {name}.csv" for name in sections - tables]
    guessed = [
        f"{name}.csv: {', '.join(columns)} taken for knobs: {ROLES_FILE} gives them no role"
        for name in sorted(sections & tables)
        if (columns := presumed(folder / f"{name}.csv"))
    ]
    averaged = [
        f"{name}.csv: rows that differ in {', '.join(columns)} alone are averaged as repeats: "
        "only numbers make a knob"
        for name in sorted(sections & tables)
        if (columns := blurred(folder / f"{name}.csv"))
    ]
    return [*sorted(unnamed + missing), *guessed, *averaged]


def _sections(folder: Path) -> set[str]:
    """Return the names in a folder's `surfaces.toml`. Raises InvalidInput, ConfigError."""
    file = folder / ROLES_FILE
    if not folder.is_dir():
        raise InvalidInput(f"there is no folder {str(folder)!r}", hint="name one with CSV files")
    if not file.is_file():
        raise InvalidInput(
            f"there is no {ROLES_FILE} in {str(folder)!r}",
            hint="name a folder of measured surfaces, one CSV file per source",
        )
    try:
        sections = tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read {file}: {error}", hint="mend it") from error
    return {
        name
        for name, section in sections.items()
        if isinstance(section, dict) or (folder / f"{name}.csv").exists()
    }
