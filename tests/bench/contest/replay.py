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
"""The period in s at which an agent checks whether a running window has clearly broken a limit."""
PARTS = 10
"""The number of parts of a window from which its standard error is estimated, as in production."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One study to replay.

    `noise` is the relative standard deviation of a window's result, lognormal. Tuners do not get it;
    they see the standard error from the window's parts. The limit is absolute, `slack` times the true
    baseline, unless `own_baseline`: then the study derives it from two noisy windows, as in production,
    but is still scored against the true limit. `variant` is the tuner with the given name; None for the
    one in `TUNERS`.
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
    """The state of a study whose trials end at `budget`, by the true table.

    `captured` is the deployed setting's share of the best saving. It is 0 if the setting is `wrong`:
    above a limit, by the share `excess` of it. `windows_above` is the number of windows above a limit,
    `violations` their share, `overshoot` the largest excess as a share of the limit. `seconds` is the
    median processor time of a suggestion in a process of one thread. `above_s` is the time of the
    trials' windows above the limit; `above_aborting_s` is that time if each window had been cut at the
    first check that shows a clearly broken limit.
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
        """Whether the deployed setting is above a limit."""
        return self.excess > 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The setting held after confirming by the production steps, and its value.

    `trials` is the number of trials before, `windows_above` the number of those above a limit.
    `claimed` is the saving in the confirming windows, 0 if the baseline is held; `true` is that of the
    table. Shares of the baseline's objective.
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
    """The result of one task."""

    tuner: str
    source: str
    surface: str
    slack: float
    seed: int
    checkpoints: tuple[Checkpoint, ...]
    ending: Ending | None = None


def replay(task: Task, *, to_the_end: bool = False) -> TaskResult:
    """Run one study and score it at every budget; with `to_the_end` confirm its proposal afterwards.

    A pure function of the task, except for the seconds of suggestions. Raises as `studied`.
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
        """The tried settings in order, with repeats."""
        return [t.setting for t in self.trials if t.phase is Phase.TUNING]

    def go_on(self, trials: int) -> None:
        """Measure the next suggestion; do nothing once the study has ended."""
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
        """Read every setting `readings` times, and let the policy choose the deployed setting at once."""
        for setting in self.study.space.grid():
            for _ in range(times):
                self._measure(setting, Phase.TUNING)
        began = time.process_time()
        self.deployed = self._final(len(self.tried))
        self.seconds.append(time.process_time() - began)

    def look(self, budget: int) -> Checkpoint:
        """Score the setting that would be deployed if the trials ended now, and the tried settings."""
        task, problem = self.task, self.task.problem
        deployed = self.deployed if self.deployed is not None else self._final(budget)
        # The readings before the search were not chosen by the policy.
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
        """Let the production steps confirm the policy's proposal; return the held setting."""
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
        """Return the saving by the alternating windows of baseline and held setting."""
        windows = duel(self.study, self.trials, held)
        if setting_key(held) == setting_key(self.study.baseline) or windows is None:
            return Estimate(0.0)
        before, after = (self.study.objective.score(window) for window in windows)
        if before is None or after is None:
            return Estimate(0.0)
        return improvement(before, after, self.study.objective.sign).amount

    def past(self, trials: int) -> Past:
        """Return the study's past, with a budget of this many trials."""
        terms = replace(self.study.terms, trials=trials)
        study = replace(self.study, terms=terms)
        return Past(study=study, trials=tuple(self.trials))

    def _final(self, trials: int) -> Setting:
        """Return the policy's answer if these are all its trials."""
        answer = self.policy.suggest(self.past(trials))
        if isinstance(answer, Try):
            raise TuningError(
                f"{self.study.policy} wants a further trial after all {trials}",
                hint="a policy comes to its end when its trials are spent",
            )
        return self._deployment(answer)

    def _deployment(self, answer: Wait | Done) -> Setting:
        """Return the setting held after an answer; after a wait it is the baseline."""
        if isinstance(answer, Wait):
            return self.study.baseline
        return answer.plan.rows[answer.plan.row({})].setting

    def _above(self, setting: Setting) -> bool:
        return self.task.problem.excess(setting, self.task.slack) > 0.0

    def _now(self) -> datetime:
        return START + timedelta(seconds=WINDOW_S * len(self.trials))

    def _measure(self, setting: Setting, phase: Phase) -> None:
        """Add the next window at a setting. Raises OutOfRange: the table has no such row."""
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
        """Return the factor of each true metric in a window, and the relative error that the window shows.

        The same for every tuner by source, surface, seed, row of the table and repeat; a repeat is a
        fresh draw. The shown error comes from a window's parts, so it is uncertain itself (the root of
        a chi-square over its degrees of freedom); it is wrong if the problem misstates it.
        """
        import numpy as np  # only after the process has limited itself to one thread

        task, surface = self.task, self.task.problem.surface
        source = seed_of(task.problem.source, surface.name)
        number = list(surface.values).index(key)
        # The study's first two windows: other measurements do not change their noise.
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
        """Return the seconds of a window that is cut once a limit is clearly broken.

        The running mean is assumed to equal the window's result from the start; its standard error
        falls with the root of the time to that of the window.
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
    """Return the estimate of a window with this many parts, with the bounds of Student's t."""
    reach = student_t95(PARTS - 1) * stderr
    return Estimate(mean, stderr, PARTS, mean - reach, mean + reach, Origin.REPLAYED)
