"""One trial of a setting: apply, settle, measure a window, judge it."""

from __future__ import annotations

import logging
import random
from dataclasses import dataclass, field

from agents.target.escape import Escape, WaitingQueue
from agents.target.observe import Ask, Check, MeasuredWindow, Observer, too_few, unbounded_tail
from agents.target.target import Target
from agents.target.window import TargetWindow
from tuner.core import (
    NO_TABLE,
    ActuationError,
    Conflict,
    Limit,
    Outcome,
    Plan,
    Quantities,
    Setting,
    TrialState,
    TuningError,
)

log = logging.getLogger(__name__)

REDOS = 2
"""Number of times that a contaminated window is repeated within its trial."""


@dataclass(frozen=True, kw_only=True)
class Measurer(Observer):
    """Set one target and measure it; `queue` learns how many requests usually wait."""

    target: Target
    queue: WaitingQueue = field(default_factory=WaitingQueue)

    def trial(self, setting: Setting, ask: Ask, check: Check, name: str) -> Outcome:
        """Try a setting and return the outcome; the setting stays in force, also after a failure.

        `name` identifies this attempt: it seeds the window's jitter.
        """
        began = self.clock.monotonic()
        rng = random.Random(f"{self.seed}/{name}")
        try:
            check()
            self._drain(ask, check)
            if not self.target.apply(setting, ask.plan) and ask.plan is not None:
                raise ActuationError(f"the workload {NO_TABLE}")
            self.pause(self.target.settle_s, check)
            for redo in range(REDOS + 1):
                self.pause(redo * ask.window_s, check)  # the cause of a spoilt window often passes
                window = self.window(setting, ask, check, rng, began)
                if not window.spoilt:
                    return _outcome(window, ask, self.target.quantities)
                if redo == 0:  # long before the trial ends
                    log.warning("event=window_discarded trial=%s why=%r", name, window.spoilt)
                if window.broke is not None or window.capped:
                    break
            reason = f"{window.spoilt}; {_in_words(window) or f'measured {REDOS + 1} times'}"
            return Outcome(
                state=TrialState.CONTAMINATED, measurement=window.measurement, reason=reason
            )
        except Conflict as error:
            return Outcome(state=TrialState.ABORTED, reason=str(error))
        except TuningError as error:
            return Outcome(state=TrialState.FAILED, reason=str(error))

    def _fill(self, window: TargetWindow, ask: Ask, check: Check, stretch: float) -> Limit | None:
        """Fill the window, with the baseline applied during bursts; return the limit that it broke."""
        if not ask.baseline:
            return super()._fill(window, ask, check, stretch)
        escape = Escape(self.target, self.clock, self.queue, self.target.read(), ask.baseline)

        def looking() -> None:
            check()
            escape.look()

        broke = super()._fill(window, ask, looking, stretch)
        escape.end()  # after an error nothing is set: its reason counts, and the caller restores
        return broke

    def _drain(self, ask: Ask, check: Check) -> None:
        """Wait for the queue of requests to shorten if a broken limit cut the last window short."""
        if any(metric.name == "arrival_rate_per_s" for metric in self.target.metrics):
            self.pause(min(self.counts.cut_s, ask.window_s), check)

    def _changed(self, setting: Setting, plan: Plan | None) -> tuple[str, str]:
        """Return the changes by other programs, and those by a power cap, as text; empty without any."""
        if plan is not None:
            gone = not self.target.follows(plan)
            return ("another process ended the table that is followed" if gone else ""), ""
        now = self.target.read()
        self.target.refuse_beside_a_job()
        wrong = [f"{k} became {now.get(k)!r}" for k, v in setting.items() if now.get(k) != v]
        if not wrong:
            return "", ""
        conflicts = self.target.conflicts()
        if not conflicts and self.target.caps.lowered(setting, now):
            return "", f"a power cap changed it: {', '.join(wrong)}"
        return "; ".join(conflicts) or f"another process changed it: {', '.join(wrong)}", ""


def _outcome(window: MeasuredWindow, ask: Ask, declared: Quantities) -> Outcome:
    """Return the outcome of a window that counts."""
    if window.broke is not None:
        return Outcome(
            state=TrialState.COMPLETED,
            measurement=window.measurement,
            broke=window.broke,
            reason=_in_words(window),
        )
    estimates = window.measurement.estimates
    open_ended = [name for name in ask.needed if unbounded_tail(name, estimates, declared)]
    if open_ended:
        n = min(estimates[name].n for name in open_ended)
        reason = too_few(open_ended[0], n, window.measurement.seconds)
        return Outcome(state=TrialState.INCONCLUSIVE, measurement=window.measurement, reason=reason)
    return Outcome(state=TrialState.COMPLETED, measurement=window.measurement)


def _in_words(window: MeasuredWindow) -> str:
    """Return as text the limit that cut a window short, and the bound of the value that broke it."""
    limit = window.broke
    if limit is None:
        return ""
    estimate = window.measurement.estimates[limit.metric]
    shown = f"at least {estimate.low:.4g}" if limit.op == "<=" else f"at most {estimate.high:.4g}"
    return (
        f"cut short after {window.measurement.seconds:.3g} s: {limit.metric} is {shown}, "
        f"the limit is {limit.op} {limit.value:.4g}"
    )
