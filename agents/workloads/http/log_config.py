"""The log in a service's file: the pattern of its lines."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.host.service_files.printed_table import (
    MEANING_KEYS,
    compiled,
    declared_quantity,
    metric_name,
)
from agents.host.service_files.tables import absolute, checked, inner
from agents.workloads.http.metric_config import UNITS_MS
from tuner.core import NUMBER, ConfigError, Metric, Quantity, Scope, standard

LOG_KEYS: dict[str, Any] = {"file": str, "pattern": str, "failed": str, "metric": list}
LATENCY = {f"latency_{unit}": factor for unit, factor in UNITS_MS.items()}
"""The groups with a request's latency."""
ITEMS = "items"


@dataclass(frozen=True, slots=True)
class LogLines:
    """A log: the pattern of a good line, with its groups, and that of a failed request."""

    file: Path
    pattern: re.Pattern[str]
    failed: re.Pattern[str] | None
    metrics: Mapping[str, Quantity]

    @property
    def latency(self) -> str:
        """The group with a request's latency; empty if the log has none."""
        return next((name for name in LATENCY if name in self.pattern.groupindex), "")

    @property
    def has_items(self) -> bool:
        """Whether each line is one or more items of work."""
        return bool(self.latency) or ITEMS in self.pattern.groupindex

    @property
    def listed(self) -> tuple[Metric, ...]:
        """The metrics of its other groups."""
        return tuple(
            Metric(name, scope=Scope.SERVICE, quantity=one) for name, one in self.metrics.items()
        )


def log_lines(where: str, table: Mapping[str, Any]) -> LogLines | None:
    """Parse `[log]`; None if the file has no `[log]`. Raises ConfigError."""
    entry = inner(where, table, "log", LOG_KEYS, "file", "pattern")
    if not entry:
        return None
    pattern = compiled(where, entry["pattern"])
    groups = [name for name in pattern.groupindex if name not in (*LATENCY, ITEMS)]
    if not pattern.groupindex:
        raise ConfigError(
            f"{where}: pattern has no named group",
            hint=f"write it like 'took=(?P<latency_s>{NUMBER})'",
        )
    if len(LATENCY.keys() & pattern.groupindex.keys()) > 1:
        raise ConfigError(f"{where}: {' and '.join(LATENCY)} are the same", hint="leave one out")
    quantities: dict[str, Quantity] = {}
    for n, one in enumerate(entry.get("metric", []), 1):
        at = f"{where}: metric {n}"
        meaning = checked(at, one, MEANING_KEYS, "name")
        if meaning["name"] not in groups:
            raise ConfigError(f"{at}: the pattern has no group {meaning['name']!r}")
        quantities[meaning["name"]] = declared_quantity(at, meaning)
    for name in groups:
        metric_name(where, name, ())
        if standard(name) is not None:
            raise ConfigError(
                f"{where}: the group {name} has the name of another metric",
                hint="give it another name",
            )
    return LogLines(
        absolute(where, "file", entry["file"]),
        pattern,
        compiled(f"{where}: failed", entry["failed"]) if "failed" in entry else None,
        {name: quantities.get(name) or declared_quantity(where, {"name": name}) for name in groups},
    )
