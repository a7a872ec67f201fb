"""Policies judged on simulated boards: whole studies over real meters, scored by the true values.

The protocol is our own, after PolyThrottle's questions on real boards: the saving from the vendor's
defaults over the board's full grid, the number of trials for it, and the violations of the limit.
Everything runs as in production (`tuner.study.lifecycle`, `agents.target.measure`), except for
processes and network; noise and time are the simulator's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from statistics import fmean, median, stdev

from agents.devices.catalogue import Truth, known_truth, open_device, oracle, true_score
from agents.target.measure import Measurer
from agents.target.observe import Ask
from agents.target.target import Target
from agents.target.window import Usage
from policies import load_policy
from tuner.core import (
    Constraint,
    Estimate,
    InvalidInput,
    Limit,
    Objective,
    Past,
    Phase,
    Policy,
    Setting,
    Study,
    Suggestion,
    Terms,
    Trial,
    TuningError,
    counted,
    incumbent,
    limits,
    weigh,
)
from tuner.study.lifecycle import next_step
from tuner.study.moves import Assign, Move, needed_metrics

NEAR = 0.95
"""The share of the oracle's saving from which it counts as found."""

NOW = datetime(2026, 1, 1, tzinfo=UTC)
"""Wall time is constant: the board's own time advances."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardQuestion:
    """One study to run: `policy` on `device`, the latency limited to `slack` × the baseline's.

    `device` is a specification of a device whose true values are known (`simulated:tx2/bert`); `fixed`
    are knobs that stay at their defaults.
    """

    device: str
    policy: str
    seed: int
    slack: float
    trials: int
    fixed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The result of a study, by the true values; shares of the baseline's energy per item.

    `saving` is the saving of the held setting, `possible` that of the oracle's. `trials_to_near` is the
    number of tuning trials until the best proven setting had 95 % of that; None if never. `above` of
    the `tried` tuning trials were of settings truly above the limit; `held_above` is whether the held
    one is. `seconds` is the median time of a suggestion.
    """

    question: BoardQuestion
    settings: int
    saving: float
    possible: float
    trials_to_near: int | None
    tried: int
    above: int
    held_above: bool
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardRow:
    """The results of a policy on a device over all seeds: means, and the standard error of the saving.

    `trials_to_near` is the median over the `near` of `studies` that came near the oracle.
    `violations` is the share of all tried settings that are truly above the limit.
    """

    device: str
    policy: str
    settings: int
    studies: int
    saving: float
    saving_stderr: float
    possible: float
    captured: float
    near: int
    trials_to_near: float | None
    violations: float
    held_above: int
    seconds_per_suggestion: float
    origin: str = "simulated"


def questions(
    devices: Iterable[str],
    policies: Sequence[str],
    seeds: int,
    slack: float,
    trials: int,
    fixed: Sequence[str] = (),
) -> list[BoardQuestion]:
    """Return all studies to run, by device and seed.

    Raises:
        InvalidInput: an unknown policy or device, one without known true values, or a limit
            that the baseline itself breaks.
    """
    if slack < 1.0:
        raise InvalidInput(
            f"--slack cannot be {slack}: below 1 the baseline breaks the limit itself",
            hint="1.2 allows a fifth more than the baseline has",
        )
    boards = []
    for device in devices:
        if known_truth(device) is None:
            raise InvalidInput(
                f"the true values of {device!r} are unknown", hint="choose one like simulated:tx2"
            )
        for seed in range(seeds):
            for policy in policies:
                load_policy(policy)
                boards.append(
                    BoardQuestion(
                        device=device,
                        policy=policy,
                        seed=seed,
                        slack=slack,
                        trials=trials,
                        fixed=tuple(fixed),
                    )
                )
    return boards


def answer(question: BoardQuestion) -> Answer:
    """Run one study from the vendor's defaults until its hold, and score it.

    Raises:
        TuningError: the study came to a standstill.
    """
    truth = _truth(question.device)
    target = Target((open_device(question.device, seed=question.seed, state_dir=None),))
    study, trials, seconds = _run(question, target)
    limit = _true_limits(study, truth)
    best = oracle(study.space, truth, study.objective, limit) or study.baseline

    def saving(setting: Setting) -> float:
        own, base = (true_score(study.objective, truth(s)) for s in (setting, study.baseline))
        return 1.0 - own / base

    def above(setting: Setting) -> bool:
        return not all(x.holds(truth(setting)[x.metric]) for x in limit)

    held = study.plan.rows[0].setting if study.plan is not None else study.baseline
    tuning = [t for t in trials if t.phase is Phase.TUNING]
    return Answer(
        question=question,
        settings=study.space.size,
        saving=saving(held),
        possible=saving(best),
        trials_to_near=_trials_to(study, trials, lambda s: saving(s) >= NEAR * saving(best)),
        tried=len(tuning),
        above=sum(above(t.setting) for t in tuning),
        held_above=above(held),
        seconds=median(seconds) if seconds else 0.0,
    )


