"""Cache of ended trials of active studies, which are not read again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from itertools import takewhile

import db
from tuner.core import Trial

MOST_KEPT = 20_000
"""Number of trials kept, some 2 kB each; the least recently requested study is evicted first."""


class EndedTrials:
    """Keep ended trials, which never change; later ones are read from the store. Thread-safe.

    The last kept trial is read again each time: if it differs, its study was deleted, and its name
    given to a new one.
    """

    def __init__(self, trials: db.Trials, most: int = MOST_KEPT) -> None:
        self._trials, self._most = trials, most
        self._ended: OrderedDict[str, Sequence[Trial]] = OrderedDict()
        self._kept = 0
        self._lock = threading.Lock()

    def list(self, study: str) -> Sequence[Trial]:
        """Return all trials of a study by number."""
        with self._lock:
            ended = self._ended.get(study, ())
        fresh = self._trials.list(study, ended[-1].number if ended else 1)
        if ended and fresh[:1] != ended[-1:]:
            ended, fresh = (), self._trials.list(study)
        listed = (*ended[:-1], *fresh)
        self._keep(study, tuple(takewhile(lambda trial: trial.state.final, listed)))
        return listed

    def _keep(self, study: str, ended: Sequence[Trial]) -> None:
        """Cache the study's ended trials, and drop the oldest studies above the limit."""
        with self._lock:
            self._kept += len(ended) - len(self._ended.pop(study, ()))
            self._ended[study] = ended
            while self._kept > self._most:
                self._kept -= len(self._ended.popitem(last=False)[1])
