"""Strict reader of a command's file: the program, its knobs, and its output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.host.processes.program_runs import MeasuredProgram
from agents.host.service_files.knob_table import knob_table, refuse_misfits
from agents.host.service_files.printed import Printed, PrintedMetric
from agents.host.service_files.printed_table import printed_items, printed_metrics, runs_per_window
from agents.host.service_files.tables import argv, demand, environment, positive
from tuner import toml
from tuner.core import ConfigError, Knob, Setting

FILE_KEYS: dict[str, Any] = dict.fromkeys(("name", "version", "folder"), str)
FILE_KEYS |= {"run": list, "runs": int, "timeout_s": toml.NUMBER}
FILE_KEYS |= {"env": dict, "items": dict, "knob": list, "metric": list}
TIMEOUT_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandConfig:
    """The content of a command's file.

    `items` is the number of items per run, or the place of that number in the program's output.
    """

    name: str
    version: str
    run: tuple[str, ...]
    env: Mapping[str, str]
    folder: Path | None
    knobs: tuple[Knob, ...]
    runs: int
    timeout_s: float
    items: int | Printed
    metrics: tuple[PrintedMetric, ...]

    def program(self, setting: Setting) -> MeasuredProgram:
        """Return the program at a setting; its environment lists only additions to the agent's own."""
        return MeasuredProgram(
            words=tuple(filled(word, setting) for word in self.run),
            environment={name: filled(text, setting) for name, text in self.env.items()},
            folder=self.folder,
            timeout_s=self.timeout_s,
            items=self.items,
            metrics=self.metrics,
        )


def filled(text: str, setting: Setting) -> str:
    """Return a text with every `{knob}` replaced by its value; other braces stay."""
    for name, value in setting.items():
        shown = str(value).lower() if isinstance(value, bool) else str(value)
        text = text.replace(f"{{{name}}}", shown)
    return text


def load_command_config(path: Path) -> CommandConfig:
    """Read a command's file.

    Raises:
        ConfigError: it cannot be read, does not parse, or is not valid; the message names the file,
            the key, and the nearest valid key.
    """
    where = str(path)
    table = toml.read(path, FILE_KEYS)
    demand(where, table, "name", "run")
    folder = Path(table["folder"]) if "folder" in table else None
    if folder is not None and not (folder.is_absolute() and folder.is_dir()):
        raise ConfigError(f"{where}: folder must be the absolute path of a folder, not {folder}")
    config = CommandConfig(
        name=table["name"],
        version=table.get("version", "unknown"),
        run=argv(f"{where}: run", table["run"]),
        env=environment(where, table.get("env", {})),
        folder=folder,
        knobs=_knobs(where, table.get("knob", [])),
        runs=runs_per_window(where, table),
        timeout_s=positive(where, table, "timeout_s", TIMEOUT_S),
        items=printed_items(f"{where}: items", table),
        metrics=printed_metrics(where, table.get("metric", [])),
    )
    _demand_places(where, config)
    return config


def _knobs(where: str, tables: list[Any]) -> tuple[Knob, ...]:
    """Return the knobs of the file. Raises ConfigError."""
    knobs = tuple(knob_table(f"{where}: knob {n}", one)[0] for n, one in enumerate(tables, 1))
    refuse_misfits(where, knobs)
    return knobs


def _demand_places(where: str, config: CommandConfig) -> None:
    """Raise ConfigError if a knob is not used, as it would have no effect."""
    for knob in config.knobs:
        place = f"{{{knob.name}}}"
        if not any(place in text for text in (*config.run, *config.env.values())):
            raise ConfigError(
                f"{where}: {place} is neither in run nor in env, so the knob {knob.name} has no effect",
                hint=f"write {place} where the program takes it, as in `--{knob.name} {place}`",
            )
