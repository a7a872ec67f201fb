"""Reports of holds: windows to keep and bill, a canary's windows to judge, and ended holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import db
from tuner.core import (
    ENERGY,
    HELD,
    HeldRange,
    InvalidInput,
    NotFound,
    Now,
    Observation,
    Past,
    Phase,
    Study,
    TuningError,
    Unreadable,
    called,
)
from tuner.study import canary
from tuner.study.assignments import limits_held
from tuner.study.changes import Changes
from tuner.study.derived import Derived
from tuner.study.reports.credible import held_doubt, require_member
from tuner.study.stale import looking_again
from tuner.study.telemetry import Telemetry
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
        """Record reports of holds, all windows in one transaction; a refusal is that report's answer.

        Raises:
            StoreError: the database does not answer.
        """
        listed = self.store.studies.list(among={message.study for message in messages})
        studies = {study.id: study for study in listed}
        doubts = {
            n: why
            for n, m in enumerate(messages)
            if m.study in studies and (why := held_doubt(m, studies[m.study]))
        }
        judged = [
            (m, o)
            for n, m in enumerate(messages)
            if n not in doubts and (o := self._observation(m)) is not None
        ]
        try:
            for message in messages:
                if message.study not in studies:
                    studies[message.study] = self.store.studies.get(message.study)
                require_member(message.device, studies[message.study])
            new = self.store.observations.add_all([observation for _, observation in judged])
        except (NotFound, InvalidInput, Unreadable) as error:
            if len(messages) == 1:
                return [error]
            return [answer for message in messages for answer in self.observe_all([message])]
        self._note_doubts([(messages[n], why) for n, why in doubts.items()])
        for message in (m for (m, _), added in zip(judged, new, strict=True) if added):
            self._note_held(studies[message.study], message)
            if why := self._unbilled(studies[message.study], message):
                self._note_doubts([(message, why)])
        return [self._held(studies[message.study], message) for message in messages]

    def _unbilled(self, study: Study, message: HoldReport) -> str:
        """Return why a kept window does not count towards the saving; empty if it does."""
        window, key = message.measurement, (message.study, message.device)
        energy = called(ENERGY, study.quantities)
        if window is None or energy not in window.estimates:
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

    def _note_doubts(self, doubts: Sequence[tuple[HoldReport, str]]) -> None:
        """Report why held windows do not count: once for each device's hold in a study."""
        for message, why in doubts:
            if (key := (message.study, message.device)) not in self._doubted:
                self._doubted.add(key)
                self.changes.note("implausible", why, *key)

    def _observation(self, message: HoldReport) -> Observation | None:
        """Return the report's window as an observation, or None if it has no window."""
        if message.measurement is None:
            return None
        return Observation(
            study=message.study,
            device=message.device,
            setting=message.setting,
            measurement=message.measurement,
            at=self.now(),
        )

    def _note_held(self, study: Study, message: HoldReport) -> None:
        assert message.measurement is not None
        limits = limits_held(self.orders.latest(study.id), message.revision, message.setting)
        self.telemetry.measured(study, message.device, message.measurement)
        self.telemetry.held(study, message.device, message.measurement, limits)

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
