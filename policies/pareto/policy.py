"""Pareto: find the front of two objectives, so that an operator chooses among trade-offs afterwards.

The acquisition is qLogNEHVI (`tuner.bo.front`). Left out: only batches of trials for several
devices. The proposed point follows a stated rule, the least product of both objectives; in a study
with `safety = advise` an operator can approve another point of the front.
"""

from __future__ import annotations

from tuner.core import InvalidInput, Past, Study, Suggestion


class Pareto:
    """Searches for the best trade-offs between the study's objective and its second one."""

    heeds = frozenset({"objective", "second_objective", "constraints", "safety"})

    def refuse(self, study: Study) -> None:
        """Refuse a study with only one objective. Raises InvalidInput."""
        if study.second_objective is None:
            raise InvalidInput(
                "the policy pareto needs a second objective",
                hint='give --second-objective, like "latency_p99_ms"',
            )

    def suggest(self, past: Past) -> Suggestion:
        """Return the next step.

        Raises:
            MetricUnavailable: no trial measured a metric that the study aims at or limits.
        """
        from tuner.bo.front import suggest_front  # torch comes with the first suggestion only

        self.refuse(past.study)
        assert past.study.second_objective is not None
        return suggest_front(past, past.study.second_objective)
