"""The file that says which program is run, with which knobs, and what it prints, read strictly."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.host.knob_table import knob_table
from agents.host.tables import argv, checked, demand, inner
from agents.workloads.command.printed import Printed
from tuner import toml
from tuner.core import (
    Better,
    ConfigError,
    InvalidInput,
    Knob,
    Quantity,
    Setting,
    Space,
    standard,
)

FILE_KEYS: dict[str, Any] = dict.fromkeys(("name", "version", "folder"), str)
FILE_KEYS |= {"run": list, "runs": int, "timeout_s": toml.NUMBER}
FILE_KEYS |= {"env": dict, "items": dict, "knob": list, "metric": list}
ITEMS_KEYS = {"count": int, "json": str, "pattern": str}
METRIC_KEYS = {"name": str, "json": str, "pattern": str, "better": str, "unit": str}
BETTER = {"less": Better.LESS, "more": Better.MORE}
COUNTED = ("energy_j", "power_w", "cpu_time_ms", "latency_ms", "throughput_per_s")
"""What is measured around a run, and so is no word of its own."""
RUNS, LEAST_RUNS = 4, 3
"""Fewer runs have no standard error that means anything."""
TIMEOUT_S = 3600.0


@dataclass(frozen=True, slots=True)
class PrintedMetric:
    """A metric that a run prints: its name, what it means, and where it stands."""

    name: str
    quantity: Quantity
    printed: Printed


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandConfig:
    """All that a file says. `items` is how many a run works on, or where it prints that."""

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

    def words(self, setting: Setting) -> tuple[str, ...]:
        """Return the program's words at a setting."""
        return tuple(filled(word, setting) for word in self.run)

    def environment(self, setting: Setting) -> dict[str, str]:
        """Return what its environment has besides the agent's own, at a setting."""
        return {name: filled(text, setting) for name, text in self.env.items()}


def filled(text: str, setting: Setting) -> str:
    """Return a text with every `{knob}` replaced by its value; other braces stay."""
    for name, value in setting.items():
        shown = str(value).lower() if isinstance(value, bool) else str(value)
        text = text.replace(f"{{{name}}}", shown)
    return text


def load_command_config(path: Path) -> CommandConfig:
    """Read a command's file.

    Raises:
        ConfigError: it cannot be read, does not parse, or says what cannot be; the message names the
            file, the key, and the nearest key there is.
    """
    where = str(path)
    table = toml.read(path, FILE_KEYS)
    demand(where, table, "name", "run")
    runs, timeout_s = table.get("runs", RUNS), float(table.get("timeout_s", TIMEOUT_S))
    if runs < LEAST_RUNS:
        raise ConfigError(
            f"{where}: runs must be at least {LEAST_RUNS}, not {runs}",
            hint="the standard error of a window is the scatter between its runs; make a run shorter",
        )
    if not timeout_s > 0.0:
        raise ConfigError(f"{where}: timeout_s must be above 0, not {timeout_s:g}")
    folder = Path(table["folder"]) if "folder" in table else None
    if folder is not None and not (folder.is_absolute() and folder.is_dir()):
        raise ConfigError(f"{where}: folder must be the absolute path of a folder, not {folder}")
    config = CommandConfig(
        name=table["name"],
        version=table.get("version", "unknown"),
        run=argv(f"{where}: run", table["run"]),
        env=_env(where, table.get("env", {})),
        folder=folder,
        knobs=_knobs(where, table.get("knob", [])),
        runs=runs,
        timeout_s=timeout_s,
        items=_items(f"{where}: items", table),
        metrics=_metrics(where, table.get("metric", [])),
    )
    _demand_places(where, config)
    return config


def _env(where: str, table: Mapping[str, Any]) -> dict[str, str]:
    for name, text in table.items():
        if not isinstance(text, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ConfigError(f'{where}: env: {name} = {text!r} cannot be; write NAME = "text"')
    return dict(table)


def _knobs(where: str, tables: list[Any]) -> tuple[Knob, ...]:
    knobs = tuple(knob_table(f"{where}: knob {n}", one)[0] for n, one in enumerate(tables, 1))
    try:
        Space(knobs)
    except InvalidInput as error:
        raise ConfigError(f"{where}: {error.message}", hint=error.hint) from None
    return knobs


def _demand_places(where: str, config: CommandConfig) -> None:
    """Raise ConfigError where a knob stands nowhere: it would change nothing."""
    for knob in config.knobs:
        place = f"{{{knob.name}}}"
        if not any(place in text for text in (*config.run, *config.env.values())):
            raise ConfigError(
                f"{where}: {place} is neither in run nor in env, so the knob {knob.name} changes "
                "nothing",
                hint=f'write it like run = ["train", "--{knob.name}", "{place}"]',
            )


def _items(where: str, table: Mapping[str, Any]) -> int | Printed:
    known = inner(where, table, "items", ITEMS_KEYS)
    if "count" not in known:
        return _printed(where, known) if known else 1
    if len(known) > 1 or known["count"] < 1:
        raise ConfigError(f"{where}: say a count of at least 1, or where a run prints it")
    return int(known["count"])


def _metrics(where: str, tables: list[Any]) -> tuple[PrintedMetric, ...]:
    found: dict[str, PrintedMetric] = {}
    for n, one in enumerate(tables, 1):
        at = f"{where}: metric {n}"
        known = checked(at, one, METRIC_KEYS, "name")
        name = known["name"]
        if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
            raise ConfigError(f"{at}: name cannot be {name!r}", hint="write it like accuracy")
        if name in COUNTED or name in found:
            raise ConfigError(f"{at}: there is a metric {name} already", hint="leave it out")
        found[name] = PrintedMetric(name, _quantity(at, known), _printed(at, known))
    return tuple(found.values())


def _quantity(where: str, known: Mapping[str, Any]) -> Quantity:
    usual = standard(known["name"])
    if usual is not None:
        if {"better", "unit"} & known.keys():
            raise ConfigError(f"{where}: what {known['name']} means is known; leave out the rest")
        return usual
    better = known.get("better")
    if better is not None and better not in BETTER:
        raise ConfigError(f"{where}: better cannot be {better!r}", hint="choose less or more")
    return Quantity(known.get("unit", "1"), BETTER.get(better or ""), signed=True)


def _printed(where: str, known: Mapping[str, Any]) -> Printed:
    if ("json" in known) is ("pattern" in known):
        raise ConfigError(
            f"{where} needs a json or a pattern, one of them",
            hint="json is a key of the last line that is a JSON object; pattern has one group, "
            "like 'accuracy: ([0-9.]+)'",
        )
    if "json" in known:
        return Printed(key=known["json"])
    try:
        pattern = re.compile(known["pattern"])
    except re.error as error:
        raise ConfigError(f"{where}: pattern is none: {error}") from None
    if pattern.groups != 1:
        raise ConfigError(f"{where}: pattern must have one group ( ), around the number")
    return Printed(pattern=pattern)
