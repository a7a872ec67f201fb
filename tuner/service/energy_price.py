"""The cost and the emissions of a kilowatt-hour over time, from the operator's series."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, field

import httpx2

from tuner import files, http_clients
from tuner.config import SeriesTable, TunerConfig
from tuner.core import ENERGY, ConfigError, InvalidInput, TimeSeries
from tuner.rows import EachRow
from tuner.wire import StudyDraft

TIMEOUT_S = 10.0
MOST_BYTES = 8 * 1024 * 1024
RETRY_S = 60.0
LONGEST_S = 2.0 * TIMEOUT_S
SERIES = "the series"


class SeriesFeed:
    """A series read periodically from its CSV or URL; the last successful reading counts until the next."""

    def __init__(
        self,
        name: str,
        table: SeriesTable,
        monotonic: Callable[[], float] = time.monotonic,
        transport: httpx2.BaseTransport | None = None,
        rows: EachRow | None = None,
    ) -> None:
        self._name, self._table = name, table
        self._monotonic, self._transport = monotonic, transport
        self._due_s = monotonic()
        self.series = table.series(name)
        """The series of the last successful reading."""
        self._rows = rows or EachRow(SERIES)
        self._reading: Future[TimeSeries] | None = None
        self._lock = threading.Lock()

    def refresh(self) -> None:
        """Read the series if it is due. A failure is noted as an event, and retried after 60 s at most."""
        if not (self._table.csv or self._table.url):
            return
        with self._lock:
            now_s = self._monotonic()
            if now_s < self._due_s:
                return
            read = self._rows.each(self._name, self._read, lambda _: None)
            self.series = read or self.series
            every_s = self._table.every_s
            self._due_s = self._monotonic() + (every_s if read else min(RETRY_S, every_s))

    def _read(self) -> TimeSeries:
        """Return the series from its CSV or URL. Raises ConfigError."""
        if self._table.csv is not None:
            return self._table.from_csv(self._name)
        # In a thread: a slowly sent header delays the other series by LONGEST_S at most.
        if self._reading is None:
            self._reading = Future()
            threading.Thread(target=self._fetch, args=(self._reading,), daemon=True).start()
        try:
            read = self._reading.result(LONGEST_S)
        except FutureTimeout:
            raise ConfigError(
                f"{self._table.url} has not answered within {LONGEST_S:g} s"
            ) from None
        except Exception:
            self._reading = None
            raise
        self._reading = None
        return read

    def _fetch(self, reading: Future[TimeSeries]) -> None:
        """Complete a reading with the series of the URL, or with the error."""
        try:
            reading.set_result(self._fetched())
        except BaseException as error:  # noqa: BLE001  its reader raises it
            reading.set_exception(error)

    def _fetched(self) -> TimeSeries:
        """Return the series from the URL. Raises ConfigError."""
        headers = {}
        if self._table.token_file is not None:
            try:
                headers["Authorization"] = f"Bearer {files.token(self._table.token_file)}"
            except (OSError, ValueError) as error:
                reason = getattr(error, "strerror", None) or "it is not one word of ASCII"
                raise ConfigError(f"{self._table.token_file} cannot be read: {reason}") from None
        inner = self._transport or http_clients.outward(self._table.url)
        try:
            with http_clients.client(
                MOST_BYTES, TIMEOUT_S, inner, timeout=TIMEOUT_S, follow_redirects=True
            ) as client:
                answer = client.get(self._table.url, headers=headers)
        except httpx2.HTTPError as error:
            raise ConfigError(
                f"{self._table.url} does not answer: {error or type(error).__name__}"
            ) from None
        if not answer.is_success:
            raise ConfigError(
                f"{self._table.url} answered {answer.status_code}",
                hint="check the address and the token",
            )
        return self._table.from_json(self._name, answer.text)


@dataclass(frozen=True, slots=True)
class EnergyPrice:
    """The series of cost in `currency`, and of emissions in g of CO2e, per kilowatt-hour; None if not set.

    `others` are the named series of tuner.toml.
    """

    per_kwh: SeriesFeed | None = None
    currency: str = ""
    co2e_g_per_kwh: SeriesFeed | None = None
    others: Mapping[str, SeriesFeed] = field(default_factory=dict)

    @classmethod
    def of(cls, config: TunerConfig, rows: EachRow | None = None) -> EnergyPrice:
        """Return the series of a configuration; the first `refresh` reads those with a CSV or a URL."""

        def feed(name: str, table: SeriesTable | None) -> SeriesFeed | None:
            return None if table is None else SeriesFeed(name, table, rows=rows)

        return cls(
            feed("price_per_kwh", config.price_per_kwh),
            config.currency,
            feed("co2e_g_per_kwh", config.co2e_g_per_kwh),
            {name: SeriesFeed(name, table, rows=rows) for name, table in config.series.items()},
        )

    @property
    def series(self) -> Mapping[str, TimeSeries]:
        """Return the configured series of `cost` and `co2e_g`, by these names."""
        feeds = {"cost": self.per_kwh, "co2e_g": self.co2e_g_per_kwh}
        return {name: feed.series for name, feed in feeds.items() if feed is not None}

    def refresh(self) -> None:
        """Read the series that are due."""
        for feed in (self.per_kwh, self.co2e_g_per_kwh, *self.others.values()):
            if feed is not None:
                feed.refresh()


VALUED = {"cost": "price_per_kwh", "carbon_g": "co2e_g_per_kwh"}
"""Objectives that are energy at a price, with the key of their series in tuner.toml."""


def in_energy(draft: StudyDraft, price: EnergyPrice, measured: Collection[str]) -> StudyDraft:
    """Return a draft that minimises energy if its objective is cost or carbon per item.

    A setting does not change the price of its hour: at each load the setting of the least energy is also
    that of the least cost, at every hour. The bill then values each window at its own time. A device that
    measures the metric itself, as a federation does its grams, is tuned for that metric.

    Raises:
        InvalidInput: the series of the objective is not set in tuner.toml, or the goal is to maximize it.
    """
    goal, _, metric = draft.objective.strip().rpartition(" ")
    if metric not in VALUED or metric in measured:
        return draft
    if goal not in ("", "minimize", "minimise"):
        raise InvalidInput(f"{metric} can be minimized only", hint=f"write {metric}")
    if ("cost" if metric == "cost" else "co2e_g") not in price.series:
        raise InvalidInput(
            f"the objective {metric} needs {VALUED[metric]}",
            hint=f"set {VALUED[metric]} in tuner.toml, then restart the tuner",
        )
    return draft.model_copy(update={"objective": ENERGY})
