"""PolyThrottle: least energy per query under a latency limit, by constrained Bayesian optimisation.

After Yan, Wang and Venkataraman, "PolyThrottle: Energy-efficient Neural Network Inference on Edge
Devices" (arXiv 2310.19991). From the paper: the aim, least energy per query while the latency limit
holds; the knobs, GPU, memory and CPU clock and batch size, of which all but the CPU clock affect
latency together (section 5); the method, constrained Bayesian optimisation with few and noisy
measurements of about ten seconds.

There are two policies. `Polythrottle` searches all knobs together. `TwoPhase` has the paper's
order: the CPU clock first and by itself, as it affects pre-processing alone, then the others
together. The results of each on simulated boards: `python -m tests.bench devices`.

Not public, and so our own choice, described in `tuner.bo`: surrogate, prior and noise model,
acquisition function, price of a broken limit (`tuner.guard`), number of trials, and the rule to
stop. EI × P(feasible) on logarithms is the method of related published work (Mitra and Biessmann,
arXiv 2407.05788). The length of the CPU's phase is not public either.

Left out: fine-tuning beside inference is not part of a policy. `jouletune finetune run` paces a job by the
measured latency (`agents.finetuning`), in place of the paper's linear prediction of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from tuner.core import (
    Candidate,
    Explanation,
    Past,
    Role,
    Setting,
    Study,
    Suggestion,
    Trial,
    TrialState,
    Try,
    Value,
    Wait,
    setting_key,
    trials_spent,
    weigh,
)

CPU_CLOCKS = (Role.HOST_CLOCK, Role.CPU_CLOCK)

CPU_TRIALS = 3
"""The most trials of the CPU's phase: our choice, enough to show on which side its best is."""


class Polythrottle:
    """Searches the study's whole space for the best objective within its constraints.

    `without` names `rules` of the search to disable, so that the gain of each can be measured.
    `flat` is the end of a search without a gain.
    """

    rules = ("worthwhile", "look-around", "unmoved", "informative", "flat")

    def __init__(self, without: frozenset[str] = frozenset()) -> None:
        self._without = without

    explores_apart = True
    follows_load = True
    heeds = frozenset({"objective", "constraints", "safety"})

    def suggest(self, past: Past) -> Suggestion:
        """Return the next step.

        Raises:
            MetricUnavailable: no trial measured a metric that the study aims at or limits.
        """
        from tuner.bo.suggest import suggest  # torch comes with the first suggestion only

        return suggest(past, without=self._without)

    def explain(self, past: Past, query: Setting | None = None) -> Explanation:
        """Return the predictions for each knob and the setting of `query`; refused settings with reasons.

        Raises:
            MetricUnavailable: no trial measured a metric that the study aims at or limits.
        """
        from tuner.bo.explain import explain  # torch comes with the first suggestion only

        return explain(past, query)


class TwoPhase(Polythrottle):
    """Searches the CPU clock by itself first, then the other knobs together at the best clock.

    The first phase ends with its third trial, or when no clock promises a gain. All trials are
    evidence in both phases. A study with only one CPU clock has the second phase only.
    """

    follows_load = False

    def suggest(self, past: Past) -> Suggestion:
        """Return the next step.

        Raises:
            MetricUnavailable: no trial measured a metric that the study aims at or limits.
        """
        from tuner.bo.suggest import suggest  # torch comes with the first suggestion only

        study = past.study
        clocks = (k for k in study.space.knobs if k.role in CPU_CLOCKS and len(k.values) > 1)
        turned = next((knob.name for knob in clocks), None)
        if turned is None:
            return suggest(past, without=self._without)
        first = list(takewhile(lambda t: _turns_only(turned, study, t.setting), past.trials))
        spent = trials_spent(first)
        if len(first) == len(past.trials) and spent < CPU_TRIALS:
            answer = suggest(
                past, within=lambda s: _turns_only(turned, study, s), without=self._without
            )
            if isinstance(answer, Try | Wait):
                return answer
        if any(t.state is TrialState.RUNNING for t in first):
            return Wait("the last trial of the CPU clock's own phase is still running")
        clock = _best_clock(turned, study, first)
        return suggest(past, within=lambda s: s[turned] == clock, without=self._without)


def _turns_only(knob: str, study: Study, setting: Setting) -> bool:
    """Return whether a setting equals the baseline in all knobs except this one."""
    return setting_key({**setting, knob: study.baseline[knob]}) == setting_key(study.baseline)


def _best_clock(knob: str, study: Study, first: Sequence[Trial]) -> Value:
    """Return the CPU clock of the best mean whose means kept every limit, else the baseline's.

    Only the first phase decides, so that the clock does not change in the second.
    """
    evidence = weigh(study, first)
    objective = study.objective

    def kept(candidate: Candidate) -> bool:
        shown = candidate.estimates
        return all(
            limit.metric in shown and limit.holds(shown[limit.metric].mean)
            for limit in evidence.limits or ()
        )

    fit = [c for c in evidence.candidates if c.deployable and kept(c)]
    scored = [(c, objective.score(c.estimates)) for c in fit]
    scores = [(c, objective.sign * score.mean) for c, score in scored if score is not None]
    if not scores:
        return study.baseline[knob]
    return min(scores, key=lambda item: item[1])[0].setting[knob]
