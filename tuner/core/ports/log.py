"""Ports for the windows of holds, the operator's log and the deliveries of its events."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Protocol

from tuner.core.devices import Delivery, Event, MetricCourse, MetricSample, Observation, WindowPoint
from tuner.core.goals import Limit
from tuner.core.ports.rows import StoredRows

__all__ = ["Deliveries", "Events", "Observations"]


class Observations(Protocol):
    """Windows measured while a study holds a plan."""

    def add_all(self, observations: Sequence[Observation]) -> Sequence[bool]:
        """Store observations in one transaction, all or none; return for each whether it is new.

        It is not new if one of the same study, device and start is stored already.

        Raises:
            NotFound: the study of an observation does not exist.
        """

    def list(self, study: str, last: int | None = None) -> Sequence[Observation]:
        """Return the `last` observations of a study (None: all), oldest first."""

    def oldest(self) -> datetime | None:
        """Return the time of the oldest observation, None without observations."""

    def samples(
        self, study: str, metric: str, since: datetime, last: int | None = None
    ) -> Sequence[MetricSample]:
        """Return the `last` windows (None: all) begun since a time that have a metric, by their start."""

    def broken(self, study: str, limits: Sequence[Limit]) -> int:
        """Return the number of a study's windows that each prove that a limit was broken."""

    def recent(
        self, studies: Collection[str], metrics: Collection[str], since: datetime, last: int
    ) -> Sequence[MetricCourse]:
        """Return metrics over the latest windows of each device in some studies.

        These are windows of holds and of a study's latest `last` trials, begun since a time: at most `last`
        of each device, and at most `last` measured on all devices of a study together.
        """

    def course(
        self,
        device: str,
        studies: Collection[str],
        metrics: Collection[str],
        since: datetime,
        step_s: float,
    ) -> Sequence[WindowPoint]:
        """Return metrics of a device's windows since a time, one point per `step_s`, by their start.

        These are windows of holds, and of those trials of `studies` in which the device took part.
        """

    def prune(self, before: datetime) -> int:
        """Delete observations made before a time and return their number."""


class Events(Protocol):
    """The operator's log."""

    def add(self, event: Event) -> Event:
        """Store an event, publish a notice of it, and return it with its id."""

    def add_all(self, events: Sequence[Event]) -> Sequence[Event]:
        """Store events, all or none, publish notices of them, and return them with their ids."""

    def after(
        self, event: int, most: int | None, study: str | None = None, device: str | None = None
    ) -> Sequence[Event]:
        """Return the first `most` events (None: all) whose ids are greater than `event`, by id."""

    def newest(self) -> int:
        """Return the greatest id of an event, 0 without events."""

    def list(
        self, study: str | None = None, device: str | None = None, last: int | None = None
    ) -> Sequence[Event]:
        """Return the `last` events (None: all), oldest first: of a study, of a device, or of all."""

    def oldest(self) -> datetime | None:
        """Return the time of the oldest event, None without events."""

    def prune(self, before: datetime) -> int:
        """Delete events before a time and return their number.

        The newest event stays, so that later ids continue from its id.
        """


class Deliveries(Protocol):
    """How far each destination of notifications has received the events."""

    def get(self, destination: str, /) -> Delivery | None:
        """Return a destination's progress, None for a new destination."""

    def put(self, delivery: Delivery, /) -> None:
        """Store a destination's progress."""

    def list(self) -> StoredRows[Delivery]:
        """Return the progress of all destinations, by name."""

    def forget(self, destination: str, /) -> None:
        """Remove a destination that was dropped from the configuration; do nothing if it is unknown."""
