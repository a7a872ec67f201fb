"""One study of one tuner on one surface: the production policies, the table in place of a device."""

from __future__ import annotations

import hashlib
import math
import time
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from statistics import median

from tests.bench.contest.surfaces import SurfaceProblem
from tests.bench.contest.tuners import TUNERS, Tuner, policy_of
from tuner.core import (
    Constraint,
    Done,
    Estimate,
    Limit,
    Measurement,
    Origin,
    Past,
    Phase,
    Policy,
    Setting,
    SettingKey,
    Study,
    Terms,
    Trial,
    TrialState,
    Try,
    TuningError,
    Wait,
    improvement,
    setting_key,
    student_t95,
    weigh,
)
from tuner.core import Outcome as TrialOutcome
from tuner.guard import clearly_broken
from tuner.study.confirm import duel
from tuner.study.lifecycle import next_step
from tuner.study.moves import Assign, Move

START = datetime(2000, 1, 1, tzinfo=UTC)
WINDOW_S = 10.0
LOOK_S = 0.5
"""How often an agent looks whether a running window has clearly broken a limit."""
PARTS = 10
"""A window's standard error is that of so many parts of it: an estimate, as in production."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One study to be replayed.

    `noise` is the relative standard deviation of a window's result, lognormal; no tuner is told it, all
    see the standard error that the window's own parts show. The limit is absolute, `slack` times the
    true baseline, unless `own_baseline`: then the study works it out from two noisy windows of its own,
    as one in production does, and is scored against the true one all the same. `variant` is who goes by
    the name, None for the one of that name in `TUNERS`.
    """

    tuner: str
    problem: SurfaceProblem
    slack: float
    seed: int
    budgets: tuple[int, ...]
    noise: float = 0.02
    own_baseline: bool = False
    variant: Tuner | None = None

    @property
    def who(self) -> Tuner:
        """The tuner itself."""
        return self.variant or TUNERS[self.tuner]

    def __str__(self) -> str:
        return (
            f"{self.tuner} on {self.problem.source}, {self.problem.surface.name} "
            f"(slack {self.slack}, seed {self.seed})"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Where a study stands when its trials would end at `budget`, by the true table.

    `captured` is the share of the best saving that the deployed setting gives, 0 where it is `wrong`:
    above a limit, by the share `excess` of it. `windows_above` is how many of the windows were above
    one, `violations` their share, `overshoot` by how much of the limit the worst one is. `seconds` is
    the median processor time of a suggestion in a process of one thread, `above_s` how long the trials'
    windows were above the limit, `above_aborting_s` how long had each been cut at the first look that
    shows the limit clearly broken.
    """

    budget: int
    captured: float
    excess: float
    windows_above: int
    violations: float
    overshoot: float
    seconds: float
    above_s: float
    above_aborting_s: float

    @property
    def wrong(self) -> bool:
        """Whether what is deployed is above a limit."""
        return self.excess > 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What a study holds after confirming, by the production steps, and what that is worth.

    `trials` is how many it took before, `windows_above` how many of them were above a limit.
    `claimed` is the saving the confirming windows showed, 0 where the baseline is held; `true` what
    the table says. Shares of the baseline's objective.
    """

    at_baseline: bool
    trials: int
    windows_above: int
    claimed: float
    claimed_stderr: float
    true: float
    wrong: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """What became of one task."""

    tuner: str
    source: str
    surface: str
    slack: float
    seed: int
    checkpoints: tuple[Checkpoint, ...]
    ending: Ending | None = None


def replay(task: Task, *, to_the_end: bool = False) -> TaskResult:
    """Run one study and look at it at every budget; `to_the_end`: then confirm what it proposes.

    A pure function of the task but for the suggestions' seconds. Raises as `studied`.
    """
    return studied(task, to_the_end=to_the_end)[0]


def studied(task: Task, *, to_the_end: bool = False) -> tuple[TaskResult, Past]:
    """Run one study as `replay` does, and return its past, too.

    Raises:
        InvalidInput: a policy's package is missing.
        TuningError: the policy left the table, or came to no end.
    """
    bench = _Bench(task)
    most = max(task.budgets)
    checkpoints = []
    for count in range(1, most + 1):
        bench.go_on(most)
        if count in task.budgets:
            checkpoints.append(bench.look(count))
    problem = task.problem
    result = TaskResult(
        tuner=task.tuner,
        source=problem.source,
        surface=problem.surface.name,
        slack=task.slack,
        seed=task.seed,
        checkpoints=tuple(checkpoints),
        ending=bench.confirm(most) if to_the_end else None,
    )
    return result, bench.past(most)


def seed_of(*parts: object) -> int:
    """Return a seed that is the same on every machine."""
    text = "|".join(str(part) for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")


@dataclass(slots=True)
class _Bench:
    """A study as it goes on."""

    task: Task
    policy: Policy = field(init=False)
    study: Study = field(init=False)
    limits: tuple[Limit, ...] = field(init=False)
    trials: list[Trial] = field(default_factory=list)
    deployed: Setting | None = None
    seconds: list[float] = field(default_factory=list)
    repeats: dict[SettingKey, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        task, surface, tuner = self.task, self.task.problem.surface, self.task.who
        self.policy = policy_of(tuner)
        self.study = Study(
            id=f"{task.problem.source}/{surface.name}",
            devices=("replayed",),
            workload=surface.workload,
            space=surface.space,
            objective=task.problem.aim,
            quantities=task.problem.quantities,
            constraints=task.problem.constraints(task.slack)
            if task.own_baseline
            else tuple(
                Constraint(x.metric, x.op, x.value) for x in task.problem.limits(task.slack)
            ),
            policy=tuner.policy,
            seed=seed_of(task.problem.source, surface.name, task.seed),
            terms=Terms(trials=max(task.budgets), safety=tuner.safety),
            phase=Phase.TUNING,
            created_at=START,
        )
        for _ in range(2 if task.own_baseline else 1):
            self._measure(self.study.baseline, Phase.BASELINE)
        self.limits = weigh(self.study, self.trials).limits or ()
        if tuner.readings:
            self._read_everything(tuner.readings)

    @property
    def tried(self) -> list[Setting]:
        """The settings tried, in order; repeats count."""
        return [t.setting for t in self.trials if t.phase is Phase.TUNING]

    def go_on(self, trials: int) -> None:
        """Ask for a suggestion and measure it; nothing once the study has come to its end."""
        if self.deployed is not None:
            return
        past = self.past(trials)
        began = time.process_time()
        suggestion = self.policy.suggest(past)
        self.seconds.append(time.process_time() - began)
        if isinstance(suggestion, Try):
            self._measure(suggestion.setting, Phase.TUNING)
        else:
            self.deployed = self._deployment(suggestion)

    def _read_everything(self, times: int) -> None:
        """Read every setting so often, and let the policy say at once what to deploy."""
        for setting in self.study.space.grid():
            for _ in range(times):
                self._measure(setting, Phase.TUNING)
        began = time.process_time()
        self.deployed = self._final(len(self.tried))
        self.seconds.append(time.process_time() - began)

    def look(self, budget: int) -> Checkpoint:
        """Score what would be deployed if the trials ended here, and what was tried."""
        task, problem = self.task, self.task.problem
        deployed = self.deployed if self.deployed is not None else self._final(budget)
        # What is read before the search is nobody's choice.
        tuning = [] if task.who.readings else [t for t in self.trials if t.phase is Phase.TUNING]
        excesses = [problem.excess(trial.setting, task.slack) for trial in tuning]
        above = [t for t, excess in zip(tuning, excesses, strict=True) if excess > 0.0]
        return Checkpoint(
            budget=budget,
            captured=problem.captured(deployed, task.slack),
            excess=problem.excess(deployed, task.slack),
            windows_above=len(above),
            violations=len(above) / len(excesses) if excesses else 0.0,
            overshoot=max(excesses, default=0.0),
            seconds=median(self.seconds),
            above_s=len(above) * WINDOW_S,
            above_aborting_s=math.fsum(self._seconds_until_abort(t) for t in above),
        )

    def confirm(self, trials: int) -> Ending:
        """Let the production steps confirm what the policy proposes, and return what is held."""
        while self.study.phase is not Phase.HOLDING:
            step = next_step(self.past(trials), self.policy)
            if isinstance(step, Assign):
                self._measure(step.setting, self.study.phase)
            elif isinstance(step, Move):
                moved = self.study.moved(step.phase, step.plan)
                self.study = replace(moved, phase_since=len(self.trials) + 1)
            else:
                break
        plan = self.study.plan
        held = plan.rows[plan.row({})].setting if plan is not None else self.study.baseline
        problem = self.task.problem
        claim = self._claim(held)
        return Ending(
            at_baseline=setting_key(held) == setting_key(self.study.baseline),
            trials=len(self.tried),
            windows_above=sum(map(self._above, self.tried)),
            claimed=claim.mean,
            claimed_stderr=claim.stderr,
            true=problem.share_saved(problem.objective(held)),
            wrong=self._above(held),
        )

    def _claim(self, held: Setting) -> Estimate:
        """Return the saving that the alternating windows of baseline and held setting showed."""
        windows = duel(self.study, self.trials, held)
        if setting_key(held) == setting_key(self.study.baseline) or windows is None:
            return Estimate(0.0)
        before, after = (self.study.objective.score(window) for window in windows)
        if before is None or after is None:
            return Estimate(0.0)
        return improvement(before, after, self.study.objective.sign).amount

    def past(self, trials: int) -> Past:
        """Return the study's past, with so many trials to spend."""
        terms = replace(self.study.terms, trials=trials)
        study = replace(self.study, terms=terms)
        return Past(study=study, trials=tuple(self.trials))

    def _final(self, trials: int) -> Setting:
        """Return what the policy deploys when these were all its trials."""
        answer = self.policy.suggest(self.past(trials))
        if isinstance(answer, Try):
            raise TuningError(
                f"{self.study.policy} wants a further trial after all {trials}",
                hint="a policy comes to its end when its trials are spent",
            )
        return self._deployment(answer)

    def _deployment(self, answer: Wait | Done) -> Setting:
        """Return what is held after an answer: waiting changes nothing here, so the baseline is."""
        if isinstance(answer, Wait):
            return self.study.baseline
        return answer.plan.rows[answer.plan.row({})].setting

    def _above(self, setting: Setting) -> bool:
        return self.task.problem.excess(setting, self.task.slack) > 0.0

    def _now(self) -> datetime:
        return START + timedelta(seconds=WINDOW_S * len(self.trials))

    def _measure(self, setting: Setting, phase: Phase) -> None:
        """Add the next window at a setting. Raises OutOfRange where the table has no such row."""
        surface, started = self.task.problem.surface, self._now()
        row, key = surface.row(setting), setting_key(setting)
        self.repeats[key] = repeat = self.repeats.get(key, -1) + 1
        factors, spreads = self._noise(key, repeat)
        estimates = {
            metric: _shown(value * factors[metric], value * factors[metric] * spreads[metric])
            for metric, value in row.items()
        }
        window = Measurement(estimates=estimates, started_at=started, seconds=WINDOW_S)
        trial = Trial(
            number=len(self.trials) + 1, setting=dict(setting), phase=phase, started_at=started
        )
        outcome = TrialOutcome(state=TrialState.COMPLETED, measurement=window)
        self.trials.append(trial.ended(outcome, started + timedelta(seconds=WINDOW_S)))

    def _noise(self, key: SettingKey, repeat: int) -> tuple[dict[str, float], dict[str, float]]:
        """Return what a window's true metrics are multiplied by, and the relative error it shows of each.

        The same for every tuner by source, surface, seed, row of the table and repeat; a repeat is a
        fresh draw. The error shown is that of a window's parts, so it is uncertain itself (the root of a
        chi-square over its freedom), and wrong where the problem tells it wrongly.
        """
        import numpy as np  # not before the process has bound itself to one thread

        task, surface = self.task, self.task.problem.surface
        source = seed_of(task.problem.source, surface.name)
        number = list(surface.values).index(key)
        # The study's two first: what else was measured leaves their noise as it is.
        metrics = dict.fromkeys([surface.objective, surface.constrained, *surface.metrics])
        rng = np.random.default_rng([source, task.seed, number, repeat])
        draws = rng.standard_normal(len(metrics))
        parts = np.sqrt(rng.chisquare(PARTS - 1, len(metrics)) / (PARTS - 1))
        true = {metric: task.noise * task.problem.noise.get(metric, 1.0) for metric in metrics}
        told = {
            m: task.problem.told * true[m] * float(p) for m, p in zip(metrics, parts, strict=True)
        }
        return {m: math.exp(true[m] * z) for m, z in zip(metrics, draws, strict=True)}, told

    def _seconds_until_abort(self, trial: Trial) -> float:
        """Return how long a window lasts when it is cut once a limit is clearly broken.

        The running mean is taken to stand at the window's own result from the start; its standard
        error falls with the root of the time to the window's own.
        """
        for look in range(1, int(WINDOW_S / LOOK_S)):
            longer = math.sqrt(WINDOW_S / (look * LOOK_S))
            running = {
                name: Estimate.of_mean(shown.mean, shown.stderr * longer, shown.n)
                for name, shown in trial.shown.items()
            }
            if clearly_broken(running, self.limits) is not None:
                return look * LOOK_S
        return WINDOW_S


def _shown(mean: float, stderr: float) -> Estimate:
    """Return what a window of so many parts shows, with the bounds of Student's t."""
    reach = student_t95(PARTS - 1) * stderr
    return Estimate(mean, stderr, PARTS, mean - reach, mean + reach, Origin.REPLAYED)
