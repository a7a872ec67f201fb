"""The changes of a study's constraints: for each, the setting held before and after it."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.core import (
    Past,
    Phase,
    Plan,
    Revision,
    Study,
    Trial,
    improvement,
    setting_key,
    weigh,
)
from tuner.service.views import setting_view
from tuner.wire import ConstraintEffect, ConstraintRevision, HeldUnder


def constraint_changes(
    study: Study, revisions: Sequence[Revision], trials: Sequence[Trial]
) -> list[ConstraintRevision]:
    """Return the revisions that changed a study's constraints, oldest first, with the effect of each.

    The first revision is always included, without an effect. A setting's metrics are those of its trials
    that count today; its limits are those of the revision.
    """
    starts = [
        n
        for n, one in enumerate(revisions)
        if n == 0 or one.study.constraints != revisions[n - 1].study.constraints
    ]
    changes, past = [], Past(study=study, trials=tuple(trials))
    for start, end in zip(starts, [*starts[1:], len(revisions)], strict=True):
        own = revisions[start]
        before = revisions[start - 1] if start else None
        earlier = () if before is None else before.study.constraints
        changes.append(
            ConstraintRevision(
                revision=own.study.revision,
                who=own.who,
                why=own.why,
                at=own.at,
                constraints=tuple(map(str, own.study.constraints)),
                added=tuple(str(c) for c in own.study.constraints if c not in earlier),
                removed=tuple(str(c) for c in earlier if c not in own.study.constraints),
                effect=None if before is None else _effect(past, before, revisions[start:end]),
            )
        )
    return changes


def _effect(past: Past, before: Revision, under: Sequence[Revision]) -> ConstraintEffect:
    """Return the effect of a change of the constraints.

    `before` is the revision before the change; `under` are the revisions with the new constraints, the
    change itself first.
    """
    then, now = before.study.held, under[0].study.held
    old = None if then is None else _held(past, before.study, then)
    if then is not None and _same(then, now):
        return ConstraintEffect(result="kept", before=old, after=_held(past, under[0].study, then))
    later = next((r for r in under if r.study.held is not None), None)
    if later is not None and later.study.held is not None:
        after = _held(past, later.study, later.study.held)
        same = _same(later.study.held, then)
        return ConstraintEffect(
            result="same" if same else "other", before=old, after=after, held_at=later.at
        )
    last = under[-1].study
    ended = last.revision < past.study.revision or last.phase is Phase.STOPPED
    return ConstraintEffect(result="ended" if ended else "searching", before=old)


def _same(one: Plan, other: Plan | None) -> bool:
    """Return whether two plans hold the same settings."""
    if other is None:
        return False
    ours, theirs = ({setting_key(row.setting) for row in plan.rows} for plan in (one, other))
    return ours == theirs


def _held(past: Past, study: Study, plan: Plan) -> HeldUnder:
    """Return a held setting with its metrics, limits and saving under a revision's constraints."""
    chief = plan.chief(study.baseline)
    shown = setting_view(past.evidence, chief)
    base, own = (study.objective.score(m) for m in (past.evidence.baseline, shown.metrics))
    gain = None
    if base is not None and own is not None and not study.rests(chief):
        gain = improvement(base, own, study.objective.sign).share
    return HeldUnder(
        setting=shown, limits=tuple(weigh(study, past.trials).limits or ()), saving=gain
    )
