"""Observations and events in memory: what comes in by itself and is pruned by age."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from datetime import datetime

from db.memory.tables import Tables, last_of
from tuner.core import Bus, Event, Limit, MetricSample, Notice, Observation, Verdict, judge


class MemoryObservations:
    """Observations in memory."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def add(self, observation: Observation) -> bool:
        """Keep an observation; False where it is kept already. Raises NotFound."""
        return self.add_all([observation])[0]

    def add_all(self, observations: Sequence[Observation]) -> Sequence[bool]:
        """Keep observations, all or none; say of each whether it is new. Raises NotFound."""
        with self._tables.lock:
            for observation in observations:
                self._tables.study(observation.study)
            return [self._keep(observation) for observation in observations]

    def _keep(self, observation: Observation) -> bool:
        key = observation.study, observation.device, observation.measurement.started_at
        if key in self._tables.observations:
            return False
        self._tables.observations[key] = deepcopy(observation)
        return True

    def list(self, study: str, last: int | None = None) -> Sequence[Observation]:
        """Return the (last) observations of a study, oldest first."""
        with self._tables.lock:
            found = [o for o in self._tables.observations.values() if o.study == study]
            return last_of(sorted(found, key=lambda o: o.at), last)

    def oldest(self) -> datetime | None:
        """Return when the first of all was made, None where there is none."""
        with self._tables.lock:
            return min((o.at for o in self._tables.observations.values()), default=None)

    def samples(
        self, study: str, metric: str, since: datetime, last: int | None = None
    ) -> Sequence[MetricSample]:
        """Return the (last) windows begun since a time that show a metric, by their start."""
        with self._tables.lock:
            windows = [o for o in self._tables.observations.values() if o.study == study]
        found = [g for o in windows if (g := o.metric_sample(metric)) and g.started_at >= since]
        return last_of(sorted(found, key=lambda g: g.started_at), last)

    def broken(self, study: str, limits: Sequence[Limit]) -> int:
        """Return how many windows of a study prove by themselves that they broke a limit."""
        with self._tables.lock:
            windows = [o for o in self._tables.observations.values() if o.study == study]
        return sum(judge(o.measurement.estimates, limits) is Verdict.INFEASIBLE for o in windows)

    def prune(self, before: datetime) -> int:
        """Delete those made before a time and return how many."""
        with self._tables.lock:
            old = [k for k, o in self._tables.observations.items() if o.at < before]
            for key in old:
                del self._tables.observations[key]
            return len(old)


class MemoryEvents:
    """Events in memory."""

    def __init__(self, tables: Tables, bus: Bus) -> None:
        self._tables = tables
        self._bus = bus

    def add(self, event: Event) -> Event:
        """Keep an event, publish that there is one, and return it with its id."""
        with self._tables.lock:
            self._tables.last_event += 1
            stored = replace(event, id=self._tables.last_event)
            self._tables.events.append(stored)
        self._bus.publish(Notice.of(stored))
        return stored

    def add_all(self, events: Sequence[Event]) -> Sequence[Event]:
        """Keep events, publish that there are, and return them with their ids."""
        return tuple(map(self.add, events))

    def after(
        self, event: int, most: int | None, study: str | None = None, device: str | None = None
    ) -> Sequence[Event]:
        """Return at most so many (None: all) of the events with a greater id, by id."""
        with self._tables.lock:
            found = [
                e
                for e in self._tables.events
                if e.id > event and study in (None, e.study) and device in (None, e.device)
            ]
            return tuple(found[:most])

    def newest(self) -> int:
        """Return the greatest id there is, 0 where there is no event."""
        with self._tables.lock:
            return max((e.id for e in self._tables.events), default=0)

    def list(
        self, study: str | None = None, device: str | None = None, last: int | None = None
    ) -> Sequence[Event]:
        """Return the (last) events, oldest first, of one study or device where asked."""
        with self._tables.lock:
            found = [
                e
                for e in self._tables.events
                if study in (None, e.study) and device in (None, e.device)
            ]
            return last_of(sorted(found, key=lambda e: e.at), last)

    def oldest(self) -> datetime | None:
        """Return when the first of all was, None where there is none."""
        with self._tables.lock:
            return min((e.at for e in self._tables.events), default=None)

    def prune(self, before: datetime) -> int:
        """Delete those before a time but the newest, after which ids count on; return how many."""
        with self._tables.lock:
            newest = self._tables.last_event
            kept = [e for e in self._tables.events if e.at >= before or e.id == newest]
            gone = len(self._tables.events) - len(kept)
            self._tables.events[:] = kept
            return gone
