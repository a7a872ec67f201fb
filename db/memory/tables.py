"""What the memory without a database remembers, and the one lock around it."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from db import refusals
from tuner.core import (
    AccessToken,
    Applied,
    AuditEntry,
    Delivery,
    Device,
    Event,
    FleetStop,
    Lease,
    Observation,
    Report,
    Revision,
    Study,
    Trial,
    TrialState,
    TunerReplica,
)

T = TypeVar("T")
TrialKey = tuple[str, int]
ObservationKey = tuple[str, str, datetime]


@dataclass(slots=True)
class Tables:
    """Everything remembered, and the one lock around it."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    revisions: dict[str, list[Revision]] = field(default_factory=dict)
    trials: dict[str, dict[int, Trial]] = field(default_factory=dict)
    states: dict[TrialKey, list[tuple[TrialState, int, datetime]]] = field(default_factory=dict)
    reports: dict[TrialKey, dict[tuple[str, int, str], Report]] = field(default_factory=dict)
    leases: dict[str, Lease] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=dict)
    devices: dict[str, Device] = field(default_factory=dict)
    applied: dict[str, list[Applied]] = field(default_factory=dict)
    refusals: dict[str, str] = field(default_factory=dict)
    replicas: dict[str, TunerReplica] = field(default_factory=dict)
    observations: dict[ObservationKey, Observation] = field(default_factory=dict)
    access: dict[str, AccessToken] = field(default_factory=dict)
    deliveries: dict[str, Delivery] = field(default_factory=dict)
    audit: list[AuditEntry] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    last_event: int = 0
    stop: FleetStop | None = None

    def study(self, study: str) -> Study:
        """Return the study at its latest revision, or refuse a name that nobody knows."""
        if study not in self.revisions:
            raise refusals.no_study(study)
        return self.revisions[study][-1].study

    def trial(self, study: str, number: int) -> Trial:
        """Return one trial of the study, or refuse a number that it has not."""
        if number not in self.trials.get(study, {}):
            raise refusals.no_trial(study, number)
        return self.trials[study][number]


def last_of(items: Iterable[T], last: int | None) -> tuple[T, ...]:
    """Return copies of the `last` items in their order; all of them where it is None."""
    found = list(items)
    return tuple(deepcopy(found if last is None else found[max(0, len(found) - last) :]))
