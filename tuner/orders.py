"""What a device is told to do, composed from a study and its trials."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tuner.core import (
    Lease,
    Level,
    Plan,
    Setting,
    Stops,
    Study,
    Trial,
    Verdict,
    counted,
    rate_of,
    setting_key,
    weigh,
)
from tuner.steps import needed_metrics, settings_of
from tuner.wire import Assignment, HoldOrder, Poll, Release

OBSERVE_S = 60.0


def assignment(
    study: Study, trials: Sequence[Trial], trial: Trial, lease: Lease, lease_s: float
) -> Assignment:
    """Return the order to try a setting; the baseline's own windows are never cut short."""
    at_baseline = trial.tries(study.baseline)
    return Assignment(
        study=study.id,
        revision=study.revision,
        trial=trial.number,
        attempt=lease.attempt,
        token=lease.token,
        nonce=lease.nonce,
        lease_s=lease_s,
        phase=trial.phase,
        setting=trial.setting,
        baseline=study.baseline,
        metrics=needed_metrics(study),
        limits=() if at_baseline else weigh(study, trials).limits or (),
        window_s=study.terms.window_s,
        max_window_s=study.terms.max_window_s,
        expected_rate_per_s=None if at_baseline else baseline_rate(study, trials),
        why=trial.why,
    )


def hold(study: Study, trials: Sequence[Trial], plan: Plan) -> HoldOrder:
    """Return the order to hold a plan; holding the baseline has no limits to end it by."""
    base = setting_key(study.baseline)
    at_baseline = all(setting_key(setting) == base for setting in settings_of(plan))
    return HoldOrder(
        study=study.id,
        revision=study.revision,
        plan=plan,
        baseline=study.baseline,
        limits=() if at_baseline else weigh(study, trials).limits or (),
        metrics=needed_metrics(study),
        valid_for_s=study.terms.valid_for_s,
        observe_s=OBSERVE_S,
        window_s=study.terms.window_s,
    )


def stopped(stops: Stops, device: str, poll: Poll) -> Release | None:
    """Return the release that a stop of the whole fleet means, None where none is in force.

    It is noted whether the device is at its original setting: a poll comes between trials.
    """
    stop = stops.current()
    if stop is None:
        return None
    back = poll.applied.level in (Level.ORIGINAL, Level.FAILSAFE)
    if back is not (device in stop.back):
        stops.report(device, back=back)
    return Release(why=str(stop))


class Holds:
    """The order to hold of each study, as last composed.

    Agents that wait ask twice a second, and composing one weighs every trial. It stays what it is
    while the study is at its revision and all of its trials, which are counted, have ended.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[tuple[int, int], HoldOrder]] = {}

    def order(
        self, study: Study, plan: Plan, count: int, trials: Callable[[], Sequence[Trial]]
    ) -> HoldOrder:
        """Return the order to hold a plan; `trials` is asked only where it may have changed.

        `count` is the number of trials before it was seen that none runs.
        """
        at, known = self._known.get(study.id, (None, None))
        if known is None or at != (study.revision, count):
            known = hold(study, trials(), plan)
            self._known[study.id] = (study.revision, count), known
        return known


def outgrown(study: Study, trials: Sequence[Trial], held: Setting) -> bool:
    """Return whether a held setting is proven to break a limit that the baseline is not."""
    evidence = weigh(study, trials)
    known = evidence.of(held)
    broken = known is not None and known.verdict is Verdict.INFEASIBLE
    return broken and evidence.broken is None


def baseline_rate(study: Study, trials: Sequence[Trial]) -> float | None:
    """Return the arrival rate of the latest baseline window, None where none was offered."""
    windows = [t for t in counted(study, trials) if t.tries(study.baseline) and t.state.evidence]
    return (rate_of(windows[-1]) or None) if windows else None
