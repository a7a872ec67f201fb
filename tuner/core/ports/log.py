"""What happened, as it is kept: windows of holds, the operator's log, and its deliveries."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Protocol

from tuner.core.devices import Delivery, Event, MetricCourse, MetricSample, Observation, WindowPoint
from tuner.core.goals import Limit

__all__ = ["Deliveries", "Events", "Observations"]


class Observations(Protocol):
    """Windows measured while holding."""

    def add_all(self, observations: Sequence[Observation]) -> Sequence[bool]:
        """Keep observations in one transaction, all or none; say of each whether it is new.

        One of the same study, device and start as one that is kept is not.

        Raises:
            NotFound: one is of a study that is not there.
        """

    def list(self, study: str, last: int | None = None) -> Sequence[Observation]:
        """Return the (last) observations of a study, oldest first."""

    def oldest(self) -> datetime | None:
        """Return when the first of all was made, None where there is none."""

    def samples(
        self, study: str, metric: str, since: datetime, last: int | None = None
    ) -> Sequence[MetricSample]:
        """Return the (last) windows begun since a time that show a metric, by their start."""

    def broken(self, study: str, limits: Sequence[Limit]) -> int:
        """Return how many windows of a study prove by themselves that they broke a limit."""

    def recent(
        self, studies: Collection[str], metrics: Collection[str], since: datetime, last: int
    ) -> Sequence[MetricCourse]:
        """Return metrics over the last windows of each device in some studies.

        Of the windows begun since a time, in holds and in the latest `last` trials of a study, at most
        `last` of a device, and as many that are of all devices of a study.
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

        Windows of holds, and of the trials of some studies in which the device took part.
        """

    def prune(self, before: datetime) -> int:
        """Delete those made before a time and return how many."""


class Events(Protocol):
    """The operator's log."""

    def add(self, event: Event) -> Event:
        """Keep an event, publish that there is one, and return it with its id."""

    def add_all(self, events: Sequence[Event]) -> Sequence[Event]:
        """Keep events at once or none, publish that there are, and return them with their ids."""

    def after(
        self, event: int, most: int | None, study: str | None = None, device: str | None = None
    ) -> Sequence[Event]:
        """Return at most the given number (None: all) of the events with a greater id, by id."""

    def newest(self) -> int:
        """Return the greatest id there is, 0 where there is no event."""

    def list(
        self, study: str | None = None, device: str | None = None, last: int | None = None
    ) -> Sequence[Event]:
        """Return the (last) events, oldest first, of one study or device where asked."""

    def oldest(self) -> datetime | None:
        """Return when the first of all was, None where there is none."""

    def prune(self, before: datetime) -> int:
        """Delete those before a time but the newest, after which ids count on; return how many."""


class Deliveries(Protocol):
    """How far each destination of notifications has received the events."""

    def get(self, destination: str, /) -> Delivery | None:
        """Return how far it is, None for a new one."""

    def put(self, delivery: Delivery, /) -> None:
        """Keep how far it is."""

    def list(self) -> Sequence[Delivery]:
        """Return all by the destination's name."""

    def forget(self, destination: str, /) -> None:
        """Remove a destination that there is no more; quietly nothing where it is unknown."""
