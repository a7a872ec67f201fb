"""Declarations in this host's files of printed numbers: their places and their meaning."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from agents.host.service_files.printed import Printed, PrintedMetric
from agents.host.service_files.tables import checked, inner
from tuner.core import NUMBER, Better, ConfigError, Quantity, standard

ITEMS_KEYS = {"count": int, "json": str, "pattern": str}
MEANING_KEYS = {"name": str, "better": str, "unit": str}
METRIC_KEYS = {**MEANING_KEYS, "json": str, "pattern": str}
BETTER = {"less": Better.LESS, "more": Better.MORE}
COUNTED = ("energy_j", "power_w", "cpu_time_ms", "latency_ms", "throughput_per_s")
"""Metrics that are measured around a run; a printed metric cannot have such a name."""

RUNS, LEAST_RUNS = 4, 3
"""Runs per window by default, and at least: fewer have no meaningful standard error."""


def runs_per_window(where: str, table: Mapping[str, Any]) -> int:
    """Return the runs of a window. Raises ConfigError: there are too few."""
    runs: int = table.get("runs", RUNS)
    if runs < LEAST_RUNS:
        raise ConfigError(
            f"{where}: runs must be at least {LEAST_RUNS}, not {runs}",
            hint="the standard error of a window comes from its runs; make a run shorter",
        )
    return runs


def printed_items(where: str, table: Mapping[str, Any]) -> int | Printed:
    """Return the number of items of a run, or the place where the run prints it; 1 if not declared.

    Raises:
        ConfigError: the table `items` is not valid.
    """
    entry = inner(where, table, "items", ITEMS_KEYS)
    if "count" not in entry:
        return printed(where, entry) if entry else 1
    if len(entry) > 1 or entry["count"] < 1:
        raise ConfigError(
            f"{where}: give a count of at least 1, or json or pattern of the printed count"
        )
    return int(entry["count"])


def printed_metrics(where: str, tables: list[Any]) -> tuple[PrintedMetric, ...]:
    """Return the metrics that the tables `[[metric]]` declare. Raises ConfigError: one is not valid."""
    metrics: dict[str, PrintedMetric] = {}
    for n, one in enumerate(tables, 1):
        at = f"{where}: metric {n}"
        entry = checked(at, one, METRIC_KEYS, "name")
        name = metric_name(at, entry["name"], (*COUNTED, *metrics))
        metrics[name] = PrintedMetric(name, declared_quantity(at, entry), printed(at, entry))
    return tuple(metrics.values())


def metric_name(where: str, name: str, taken: Collection[str]) -> str:
    """Return a metric's name. Raises ConfigError: the name is malformed or already in use."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise ConfigError(f"{where}: name cannot be {name!r}", hint="write it like accuracy")
    if name in taken:
        raise ConfigError(f"{where}: duplicate metric {name}", hint="leave it out")
    return name


def declared_quantity(where: str, entry: Mapping[str, Any]) -> Quantity:
    """Return a metric's quantity: the standard one of its name, else the one declared in the file.

    Raises:
        ConfigError: the file redefines a standard quantity, or `better` is not valid.
    """
    usual = standard(entry["name"])
    if usual is not None:
        if {"better", "unit"} & entry.keys():
            raise ConfigError(
                f"{where}: what {entry['name']} means is standard; leave out the other keys"
            )
        return usual
    better = entry.get("better")
    if better is not None and better not in BETTER:
        raise ConfigError(f"{where}: better cannot be {better!r}", hint="choose less or more")
    return Quantity(entry.get("unit", "1"), BETTER.get(better or ""), signed=True)


def printed(where: str, entry: Mapping[str, Any]) -> Printed:
    """Return the place of a printed number. Raises ConfigError: it is neither one key nor one pattern."""
    if ("json" in entry) is ("pattern" in entry):
        raise ConfigError(
            f"{where} needs a json or a pattern, one of them",
            hint="json is a key of the last line that is a JSON object; pattern has one group, "
            f"like 'accuracy: ({NUMBER})'",
        )
    if "json" in entry:
        return Printed(key=entry["json"])
    return Printed(pattern=one_group(where, entry["pattern"]))


def one_group(where: str, text: str) -> re.Pattern[str]:
    """Return a compiled pattern with one group. Raises ConfigError: the pattern is not valid."""
    pattern = compiled(where, text)
    if pattern.groups != 1:
        raise ConfigError(f"{where}: pattern must have one group ( ), around the value")
    return pattern


def compiled(where: str, text: str) -> re.Pattern[str]:
    """Return a compiled pattern. Raises ConfigError: the text is not a regular expression."""
    try:
        return re.compile(text)
    except re.error as error:
        raise ConfigError(f"{where}: pattern is not a regular expression: {error}") from None
