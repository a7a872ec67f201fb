"""Measure a device's power front for its budget: some settings in order, none of which is held."""

from __future__ import annotations

from collections.abc import Iterator

from tuner.core import Done, Past, Plan, Setting, Suggestion, TrialState, Try, Wait, setting_key

BASELINE_WINDOWS = 2
"""The baseline windows that do not count as trials of a study; each further one replaces a trial."""
REPEATED = frozenset({TrialState.CONTAMINATED, TrialState.INCONCLUSIVE})


class PowerSweep:
    """Tries settings once each, with all knobs at the same fraction of their lists of values.

    A disturbed window is repeated if trials are left. The result is the baseline, since the study does not
    search for a setting to hold; `tuner.service.budgets` then stops it.
    """

    heeds = frozenset({"objective", "constraints"})

    def suggest(self, past: Past) -> Suggestion:
        """Return the next setting to try; at the end the baseline."""
        study, baseline = past.study, past.study.baseline
        if past.limits is None:
            return Wait("the baseline has not been measured yet")
        ended = {setting_key(t.setting): t.state for t in past.trials}  # the latest state of each
        settings = [s for s in _diagonal(past) if not study.rests(s)]
        fresh = [s for s in settings if setting_key(s) not in ended]
        again = [s for s in settings if ended.get(setting_key(s)) in REPEATED]
        spent = len(past.trials) - BASELINE_WINDOWS
        if max(spent, past.spent) < study.terms.trials and (fresh or again):
            place = f"cap {len(settings) - len(fresh) + 1} of {len(settings)}"
            return Try((fresh or again)[0], place if fresh else "a disturbed window is repeated")
        if past.running:
            return Wait("the last trial is still running")
        measured = sum(state is TrialState.COMPLETED for state in ended.values())
        return Done(Plan.single(baseline), f"{measured} settings were measured, none is to be held")


def _diagonal(past: Past) -> Iterator[Setting]:
    """Yield settings from the first value of every knob to the last, or all settings of a listed space."""
    space = past.study.space
    if space.only:
        yield from space.only
        return
    most = max(len(knob.values) for knob in space.knobs)
    met = set()
    for step in range(most):
        part = step / max(1, most - 1)
        values = {k.name: k.values[round(part * (len(k.values) - 1))] for k in space.knobs}
        setting = space.canonical(values)
        if setting_key(setting) not in met:
            met.add(setting_key(setting))
            yield setting
