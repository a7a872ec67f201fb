"""What pages show of studies, kept while nothing has happened: many may watch one."""

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
"""Held windows come without any news of them."""


class Looks:
    """The latest looks at studies. Safe from many threads."""

    def __init__(
        self, operations: Operations, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._operations, self._monotonic = operations, monotonic
        self._cached: OrderedDict[str, tuple[StudyLook, float]] = OrderedDict()
        self._changes = 0
        self._lock = threading.Lock()
        operations.loop.store.bus.subscribe(self._on_notice)

    def at(self, study: str) -> StudyLook:
        """Return a study as it stands. Raises NotFound."""
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
        """Forget the study; a notice that names none may be of all, as a stop of all devices is."""
        with self._lock:
            self._changes += 1
            if notice.study:
                self._cached.pop(notice.study, None)
            else:
                self._cached.clear()


class Explanations:
    """Predictions of studies, kept until a trial ends: a fit takes seconds. Safe from many threads."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations
        self._kept: OrderedDict[str, tuple[tuple[int, int], ExplanationView]] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, study: str) -> ExplanationView:
        """Return what a study's policy predicts, worked out once however many wait. Raises NotFound."""
        store, study = self._operations.loop.store, self._operations.full_id(study)
        with self._lock:
            stamp = store.studies.get(study).revision, store.trials.count(study)
            cached = self._kept.get(study)
            if cached is None or cached[0] != stamp:
                cached = self._kept[study] = stamp, self._operations.explain(study)
                if len(self._kept) > KEPT:
                    self._kept.popitem(last=False)
            return cached[1]


class Judges:
    """What the verdicts of studies are derived from, kept until a study changes. Safe from many threads."""

    def __init__(
        self, operations: Operations, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._store, self._monotonic = operations.loop.store, monotonic
        self._cached: dict[str, Past] = {}
        operations.loop.store.bus.subscribe(self._on_notice)

    def _on_notice(self, notice: Notice) -> None:
        self._cached.pop(notice.study, None)

    def kept(self, study: Study) -> Past | None:
        """Return a study's baseline where it was read before, None else."""
        cached = self._cached.get(study.id)
        return cached if cached is not None and cached.study == study else None

    def past(self, study: Study) -> Past:
        """Return a study's baseline, as its trials are judged by it."""
        cached = self.kept(study)
        if cached is None:
            cached = self._cached[study.id] = judging(self._store, study)
        return cached

    def within(self, seconds: float, pending: set[str]) -> Callable[[Study], Past | None]:
        """Return `past`, which after that time reads no further study but adds the study to `pending`."""
        until = self._monotonic() + seconds

        def past(study: Study) -> Past | None:
            cached = self.kept(study)
            if cached is None and self._monotonic() < until:
                return self.past(study)
            if cached is None:
                pending.add(study.id)
            return cached

        return past
