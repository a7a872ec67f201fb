"""PolyThrottle: least energy per query under a latency limit, by constrained Bayesian optimisation.

After Yan, Wang and Venkataraman, "PolyThrottle: Energy-efficient Neural Network Inference on Edge
Devices" (arXiv 2310.19991). From the paper: the aim, least energy per query while the latency limit
holds; the knobs, GPU, memory and CPU clock and batch size, of which all but the CPU clock act on
latency together (section 5); the method, constrained Bayesian optimisation with few and noisy
measurements of about ten seconds.

Two ways to go about it. `Polythrottle` searches all knobs together. `TwoPhase` is the paper's order:
the CPU clock first and by itself, as affecting pre-processing alone, then the others together. What
each achieves on simulated boards: `python -m tests.bench devices`.

Not public, and so our own choice, described where it is made (`tuner.bo`): surrogate, prior and
noise model, acquisition function, what a broken limit costs (`tuner.guard`), number of trials, when
to stop. EI × P(feasible) on logarithms is what neighbouring published work
uses (Mitra and Biessmann, arXiv 2407.05788). Nor is public how long the CPU's phase lasts.

Left out: the paper's scheduler for fine-tuning beside inference is no part of a policy; it is
`policies.polythrottle.admission`.
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
    SettingKey,
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
"""The most trials that the CPU's phase takes: our choice, enough to see on which side its best is."""


class Polythrottle:
    """Searches the study's whole space for the best objective within its constraints.

    `without` names rules of the search that it is to do without, `flat`, its end where nothing is found, or
    `breaks`, those of all knobs: what each is worth can be measured.
    """

    rules = ("worthwhile", "look-around", "unmoved", "informative", "flat", "breaks")

    def __init__(self, without: frozenset[str] = frozenset()) -> None:
        self._without = without

    explores_apart = True
    plans_by_load = True
    heeds = frozenset({"objective", "constraints", "safety"})

    def suggest(self, past: Past) -> Suggestion:
        """Return what to do next.

        Raises:
            MetricUnavailable: no trial measured a metric that the study aims at or limits.
        """
        if past.study.terms.plan_by:
            from tuner.bo.load import suggest_by_load

            return suggest_by_load(past, self._without)
        from tuner.bo.suggest import suggest  # torch comes with the first suggestion only

        answer = suggest(past, without=self._without)
        failed = _failed_just_now(past)
        if isinstance(answer, Try) and setting_key(answer.setting) == failed:
            other = suggest(past, within=lambda s: setting_key(s) != failed, without=self._without)
            return other if isinstance(other, Try) else answer
        return answer

    def explain(self, past: Past) -> Explanation:
        """Return what is believed of each knob, and what is not tried and why.

        Raises:
            MetricUnavailable: no trial measured a metric that the study aims at or limits.
        """
        from tuner.bo.explain import explain  # torch comes with the first suggestion only

        return explain(past)


class TwoPhase:
    """Searches the CPU clock by itself first, then the other knobs together at the clock found.

    The first phase ends with its third trial, or when no clock promises anything. All trials are
    evidence in both phases. A study without a CPU clock to choose has the second phase only.
    """

    explores_apart = True
    heeds = frozenset({"objective", "constraints", "safety"})

    def suggest(self, past: Past) -> Suggestion:
        """Return what to do next.

        Raises:
            MetricUnavailable: no trial measured a metric that the study aims at or limits.
        """
        from tuner.bo.suggest import suggest  # torch comes with the first suggestion only

        study = past.study
        clocks = (k for k in study.space.knobs if k.role in CPU_CLOCKS and len(k.values) > 1)
        turned = next((knob.name for knob in clocks), None)
        if turned is None:
            return suggest(past)
        trials = [t for t in past.trials if t.state is not TrialState.ABORTED]
        first = list(takewhile(lambda t: _turns_only(turned, study, t.setting), trials))
        spent = trials_spent(first)
        if len(first) == len(trials) and spent < CPU_TRIALS:
            answer = suggest(past, within=lambda setting: _turns_only(turned, study, setting))
            if isinstance(answer, Try | Wait):
                return answer
        if any(t.state is TrialState.RUNNING for t in first):
            return Wait("the last trial of the CPU clock's own phase is still running")
        clock = _best_clock(turned, study, first)
        return suggest(past, within=lambda setting: setting[turned] == clock)

    def explain(self, past: Past) -> Explanation:
        """Return what is believed of each knob, and what is not tried and why.

        Raises:
            MetricUnavailable: no trial measured a metric that the study aims at or limits.
        """
        from tuner.bo.explain import explain  # torch comes with the first suggestion only

        return explain(past)


def _failed_just_now(past: Past) -> SettingKey | None:
    """Return the setting of the last trial where that failed: another is tried before it again."""
    ended = [t for t in past.trials if t.state.final][-1:]
    return next((setting_key(t.setting) for t in ended if t.state is TrialState.FAILED), None)


def _turns_only(knob: str, study: Study, setting: Setting) -> bool:
    return setting_key({**setting, knob: study.baseline[knob]}) == setting_key(study.baseline)


def _best_clock(knob: str, study: Study, first: Sequence[Trial]) -> Value:
    """Return the CPU clock of the best mean that kept every limit by its means, else the baseline's.

    The first phase alone decides, so that the clock stays where it is throughout the second.
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
