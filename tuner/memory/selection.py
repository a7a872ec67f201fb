"""Which finished studies a new one uses, and how much each closeness is trusted at the start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tuner.core import (
    Closeness,
    Kind,
    Posterior,
    SiblingRef,
    Study,
    Worth,
    matched,
    quantity_of,
    varied,
)

MOST_SIBLINGS = 8
"""The most siblings of a study: more are alike, and each takes time in every suggestion."""

MOST_LIKE = 64
"""The most posteriors of the same board and workload that are looked at for a common plan."""

PRIOR_WORTH: Mapping[Closeness, float] = {
    Closeness.BOARD_AND_WORKLOAD: 0.6,
    Closeness.BOARD: 0.4,
    Closeness.WORKLOAD: 0.4,
    Closeness.KIND: 0.25,
}
"""The trust in siblings where the database shows nothing yet."""

PRIOR_STUDIES = 4.0
"""The number of studies that `PRIOR_WORTH` counts as."""


NO_WORTH = 0.5
"""The worth of siblings that predict as well as the study's own hypotheses: at even odds."""


def chosen(near: Sequence[tuple[SiblingRef, Posterior]], study: Study) -> tuple[SiblingRef, ...]:
    """Return the siblings that a study uses of those near it, in their order.

    Those that lack one of its knobs, or a metric of its that follows a law, are of no use.
    """
    metrics = (study.objective.metric, *(c.metric for c in study.constraints))
    lawful = {m for m in metrics if quantity_of(m, study.quantities).kind is not Kind.OTHER}
    required = varied(study.space)
    useful = tuple(
        ref
        for ref, posterior in near
        if lawful <= {*posterior.metrics} and matched(posterior.knobs, required) is not None
    )
    return useful[:MOST_SIBLINGS]


def trust(worths: Mapping[Closeness, Worth]) -> dict[Closeness, float]:
    """Return the initial probability of siblings of each closeness, from their worth in the database.

    None of those that in the mean predicted windows no better than the studies' own hypotheses.
    """
    trusted = {}
    for closeness, prior in PRIOR_WORTH.items():
        worth = worths.get(closeness, Worth(prior, 0))
        total = PRIOR_STUDIES * prior + worth.studies * worth.mean
        useful = worth.mean > NO_WORTH or not worth.studies
        trusted[closeness] = useful * total / (PRIOR_STUDIES + worth.studies)
    return trusted
