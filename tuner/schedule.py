"""What the tuner does by the clock: reap what was abandoned, watch for drift, keep the log short."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from apscheduler.schedulers.background import BackgroundScheduler

from tuner.core import (
    Estimate,
    Observation,
    Phase,
    Study,
    TuningError,
    setting_key,
    weigh,
)
from tuner.loop import Loop

log = logging.getLogger(__name__)

SLACK_SD = 0.5
ALARM_SD = 5.0
"""CUSUM of standardised residuals: half a deviation of slack, alarm at five (Page 1954; the usual
textbook choice for shifts of about one deviation)."""
LEAST_RELATIVE_SD = 0.02
"""No window is trusted to better than 2 %: without this a quiet meter alarms on nothing."""


@dataclass(frozen=True)
class Chores:
    """The periodic work, each piece callable on its own."""

    loop: Loop
    keep_days: int

    def reap(self) -> None:
        """End trials whose agents never came back."""
        ended = self.loop.reap()
        if ended:
            log.info("reaped %d abandoned trials", ended)

    def watch_drift(self) -> None:
        """Send a held study back to its baseline when its windows have drifted from what they were."""
        for study in self.loop.store.studies.list():
            if study.phase is not Phase.HOLDING:
                continue
            with self.loop.lock(study.id):
                study = self.loop.store.studies.get(study.id)
                why = self._drift(study)
                if why is not None:
                    self.loop.afresh(study, why)

    def prune(self) -> None:
        """Delete observations and events that are older than `keep_days`; say how many."""
        before = self.loop.now() - timedelta(days=self.keep_days)
        gone = self.loop.store.observations.prune(before), self.loop.store.events.prune(before)
        if any(gone):
            text = f"{gone[0]} observations and {gone[1]} events from before {before:%Y-%m-%d}"
            self.loop.note("pruned", text)

    def _drift(self, study: Study) -> str | None:
        if study.phase is not Phase.HOLDING or study.held is None:
            return None
        setting = study.held.rows[-1].setting
        known = weigh(study, self.loop.store.trials.list(study.id)).of(setting)
        metric = study.objective.metric
        if known is None or metric not in known.estimates:
            return None
        since = self.loop.store.studies.revisions(study.id)[-1].at
        windows = [
            o
            for o in self.loop.store.observations.list(study.id, last=200)
            if o.at >= since and setting_key(o.setting) == setting_key(setting)
        ]
        return drift(metric, known.estimates[metric], windows)


def drift(metric: str, expected: Estimate, windows: Sequence[Observation]) -> str | None:
    """Return in words how a metric has drifted from what was expected, None where it has not.

    A two-sided CUSUM over log-ratio residuals in units of the window's own and the expectation's
    uncertainty together.
    """
    up = down = 0.0
    for window in windows:
        seen = window.measurement.estimates.get(metric)
        if seen is None or seen.mean <= 0.0 or expected.mean <= 0.0:
            continue
        sd = max(
            math.hypot(seen.stderr / seen.mean, expected.stderr / expected.mean),
            LEAST_RELATIVE_SD,
        )
        residual = math.log(seen.mean / expected.mean) / sd
        up = max(0.0, up + residual - SLACK_SD)
        down = max(0.0, down - residual - SLACK_SD)
        if max(up, down) > ALARM_SD:
            return (
                f"{metric} has drifted from {expected.mean:.4g} to {seen.mean:.4g} while the "
                "setting was held"
            )
    return None


def start(chores: Chores) -> BackgroundScheduler:
    """Start the chores in the background and return the scheduler, to be shut down at the end."""
    scheduler = BackgroundScheduler(timezone="UTC")
    plan: list[tuple[Callable[[], None], int]] = [
        (chores.reap, 10),
        (chores.watch_drift, 60),
        (chores.prune, 3600),
    ]
    for chore, seconds in plan:
        scheduler.add_job(
            _logged(chore), "interval", seconds=seconds, max_instances=1, coalesce=True
        )
    scheduler.start()
    return scheduler


def _logged(chore: Callable[[], None]) -> Callable[[], None]:
    """Return the chore so that a failing database is logged, and the chore tried again next time."""

    def run() -> None:
        try:
            chore()
        except TuningError as error:
            log.warning("%s failed: %s", chore.__name__, error)

    return run
