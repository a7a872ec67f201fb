"""Series over time in tuner.toml: a number, hours of the week, a CSV file, or an HTTP source."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import Field

from tuner.core import ConfigError, HourRow, InvalidInput, TimeSeries, reraised
from tuner.foreign_bodies import parsed
from tuner.moments import moment
from tuner.typed_toml import Table

WAYS = ("constant", "rows", "csv", "url")
MOST_POINTS = 100_000
HOW = 'write a number, or a table with one of rows, csv, url: { rows = [{ hours = "22-6", value = 0.2 }] }'


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesTable(Table):
    """The source of a value over time: one of `constant`, `rows`, `csv` or `url`.

    A CSV file has a line for each value. `items` is the path of the list in a JSON answer of `url`, as in a
    service's file. `time` and `value` are columns, or paths in each item; a time is ISO 8601 or seconds
    since 1970. Each value is multiplied by `scale`. `every_s` is the interval of reading, in seconds.
    `token_file` has a bearer token.

    Raises:
        ConfigError: the table has none or several of the sources, or a value does not fit.
    """

    constant: float | None = None
    rows: tuple[HourRow, ...] = ()
    time_zone: str = "UTC"
    csv: Path | None = None
    url: str = ""
    items: str = ""
    time: str = "time"
    value: str = "value"
    scale: float = 1.0
    every_s: Annotated[float, Field(ge=60.0, le=86400.0)] = 3600.0
    token_file: Path | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        given = [name for name in WAYS if getattr(self, name) not in (None, (), "")]
        if len(given) != 1:
            raise ConfigError(
                f"a series has {' and '.join(given) or 'none of ' + ', '.join(WAYS)}", hint=HOW
            )
        if not (math.isfinite(self.scale) and self.scale > 0.0):
            raise ConfigError(f"scale cannot be {self.scale}", hint="give a number above 0")
        if self.url:
            parts = urlsplit(self.url)
            local = parts.hostname in ("localhost", "127.0.0.1", "::1")
            if parts.scheme != "https" and not (parts.scheme == "http" and local):
                raise ConfigError(f"url cannot be {self.url!r}", hint="write https://HOST/PATH")
        with reraised(ConfigError, InvalidInput):
            self.series("")

    def series(self, name: str) -> TimeSeries:
        """Return the series of the table alone; that of a CSV file or a URL is empty until it is read."""
        source = str(self.csv or self.url)
        shown = f"{name} by hour" if self.rows else f"{name} of {source}" if source else name
        return TimeSeries(
            name=shown, constant=self.constant, rows=self.rows, time_zone=self.time_zone
        )

    def from_csv(self, name: str) -> TimeSeries:
        """Return the series of its CSV file. Raises ConfigError: the file, a column or a value is wrong."""
        assert self.csv is not None
        try:
            with self.csv.open(newline="", encoding="utf-8") as file:
                rows = list(csv.DictReader(file))
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise ConfigError(f"{self.csv} cannot be read: {error}") from None
        return self._of_items(name, rows, str(self.csv))

    def from_json(self, name: str, text: str) -> TimeSeries:
        """Return the series in an answer of its URL. Raises ConfigError: the answer has another form."""
        try:
            listed = _at(parsed(text), self.items)
        except (ValueError, LookupError, TypeError) as error:
            raise ConfigError(
                f"the answer of {self.url} has no list at {self.items!r}: {error}",
                hint="correct `items`",
            ) from None
        if not isinstance(listed, list):
            raise ConfigError(f"{self.items!r} of {self.url} is not a list", hint="correct `items`")
        return self._of_items(name, listed, self.url)

    def _of_items(self, name: str, items: Sequence[Any], source: str) -> TimeSeries:
        """Return the series of items from a source, in order of time. Raises ConfigError."""
        if not 0 < len(items) <= MOST_POINTS:
            raise ConfigError(
                f"{source} has {len(items)} values", hint=f"give 1 to {MOST_POINTS} of them"
            )
        try:
            points = tuple(sorted(self._points(items, source)))
            return TimeSeries(name=f"{name} of {source}", points=points)
        except InvalidInput as error:
            raise ConfigError(f"{source}: {error.message}", hint=error.hint) from None

    def _points(self, items: Sequence[Any], source: str) -> Iterator[tuple[float, float]]:
        """Yield time, in seconds since 1970, and scaled value of each item. Raises ConfigError."""
        for number, item in enumerate(items, 1):
            try:
                at, value = _at(item, self.time), float(_at(item, self.value)) * self.scale
                yield _seconds(at), value
            except (LookupError, TypeError, ValueError, InvalidInput):
                raise ConfigError(
                    f"{source}: value {number} has no time at {self.time!r} or no number at "
                    f"{self.value!r}: {str(item)[:200]}",
                    hint="correct `time` and `value`",
                ) from None


def tables(given: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return a table in which each plain number at these keys is replaced by a constant series."""

    def table(value: object) -> object:
        plain = isinstance(value, int | float) and not isinstance(value, bool)
        return {"constant": value} if plain else value

    return {key: table(value) if key in names else value for key, value in given.items()}


def _at(node: Any, path: str) -> Any:  # noqa: ANN401  JSON
    """Return the value at a dotted path. Raises LookupError, TypeError, ValueError."""
    for step in path.split(".") if path else ():
        if not isinstance(node, list | Mapping):
            raise TypeError(step)
        node = node[int(step)] if isinstance(node, list) else node[step]
    return node


def _seconds(at: object) -> float:
    """Return a time, as a number or ISO 8601, in seconds since 1970. Raises InvalidInput."""
    if isinstance(at, int | float) and not isinstance(at, bool):
        return float(at)
    parsed = moment("time", str(at), datetime(1970, 1, 1, tzinfo=timezone.utc))
    if parsed is None:
        raise InvalidInput("time is empty")
    return parsed.timestamp()
