"""What other constraints would make of a study's history, before they are set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tuner.core import Past, Study, Trial, Verdict
from tuner.service.views import candidate_view, chosen
from tuner.wire import ConstraintPreview


def preview(now: Study, then: Study, trials: Sequence[Trial], more: int) -> ConstraintPreview:
    """Return what changes from one revision of a study to the next, by the same trials.

    `more` is how many trials are ahead that were not before.
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
    past = Past(study=study, trials=tuple(trials))
    judged = {t.number: past.at(t.context).verdict(t) for t in trials}
    return {number: verdict for number, verdict in judged.items() if verdict is not None}


def _counted(verdicts: dict[int, Verdict]) -> dict[str, int]:
    counts = Counter(verdicts.values())
    return {str(verdict): counts[verdict] for verdict in Verdict}
