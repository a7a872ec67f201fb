"""Reports of held windows: to keep and bill, to judge a canary by, and of ended holds.

A device that is only observed reports its windows in the same way, of no study.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import db
from tuner.core import (
    ENERGY,
    HELD,
    Device,
    HeldRange,
    InvalidInput,
    Measurement,
    NotFound,
    Now,
    Observation,
    Past,
    Phase,
    Study,
    TuningError,
    Unreadable,
    called,
    implausible,
)
from tuner.study import canary
from tuner.study.answers import Derived
from tuner.study.assignments import limits_held
from tuner.study.changes import Changes, Telemetry, looking_again
from tuner.study.trial_reports import require_member
from tuner.wire import HoldOrder, HoldReport, Receipt

MOST_CANARY_WINDOWS = 200
"""Number of a canary's latest windows that are judged."""
BROKEN = "windows in a row"
"""Ending of the reason when a hold's limit was broken: see `agents.holding.holder`."""


@dataclass
class HoldReports:
    """Accept agents' reports on a held plan."""

    store: db.Store
    now: Now
    changes: Changes
    telemetry: Telemetry
    orders: Derived[HoldOrder]
    _doubted: set[tuple[str, str]] = field(default_factory=set)
    _held_until: dict[tuple[str, str], datetime] = field(default_factory=dict)
    _ranges: Derived[HeldRange | None] = field(default_factory=Derived)

    def observe(self, message: HoldReport) -> Receipt:
        """Record a window of a hold, or its end, which returns the study to its baseline."""
        outcome = self.observe_all([message])[0]
        if isinstance(outcome, TuningError):
            raise outcome
        return outcome

    def observe_all(self, messages: Sequence[HoldReport]) -> Sequence[Receipt | TuningError]:
        """Record reports, all windows in one transaction; a refusal is that report's answer.

        Raises:
            StoreError: the database does not answer.
        """
        try:
            owners = self._owners(messages)
            doubts = [_doubt(m, o) for m, o in zip(messages, owners, strict=True)]
            judged = [
                (owner, message, window)
                for message, owner, doubt in zip(messages, owners, doubts, strict=True)
                if not doubt and (window := self._observation(message)) is not None
            ]
            new = self.store.observations.add_all([window for *_, window in judged])
        except (NotFound, InvalidInput, Unreadable) as error:
            if len(messages) == 1:
                return [error]
            return [answer for message in messages for answer in self.observe_all([message])]
        for message, why in zip(messages, doubts, strict=True):
            self._note_doubt(message, why)
        for (owner, message, window), added in zip(judged, new, strict=True):
            if added:
                self._note_kept(owner, message, window.measurement)
        return [
            self._held(owner, message) if isinstance(owner, Study) else Receipt(result="kept")
            for message, owner in zip(messages, owners, strict=True)
        ]

    def _owners(self, messages: Sequence[HoldReport]) -> list[Study | Device]:
        """Return the study of each report, or the device that is only observed.

        Raises:
            NotFound: there is no such study or device.
            InvalidInput: the report is not of that device or study.
            Unreadable: what is stored of it cannot be read.
        """
        studies = {s.id: s for s in self.store.studies.list(among={m.study for m in messages})}
        devices = {m.device: self.store.devices.get(m.device) for m in messages if not m.study}
        owners = list[Study | Device]()
        for message in messages:
            if message.study:
                study = studies.get(message.study) or self.store.studies.get(message.study)
                require_member(message.device, study)
                owners.append(study)
                continue
            device = devices[message.device]
            if message.measurement is None or not device.observed:
                raise InvalidInput(f"{device.id} is not only observed, and its report has no study")
            owners.append(device)
        return owners

    def _unbilled(self, study: Study, device: str, window: Measurement) -> str:
        """Return why a kept window does not count towards the saving; empty if it does."""
        key, energy = (study.id, device), called(ENERGY, study.quantities)
        if energy not in window.estimates:
            return ""
        end = window.started_at + timedelta(seconds=window.seconds)
        until = self._held_until.get(key, window.started_at)
        self._held_until[key] = max(until, end)
        if window.started_at < until:
            return "held windows overlap; overlapping time is billed once; check the agent"
        shown = self._ranges.get(study, 0, lambda: self._range(study))  # trials end before a hold
        if shown is None:
            return ""
        why = shown.beyond(window.load.completed, window.seconds, window.estimates[energy].mean)
        return why and f"a held window is stored but not billed: {why}; check the agent"

    def _range(self, study: Study) -> HeldRange | None:
        """Return the range of the study's rates and powers; None if no plausible window has both."""
        windows = (trial.measurement for trial in self.changes.trials(study.id))
        return HeldRange.of((w for w in windows if w is not None), study.quantities)

    def _note_doubt(self, message: HoldReport, why: str) -> None:
        """Report why a device's windows do not count: once for each study; nothing without a reason."""
        if why and (key := (message.study, message.device)) not in self._doubted:
            self._doubted.add(key)
            self.changes.note("implausible", why, *key)

    def _observation(self, message: HoldReport) -> Observation | None:
        """Return the report's window as an observation, or None if it has no window."""
        if message.measurement is None:
            return None
        return Observation(
            study=message.study,
            device=message.device,
            setting=message.setting if message.study else {},
            measurement=message.measurement,
            at=self.now(),
            speaks_s=message.speaks_s,
        )

    def _note_kept(self, owner: Study | Device, message: HoldReport, window: Measurement) -> None:
        self.telemetry.measured(owner, message.device, window)
        if isinstance(owner, Device):
            self.telemetry.observed(owner, window)
            return
        limits = limits_held(self.orders.latest(owner.id), message.revision, message.setting)
        self.telemetry.held(owner, message.device, window, limits)
        self._note_doubt(message, self._unbilled(owner, message.device, window))

    def _held(self, study: Study, message: HoldReport) -> Receipt | TuningError:
        """Return the receipt for a hold's window that is kept, or its refusal."""
        if not message.ended and study.phase is not Phase.CANARY:
            return Receipt(result="kept")
        try:
            return self._moved_on(message)
        except TuningError as error:
            return error

    @looking_again
    def _moved_on(self, message: HoldReport) -> Receipt:
        """Judge a canary by its windows; return a study whose hold ended to its baseline."""
        with self.changes.lock(message.study):
            study = self.store.studies.get(message.study)
            old = study.phase not in HELD or study.revision != message.revision
            if not message.ended:
                if not old and study.phase is Phase.CANARY:
                    self._judge_canary(study)
                return Receipt(result="kept")
            ordered = (
                old or self.store.stops.current(message.device) is not None
            )  # a stop ends no study
            # An end by an order already has that order's event: report it only once.
            kind = "released" if ordered and not message.ended.endswith(BROKEN) else "hold ended"
            self.changes.note(kind, message.ended, study.id, message.device)
            if ordered:
                return Receipt(result="late")
            self.changes.start_over(study, f"the hold ended: {message.ended}")
            return Receipt(result="closed")

    def _judge_canary(self, study: Study) -> None:
        """Hold the plan on all devices if the canary's windows confirm it; else start over."""
        trials = tuple(self.store.trials.list(study.id))
        own = canary.own_trials(
            study, trials, lambda number: self.store.trials.reports(study.id, number)
        )
        since = self.store.studies.latest(study.id).at
        observations = self.store.observations.list(study.id, MOST_CANARY_WINDOWS)
        windows = [o for o in observations if o.device == study.terms.canary and o.at > since]
        result = canary.judged(Past(study=study, trials=trials), own, windows)
        if result is None:
            return
        if result.confirmed:
            self.changes.move(study, Phase.HOLDING, result.why, study.plan)
            return
        self.changes.start_over(study, f"the canary contradicts its plan: {result.why}")


def _doubt(message: HoldReport, owner: Study | Device) -> str:
    """Return why a window's numbers are implausible, as text of an event; empty if they are not."""
    window = message.measurement
    why = "" if window is None else implausible(window, owner.quantities)
    kind = "a held" if message.study else "an observed"
    return why and f"{kind} window was discarded: {why}; check the meter"
