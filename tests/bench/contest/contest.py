"""A comparison of tuners on a folder of measured surfaces: its studies, and their results."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec

from tests.bench.contest import score
from tests.bench.contest.leave_one_out import Generalisation, generalisations
from tests.bench.contest.replay import Task, TaskResult, seed_of
from tests.bench.contest.runs import Failure, Job, Result
from tests.bench.contest.surfaces import FLAT, WORTH_TUNING, SurfaceProblem
from tests.bench.contest.tuners import TUNERS, Tuner, policy_of
from tuner.core import InvalidInput


def require(package: str, what: str) -> None:
    """Check that a required package is installed. Raises InvalidInput."""
    if package and find_spec(package) is None:
        raise InvalidInput(
            f"{what} needs {package}, which is not installed",
            hint="pip install -e '.[dev]'",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ContestTerms:
    """The terms of a comparison.

    `variants` are further tuners by name. With `leave_one_out` one of them or of ours is chosen on all
    sources but one and scored on that one; a candidate may have at most `most_above` windows above a
    limit per study.

    Raises:
        InvalidInput: an unknown tuner, one whose package is missing or that cannot be created, a list
        that is empty or has duplicates, a count below one, a slack below 1 (the baseline itself would
            break the limit), or a noise outside the range of a share.
    """

    tuners: tuple[str, ...]
    budgets: tuple[int, ...]
    slacks: tuple[float, ...]
    noise: float
    seeds: int
    own_baseline: bool = False
    variants: Mapping[str, Tuner] = field(default_factory=dict)
    leave_one_out: bool = False
    most_above: float = 0.75

    @property
    def known(self) -> Mapping[str, Tuner]:
        """All tuners by name, variants included."""
        return {**TUNERS, **self.variants}

    @property
    def candidates(self) -> tuple[str, ...]:
        """The candidates of a choice: the variants, and ours at the requested levels of safety."""
        return tuple(n for n in self.tuners if n in self.variants or n.startswith(score.OURS))

    def __post_init__(self) -> None:
        unknown = [name for name in self.tuners if name not in self.known]
        if unknown:
            raise InvalidInput(
                f"there is no tuner {', '.join(map(repr, unknown))}",
                hint=f"choose among {', '.join(self.known)}",
            )
        for name in self.tuners:
            require(self.known[name].needs, f"the tuner {name}")
            policy_of(self.known[name])
        for name, listed in (
            ("tuners", self.tuners),
            ("budgets", self.budgets),
            ("slack", self.slacks),
        ):
            if not listed or len(set(listed)) < len(listed):
                raise InvalidInput(
                    f"--{name} names nothing, or something twice", hint="separate by commas"
                )
        if min(*self.budgets, self.seeds) < 1:
            raise InvalidInput("--budgets and --seeds must be at least 1")
        if not all(math.isfinite(slack) and slack >= 1.0 for slack in self.slacks):
            raise InvalidInput(
                "--slack must be at least 1: below it the baseline breaks the limit itself",
                hint="1.1 allows a tenth more than the baseline has",
            )
        if self.leave_one_out and len(self.candidates) < 2:
            raise InvalidInput(
                "--leave-one-out has nothing to choose among",
                hint="name variants with --variants FILE.toml, or --tuners ours,ours-strict",
            )
        if not self.most_above >= 0.0:
            raise InvalidInput("--most-above cannot be below 0")
        if not 0.0 <= self.noise < 1.0:
            raise InvalidInput(f"--noise cannot be {self.noise}", hint="0.02 is 2 %")


@dataclass(frozen=True, slots=True, kw_only=True)
class Standings:
    """The results of a comparison, with its seeds per surface and its noise.

    `failures` are the failed studies, which are in no figure.
    """

    seeds: int
    noise: float
    rows: tuple[score.ScoreRow, ...]
    by_source: tuple[score.SourceRow, ...]
    pairs: tuple[score.Pair, ...]
    pairs_by_source: tuple[score.SourcePair, ...]
    controls: tuple[score.Control, ...]
    seconds_above_limit: tuple[score.Seconds, ...]
    generalisations: tuple[Generalisation, ...]
    failures: tuple[Failure, ...]


def narrowed(
    problems: Sequence[SurfaceProblem],
    terms: ContestTerms,
    sources: Sequence[str] = (),
    per_source: int | None = None,
) -> list[SurfaceProblem]:
    """Return a fixed choice of surfaces: of the given sources, with this many of each.

    They are drawn by their names among the source's surfaces worth tuning at the tightest limit.

    Raises:
        InvalidInput: there is no such source.
    """
    there = list(dict.fromkeys(problem.source for problem in problems))
    unknown = [source for source in sources if source not in there]
    if unknown:
        raise InvalidInput(
            f"there is no source {', '.join(map(repr, unknown))}",
            hint=f"choose among {', '.join(there)}",
        )
    own = [p for p in problems if not sources or p.source in sources]
    if per_source is None:
        return own
    worth = [p for p in own if p.saving(min(terms.slacks)) >= WORTH_TUNING]
    worth.sort(key=lambda problem: seed_of(problem.source, problem.surface.name))
    chosen = {
        (p.source, p.surface.name)
        for source in there
        for p in [p for p in worth if p.source == source][:per_source]
    }
    return [p for p in own if (p.source, p.surface.name) in chosen]


def jobs_of(problems: Sequence[SurfaceProblem], terms: ContestTerms) -> list[Job]:
    """Return all studies to run.

    All tuners run on the surfaces worth tuning. Ours also run on the flat ones, to the end of the
    confirming phase, which claims the saving. Surfaces that save between 1 % and 3 % are in neither
    set.

    Raises:
        InvalidInput: a source is to be left out and there is only one.
    """
    if terms.leave_one_out and len({problem.source for problem in problems}) < 2:
        raise InvalidInput("--leave-one-out needs two sources at least")
    chosen = [
        (tuner, problem, slack, saving < FLAT)
        for slack in terms.slacks
        for problem in problems
        for saving in (problem.saving(slack),)
        for tuner in terms.tuners
        if saving >= WORTH_TUNING or (saving < FLAT and tuner.startswith(score.OURS))
    ]
    return [
        Job(_task(tuner, problem, slack, seed, terms), to_the_end=flat)
        for seed in range(terms.seeds)
        for tuner, problem, slack, flat in chosen
    ]


def standings(jobs: Sequence[Job], results: Sequence[Result], terms: ContestTerms) -> Standings:
    """Return the figures of the studies, in the requested order of tuners, slacks and budgets."""
    ended = list(zip(jobs, results, strict=True))
    ended.sort(key=lambda pair: terms.tuners.index(pair[0].task.tuner))
    outcomes = [r for job, r in ended if isinstance(r, TaskResult) and not job.to_the_end]
    flat = [r for job, r in ended if isinstance(r, TaskResult) and job.to_the_end]
    return Standings(
        seeds=terms.seeds,
        noise=terms.noise,
        rows=tuple(score.rows(outcomes)),
        by_source=tuple(score.by_source(outcomes)),
        pairs=tuple(score.pairs(outcomes)),
        pairs_by_source=tuple(score.pairs_by_source(outcomes)),
        controls=tuple(score.controls(flat, terms.noise)),
        seconds_above_limit=tuple(score.seconds_above_limit(outcomes)),
        generalisations=tuple(
            generalisations(outcomes, terms.candidates, terms.most_above)
            if terms.leave_one_out
            else ()
        ),
        failures=tuple(r for r in results if isinstance(r, Failure)),
    )


def _task(
    tuner: str, problem: SurfaceProblem, slack: float, seed: int, terms: ContestTerms
) -> Task:
    return Task(
        tuner=tuner,
        problem=problem,
        slack=slack,
        seed=seed,
        budgets=terms.budgets,
        noise=terms.noise,
        own_baseline=terms.own_baseline,
        variant=terms.known[tuner],
    )
