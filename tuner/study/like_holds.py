"""The setting that similar studies hold: the first candidate of a new study, confirmed like any other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import median

import db
from tuner.core import Past, SettingKey, Study, Transfer, Trial, setting_key
from tuner.study.moves import needed_metrics

LEAST_HOLDERS = 3
"""The least number of similar studies that must hold a setting."""

MOST_LIKE = 32
"""The most similar studies that are compared, the newest first."""

ALIKE = 0.1
"""The largest relative difference between the baselines of similar studies: a few percent is usual."""


def transfer(store: db.Store, study: Study, trials: Sequence[Trial]) -> Transfer:
    """Return the setting that most similar studies hold, and their number; empty if there is none.

    Similar studies have the same number of devices of the same board, workload and versions, the same
    objective and constraints, and a baseline within `ALIKE` of this one's. `trials` include the baseline.
    """
    if not study.terms.transfer or study.terms.plan_by or study.second_objective is not None:
        return Transfer()
    holders: dict[SettingKey, list[Study]] = defaultdict(list)
    device = store.devices.get(study.devices[0])
    for other in store.studies.list(among=store.studies.holding_like(device, MOST_LIKE)):
        if other.plan is not None and _comparable(study, other):
            holders[setting_key(other.plan.rows[0].setting)].append(other)
    own = Past(study=study, trials=tuple(trials))
    for agreeing in sorted(holders.values(), key=len, reverse=True):
        plan = agreeing[0].plan
        if len(agreeing) >= LEAST_HOLDERS and plan is not None and _alike(store, own, agreeing):
            return Transfer(plan.rows[0].setting, len(agreeing))
    return Transfer()


def _comparable(study: Study, other: Study) -> bool:
    """Return whether another study holds one setting, not its baseline, for the aim of this one."""
    setting = {} if other.plan is None else other.plan.rows[0].setting
    return (
        other.plan is not None
        and len(other.plan.rows) == 1
        and (other.aim, len(other.devices)) == (study.aim, len(study.devices))
        and study.space.has(setting)
        and not study.rests(setting)
    )


def _alike(store: db.Store, own: Past, others: Sequence[Study]) -> bool:
    """Return whether a study's baseline is near the median of others', by objective and limits."""
    shown = own.evidence.baseline
    pasts = [Past(study=other, trials=tuple(store.trials.list(other.id))) for other in others]
    for metric in needed_metrics(own.study):
        theirs = [b[metric].mean for past in pasts if metric in (b := past.evidence.baseline)]
        if len(theirs) < LEAST_HOLDERS or metric not in shown:
            return False
        usual = median(theirs)
        if not abs(shown[metric].mean - usual) <= ALIKE * abs(usual):
            return False
    return True
