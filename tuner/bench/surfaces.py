"""The problems a tuner is judged on: measured surfaces, their baselines, limits and best settings."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from agents.devices.replay.table import ROLES_FILE, Surface, blurred, load_surfaces, presumed
from tuner.core import ConfigError, InvalidInput, Limit, Objective, Setting, setting_key

WORTH_TUNING = 0.03
"""Surfaces whose best setting saves less than this are left out of the comparison."""

FLAT = 0.01
"""Surfaces whose best setting saves less than this are the negative controls."""


@dataclass(frozen=True, slots=True)
class SurfaceProblem:
    """One surface of one source: least `objective` while `constrained` stays under a limit.

    Every value here is the table's own, free of noise.
    """

    source: str
    surface: Surface

    @property
    def aim(self) -> Objective:
        """What a study of it makes least."""
        return Objective(self.surface.objective)

    def objective(self, setting: Setting) -> float:
        """Return what is to be made least."""
        return self.surface.values[setting_key(setting)][self.surface.objective]

    def constrained(self, setting: Setting) -> float:
        """Return what has a limit."""
        return self.surface.values[setting_key(setting)][self.surface.constrained]

    def limit(self, slack: float) -> Limit:
        """Return the limit: `slack` times what the baseline truly shows."""
        return Limit(self.surface.constrained, "<=", self._bound(slack))

    def excess(self, setting: Setting, slack: float) -> float:
        """Return by which share of the limit a setting truly lies above it; 0 where it does not."""
        return max(0.0, self.constrained(setting) / self._bound(slack) - 1.0)

    def oracle(self, slack: float) -> float:
        """Return the least objective of all settings that truly keep the limit."""
        settings = self.surface.space.only
        return min(self.objective(s) for s in settings if self.excess(s, slack) == 0.0)

    def saving(self, slack: float) -> float:
        """Return the share of the baseline's objective that the best setting saves."""
        return self.share_saved(self.oracle(slack))

    def share_saved(self, objective: float) -> float:
        """Return by which share an objective lies under the baseline's."""
        return 1.0 - objective / self.objective(self.surface.space.default)

    def captured(self, setting: Setting, slack: float) -> float:
        """Return the share of the best saving that a setting truly gives, within -1 … 1.

        0 for a setting truly above the limit, and where nothing can be saved.
        """
        possible = self.saving(slack)
        if possible <= 0.0 or self.excess(setting, slack) > 0.0:
            return 0.0
        return max(-1.0, min(1.0, self.share_saved(self.objective(setting)) / possible))

    def _bound(self, slack: float) -> float:
        return slack * self.constrained(self.surface.space.default)


def load_problems(folder: Path) -> tuple[SurfaceProblem, ...]:
    """Read every table of a folder that its `surfaces.toml` names.

    Raises:
        InvalidInput: no such folder, no `surfaces.toml`, nothing to tune, or an unusable table.
        ConfigError: `surfaces.toml` cannot be read, or does not fit a table.
    """
    named = _sections(folder)
    found = tuple(
        SurfaceProblem(path.stem, surface)
        for path in sorted(folder.glob("*.csv"))
        if path.stem in named
        for surface in load_surfaces(path)
    )
    if not found:
        raise InvalidInput(
            f"{folder / ROLES_FILE} names no table with anything to tune",
            hint="; ".join(remarks(folder)) or "a surface needs two settings that differ",
        )
    return found


def remarks(folder: Path) -> list[str]:
    """Return what is not as one may think: tables and names left out, columns taken for knobs.

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
        found = tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read {file}: {error}", hint="mend it") from error
    return {
        name
        for name, section in found.items()
        if isinstance(section, dict) or (folder / f"{name}.csv").exists()
    }
