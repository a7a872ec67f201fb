"""The effect of other constraints on a study's history, computed before they are set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tuner.core import Past, Study, Trial, Verdict
from tuner.service.views import candidate_view, chosen
from tuner.wire import ConstraintPreview


def preview(now: Study, then: Study, trials: Sequence[Trial], more: int) -> ConstraintPreview:
    """Return the differences between two revisions of a study, judged by the same trials.

    `more` is the number of trials that the second revision adds.
    """
    before, after = _verdicts(now, trials), _verdicts(then, trials)
    best = [chosen(s, Past(study=s, trials=tuple(trials)).evidence) for s in (now, then)]
    views = [candidate_view(candidate) if candidate else None for candidate in best]
    return ConstraintPreview(
        study=now.id,
        constraints=tuple(str(c) for c in then.constraints),
        judged=len(after),
        before=_counted(before),
        after=_counted(after),
        flipped=tuple(n for n in after if before.get(n) is not after[n]),
        best_before=views[0],
        best_after=views[1],
        phase=then.phase,
        stays=then.phase is now.phase and then.plan == now.plan,
        more_trials=more,
    )


def _verdicts(study: Study, trials: Sequence[Trial]) -> dict[int, Verdict]:
    """Return the verdicts by trial number under a study's limits; trials that do not count are left out."""
    past = Past(study=study, trials=tuple(trials))
    judged = {t.number: past.at(t.context).verdict(t) for t in trials}
    return {number: verdict for number, verdict in judged.items() if verdict is not None}


def _counted(verdicts: dict[int, Verdict]) -> dict[str, int]:
    """Return the number of trials with each verdict, also if it is 0."""
    counts = Counter(verdicts.values())
    return {str(verdict): counts[verdict] for verdict in Verdict}
