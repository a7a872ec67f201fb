"""What files on this host say of numbers that stand in a text, and what they mean."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from agents.host.service_files.printed import Printed, PrintedMetric
from agents.host.service_files.tables import checked, inner
from tuner.core import Better, ConfigError, Quantity, standard

ITEMS_KEYS = {"count": int, "json": str, "pattern": str}
MEANING_KEYS = {"name": str, "better": str, "unit": str}
METRIC_KEYS = {**MEANING_KEYS, "json": str, "pattern": str}
BETTER = {"less": Better.LESS, "more": Better.MORE}
COUNTED = ("energy_j", "power_w", "cpu_time_ms", "latency_ms", "throughput_per_s")
"""What is measured around a run, and so is no word of its own."""


def printed_items(where: str, table: Mapping[str, Any]) -> int | Printed:
    """Return how many items a run works on, or where it prints that; 1 by itself. Raises ConfigError."""
    known = inner(where, table, "items", ITEMS_KEYS)
    if "count" not in known:
        return printed(where, known) if known else 1
    if len(known) > 1 or known["count"] < 1:
        raise ConfigError(
            f"{where}: give a count of at least 1, or json or pattern of the printed count"
        )
    return int(known["count"])


def printed_metrics(where: str, tables: list[Any]) -> tuple[PrintedMetric, ...]:
    """Return the metrics that tables `[[metric]]` say. Raises ConfigError."""
    metrics: dict[str, PrintedMetric] = {}
    for n, one in enumerate(tables, 1):
        at = f"{where}: metric {n}"
        known = checked(at, one, METRIC_KEYS, "name")
        name = metric_name(at, known["name"], (*COUNTED, *metrics))
        metrics[name] = PrintedMetric(name, declared_quantity(at, known), printed(at, known))
    return tuple(metrics.values())


def metric_name(where: str, name: str, taken: Collection[str]) -> str:
    """Return a metric's name that nothing has yet. Raises ConfigError."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise ConfigError(f"{where}: name cannot be {name!r}", hint="write it like accuracy")
    if name in taken:
        raise ConfigError(f"{where}: duplicate metric {name}", hint="leave it out")
    return name


def declared_quantity(where: str, known: Mapping[str, Any]) -> Quantity:
    """Return what a metric means: by its name, else by the file. Raises ConfigError."""
    usual = standard(known["name"])
    if usual is not None:
        if {"better", "unit"} & known.keys():
            raise ConfigError(
                f"{where}: what {known['name']} means is standard; leave out the other keys"
            )
        return usual
    better = known.get("better")
    if better is not None and better not in BETTER:
        raise ConfigError(f"{where}: better cannot be {better!r}", hint="choose less or more")
    return Quantity(known.get("unit", "1"), BETTER.get(better or ""), signed=True)


def printed(where: str, known: Mapping[str, Any]) -> Printed:
    """Return where a number stands. Raises ConfigError."""
    if ("json" in known) is ("pattern" in known):
        raise ConfigError(
            f"{where} needs a json or a pattern, one of them",
            hint="json is a key of the last line that is a JSON object; pattern has one group, "
            "like 'accuracy: ([0-9.]+)'",
        )
    if "json" in known:
        return Printed(key=known["json"])
    return Printed(pattern=one_group(where, known["pattern"]))


def one_group(where: str, text: str) -> re.Pattern[str]:
    """Return a pattern with one group. Raises ConfigError."""
    pattern = compiled(where, text)
    if pattern.groups != 1:
        raise ConfigError(f"{where}: pattern must have one group ( ), around the value")
    return pattern


def compiled(where: str, text: str) -> re.Pattern[str]:
    """Return a pattern. Raises ConfigError where it is none."""
    try:
        return re.compile(text)
    except re.error as error:
        raise ConfigError(f"{where}: pattern is not a regular expression: {error}") from None
