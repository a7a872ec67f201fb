"""Caches of the data that pages show of studies, because many viewers may watch the same study."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from db.history import judging
from tuner.core import Notice, Past, Study
from tuner.service.operations import Operations
from tuner.service.reports import StudyLook
from tuner.wire import ExplanationView

KEPT = 64
TRUSTED_S = 30.0
"""The longest age of a cached study in seconds, because windows of a hold cause no notice."""


class Looks:
    """A cache of the latest data of studies; thread-safe."""

    def __init__(
        self, operations: Operations, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._operations, self._monotonic = operations, monotonic
        self._cached: OrderedDict[str, tuple[StudyLook, float]] = OrderedDict()
        self._changes = 0
        self._lock = threading.Lock()
        operations.loop.store.bus.subscribe(self._on_notice)

    def at(self, study: str) -> StudyLook:
        """Return a study's current data, at most `TRUSTED_S` seconds old. Raises NotFound."""
        with self._lock:
            changes = self._changes
            cached = self._cached.get(study)
        if cached is not None and self._monotonic() < cached[1]:
            return cached[0]
        look = self._operations.look(study)
        with self._lock:
            if changes == self._changes:
                self._cached[study] = look, self._monotonic() + TRUSTED_S
                self._cached.move_to_end(study)
                if len(self._cached) > KEPT:
                    self._cached.popitem(last=False)
        return look

    def _on_notice(self, notice: Notice) -> None:
        """Drop the notice's study; drop all studies if it names none, as with a stop of all devices."""
        with self._lock:
            self._changes += 1
            if notice.study:
                self._cached.pop(notice.study, None)
            else:
                self._cached.clear()


class Explanations:
    """A cache of the predictions of studies, because a fit of the model takes seconds; thread-safe.

    A prediction is valid until the study's revision or its number of trials changes.
    """

    def __init__(self, operations: Operations) -> None:
        self._operations = operations
        self._kept: OrderedDict[tuple[str, str], tuple[tuple[int, int], ExplanationView]] = (
            OrderedDict()
        )
        self._lock = threading.Lock()

    def of(self, study: str, setting: str = "") -> ExplanationView:
        """Return the predictions of a study's policy, as `Operations.explain` does.

        Callers wait for one computation.
        """
        store, study = self._operations.loop.store, self._operations.full_id(study)
        with self._lock:
            stamp = store.studies.get(study).revision, store.trials.count(study)
            cached = self._kept.get((study, setting))
            if cached is None or cached[0] != stamp:
                cached = stamp, self._operations.explain(study, setting)
                self._kept[study, setting] = cached
                if len(self._kept) > KEPT:
                    self._kept.popitem(last=False)
            return cached[1]


class Judges:
    """A cache of the baselines by which trials are judged, each until its study changes; thread-safe."""

    def __init__(
        self, operations: Operations, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._store, self._monotonic = operations.loop.store, monotonic
        self._cached: dict[str, Past] = {}
        operations.loop.store.bus.subscribe(self._on_notice)

    def _on_notice(self, notice: Notice) -> None:
        """Drop the notice's study from the cache."""
        self._cached.pop(notice.study, None)

    def kept(self, study: Study) -> Past | None:
        """Return a study's baseline from the cache; None if it is not there or the study has changed."""
        cached = self._cached.get(study.id)
        return cached if cached is not None and cached.study == study else None

    def past(self, study: Study) -> Past:
        """Return a study's baseline, by which its trials are judged."""
        cached = self.kept(study)
        if cached is None:
            cached = self._cached[study.id] = judging(self._store, study)
        return cached

    def within(self, seconds: float, pending: set[str]) -> Callable[[Study], Past | None]:
        """Return a version of `past` with a time limit.

        After `seconds` it reads no further study. For a study that is not cached it then returns None
        and adds the study to `pending`.
        """
        until = self._monotonic() + seconds

        def past(study: Study) -> Past | None:
            cached = self.kept(study)
            if cached is None and self._monotonic() < until:
                return self.past(study)
            if cached is None:
                pending.add(study.id)
            return cached

        return past