def rows(answers: Sequence[Answer]) -> list[BoardRow]:
    """Return one row per device and policy, in the order of their first answers."""
    groups: dict[tuple[str, str], list[Answer]] = {}
    for each in answers:
        groups.setdefault((each.question.device, each.question.policy), []).append(each)
    return [_row(group) for group in groups.values()]


def _row(group: Sequence[Answer]) -> BoardRow:
    savings = [a.saving for a in group]
    near = [a.trials_to_near for a in group if a.trials_to_near is not None]
    possible = group[0].possible
    return BoardRow(
        device=group[0].question.device,
        policy=group[0].question.policy,
        settings=group[0].settings,
        studies=len(group),
        saving=fmean(savings),
        saving_stderr=stdev(savings) / len(savings) ** 0.5 if len(savings) > 1 else 0.0,
        possible=possible,
        captured=fmean(savings) / possible if possible > 0.0 else 0.0,
        near=len(near),
        trials_to_near=median(near) if near else None,
        violations=sum(a.above for a in group) / max(1, sum(a.tried for a in group)),
        held_above=sum(a.held_above for a in group),
        seconds_per_suggestion=fmean(a.seconds for a in group),
    )


class _Timed:
    """A policy that records the seconds of each of its answers."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.seconds: list[float] = []

    def suggest(self, past: Past) -> Suggestion:
        began = time.process_time()
        suggestion = self._policy.suggest(past)
        self.seconds.append(time.process_time() - began)
        return suggestion


def _run(question: BoardQuestion, target: Target) -> tuple[Study, list[Trial], list[float]]:
    """Return the holding study, its trials, and the seconds of each suggestion."""
    study = Study(
        id=question.device,
        devices=(target.name,),
        workload=target.name,
        space=target.space.restricted(
            {name: (target.space.knob(name).default,) for name in question.fixed}
        ),
        objective=Objective("energy_j"),
        quantities=target.quantities,
        constraints=(Constraint.parse(f"latency_p99_ms <= {question.slack}x baseline"),),
        policy=question.policy,
        seed=question.seed,
        terms=Terms(trials=question.trials),
        created_at=NOW,
    )
    clock = target.clock
    if clock is None:
        raise InvalidInput(f"{question.device} has no time of its own")
    bench = Measurer(
        target=target,
        host_clock=clock,
        now=lambda: NOW,
        usage=Usage(1, lambda: 0.0),
        seed=str(question.seed),
    )
    policy = _Timed(load_policy(question.policy))
    trials: list[Trial] = []
    while study.phase is not Phase.HOLDING:
        step = next_step(Past(study=study, trials=tuple(trials)), policy)
        if isinstance(step, Move):
            study = replace(study.moved(step.phase, step.plan), phase_since=len(trials) + 1)
        elif isinstance(step, Assign):
            trials.append(_measured(study, trials, step, bench))
        else:
            raise TuningError(f"the study of {question} stands still: {step.why}")
    return study, trials, policy.seconds


def _measured(study: Study, trials: Sequence[Trial], step: Assign, bench: Measurer) -> Trial:
    begun = Trial(
        number=len(trials) + 1,
        setting=step.setting,
        phase=study.phase,
        started_at=NOW,
        why=step.why,
    )
    at_baseline = begun.tries(study.baseline)
    ask = Ask(
        metrics=needed_metrics(study),
        limits=() if at_baseline else weigh(study, trials).limits or (),
        window_s=study.terms.window_s,
        max_window_s=study.terms.max_window_s,
    )
    return begun.ended(bench.trial(step.setting, ask, lambda: None, f"trial {begun.number}"), NOW)


def _trials_to(
    study: Study, trials: Sequence[Trial], enough: Callable[[Setting], bool]
) -> int | None:
    """Return the number of tuning trials until the best proven setting was good enough; None if never."""
    spent = 0
    for count, trial in enumerate(trials, start=1):
        if trial.phase is not Phase.TUNING:
            continue
        spent += 1
        best = incumbent(study, weigh(study, counted(study, trials[:count])))
        if best is not None and enough(best.setting):
            return spent
    return None


def _true_limits(study: Study, truth: Truth) -> tuple[Limit, ...]:
    known = {name: Estimate(value) for name, value in truth(study.baseline).items()}
    return limits(study.constraints, known) or ()


def _truth(device: str) -> Truth:
    truth = known_truth(device)
    if truth is None:
        raise InvalidInput(f"the true values of {device!r} are unknown")
    return truth
