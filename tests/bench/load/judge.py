"""One server under one trace: limits from the first half, arms on the second half, pooled over seeds."""

from __future__ import annotations

import copy
import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import fmean, stdev

from jouletune_bench.llm import Request
from tests.bench.load.cells import ArmRow, CellRow, Pair, PlanRow
from tests.bench.load.governors import Agft, Ondemand, Slack, clocks
from tests.bench.load.kept import KeptRuns
from tests.bench.load.oracles import (
    ByLoad,
    Foresight,
    Score,
    Table,
    descend,
    edges_of,
    excess,
    rate_now,
    work_ahead,
)
from tests.bench.load.ours import Follows, Tuned, tune
from tests.bench.load.play import Controller, Fixed, Played, play
from tests.bench.load.servers import (
    CROWDED,
    HALF_S,
    SHARES,
    WARM_S,
    WINDOW,
    Limits,
    Opener,
    first_half,
    in_turns,
    quantile,
    second_half,
    shared,
)
from tuner.core import Setting

LEAST_WINDOWS = 100
"""The least number of windows of a cell, over all seeds."""
LEAST_SEEDS, MOST_SEEDS = 10, 40
LEAST_EACH = 5
"""Windows of one seed: a server with a small share of a trace gets several shares in turn."""
SEARCHED = 25
"""The number of windows on which an oracle is chosen; if it breaks its limits on all windows, it is made
faster until it keeps them.
"""
MOST_ABOVE, MOST_OVER = 0.05, 1.2
"""The largest share of windows above a limit, and the largest excess, with which an arm keeps its limits
(or the default's).
"""
KEPT_BY_DEFAULT = 0.95
"""A limit is a slack × the value that this share of the default's windows of the first half keeps."""
LEAST_WAY = 0.001
"""A possible saving below this share of the best single setting's energy is noise."""
GAINS = ((0.2, 0.02), (0.5, 0.05), (1.0, 0.1), (2.0, 0.3))
"""The gains of the PI controller; those that are best on the first half are judged."""

BUILTIN = "simulated:"
"""Servers whose runs are stored; the code of other servers is unknown here."""
SHM = Path("/dev/shm")
"""A folder in memory if there is one, because a hold is written at every change of row."""
OURS, SINGLE, ORACLE, DEFAULT = "plan by load", "best single", "per-load oracle", "governor"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The requests of a cell for tuning and for judging, with the first and the last second of each."""

    server: str
    trace: str
    tuning: Sequence[Request]
    judged: Sequence[Request]
    tuned_s: float
    until_s: float
    slacks: Sequence[float]
    spikes_s: Sequence[float] = ()
    least_windows: int = LEAST_WINDOWS
    searched: int = SEARCHED
    least_seeds: int = LEAST_SEEDS
    share: int | None = None


def of_trace(
    server: str,
    name: str,
    trace: Sequence[Request],
    slacks: Sequence[float],
    least_windows: int = LEAST_WINDOWS,
) -> Task:
    """Return the task of a trace: its first half hour for tuning, the second for judging."""
    judged = second_half(trace)
    return Task(
        server=server,
        trace=name,
        tuning=first_half(trace),
        judged=judged,
        tuned_s=HALF_S,
        until_s=min(HALF_S + WARM_S, judged[-1].arrival_s),
        slacks=slacks,
        least_windows=least_windows,
    )


@dataclass
class Cell:
    """One server and its share of a task, with all runs so far."""

    task: Task
    open_server: Opener
    share: int
    limits: Limits
    seeds: range
    searching: range
    kept: KeptRuns
    turns: int = 1
    floor: tuple[float, float] = (MOST_ABOVE, MOST_OVER)
    runs: dict[str, list[Played]] = field(default_factory=dict)

    def judged(
        self, make: Callable[[Sequence[Request]], Controller], seeds: range, arm: str = ""
    ) -> list[Played]:
        """Play the judged half once for each seed, with a new controller each; store an `arm`'s runs."""

        def run(seed: int) -> Played:
            mine, end_s = self.requests(seed), self.turns * self.task.until_s
            return play(self.open_server, mine, make(mine), seed, end_s)

        if not (arm and self.task.server.startswith(BUILTIN)):
            return [run(seed) for seed in seeds]
        tokens = sum(r.prompt_tokens + r.output_tokens for r in self.task.judged)
        task = f"{self.task.server}/{self.task.trace}/{tokens}/{self.share}/{self.turns}"
        return [self.kept.run(f"{task}/{seed}/{arm}", partial(run, seed)) for seed in seeds]

    def requests(self, seed: int) -> list[Request]:
        """Return a seed's requests of the judged half."""
        return in_turns(self.task.judged, self.share, seed, self.turns, self.task.until_s)

    def tuned(self, controller: Controller, seed: int) -> Played:
        """Play the half for tuning."""
        task = self.task
        mine = in_turns(task.tuning, self.share, seed, self.turns, task.tuned_s)
        return play(self.open_server, mine, controller, seed, self.turns * task.tuned_s)

    def score(self, runs: Sequence[Played]) -> Score:
        """Return the joules, and the excess share of windows above a limit."""
        return Score(
            energy(runs),
            excess(ratios(runs, self.limits), *self.floor) + sum(r.unanswered for r in runs),
        )


def ratios(runs: Sequence[Played], limits: Limits) -> list[float]:
    """Return for every window of all runs the larger p99 relative to its limit."""
    return [ratio for run in runs for _, _, ratio in run.ratios(limits)]


def share_of(open_server: Opener, requests: Sequence[Request], until_s: float) -> int:
    """Return the smallest divisor of a trace whose share does not overload a server at its defaults."""

    def tail(share: int) -> float:
        return play(open_server, shared(requests, share, 0), Fixed(), 0, until_s).ttft_p99_s

    alone = tail(64)
    return next((n for n in SHARES if tail(n) <= CROWDED * alone), SHARES[-1])


def judge(
    task: Task, open_server: Opener, kept: KeptRuns, share: int | None = None
) -> list[CellRow]:
    """Return a row for each slack."""
    fixed: dict[int, list[Played]] = {}
    cells = opened(task, open_server, kept, share)
    return [_row(cell, slack, fixed) for cell, slack in zip(cells, task.slacks, strict=True)]


def opened(task: Task, open_server: Opener, kept: KeptRuns, share: int | None = None) -> list[Cell]:
    """Return a cell for each slack, with its limits and without runs."""
    share = share or share_of(open_server, task.tuning, task.tuned_s)
    due = sum(WARM_S <= r.arrival_s < task.until_s for r in task.judged) / share / WINDOW
    turns = max(1, math.ceil(LEAST_EACH / max(due, 0.01)))
    each = math.floor(due * turns)
    seeds = range(min(MOST_SEEDS, max(task.least_seeds, math.ceil(task.least_windows / each))))
    searching = range(min(len(seeds), math.ceil(task.searched / each)))
    unlimited = Cell(task, open_server, share, Limits(1.0, 1.0), seeds, searching, kept, turns)
    tails = [w for seed in seeds for w in unlimited.tuned(Fixed(), seed).windows]
    usual = [quantile([w[k] for w in tails], KEPT_BY_DEFAULT) for k in (2, 3)]
    return [
        replace(unlimited, limits=Limits(slack * usual[0], slack * usual[1]), runs={})
        for slack in task.slacks
    ]


def hindsight(cell: Cell, fixed: dict[int, list[Played]]) -> int:
    """Play the default, the best single setting and the per-load oracle; return the single's place."""
    settings = clocks(cell.open_server([], 0))
    default = cell.judged(lambda _: Fixed(), cell.seeds, DEFAULT)
    known = ratios(default, cell.limits)
    cell.floor = (max(MOST_ABOVE, above(known)), max(MOST_OVER, max(known, default=1.0)))
    cell.runs[DEFAULT] = default
    single, cell.runs[SINGLE] = _single(cell, settings, fixed)
    cell.runs[ORACLE] = _foreseen(cell, rate_now, single, len(settings))
    return single


def _row(cell: Cell, slack: float, fixed: dict[int, list[Played]]) -> CellRow:
    settings = clocks(cell.open_server([], 0))
    single = hindsight(cell, fixed)
    cell.runs["clairvoyant oracle"] = _foreseen(cell, work_ahead, single, len(settings))
    cell.runs["ondemand"] = cell.judged(lambda _: Ondemand(), cell.seeds, "ondemand")
    gains = _gains(cell)
    cell.runs["PI on slack"] = cell.judged(
        lambda _: Slack(cell.limits, *gains), cell.seeds, f"PI {gains} {cell.limits}"
    )
    learnt = _learnt(cell)
    cell.runs["AGFT"] = cell.judged(lambda _: copy.deepcopy(learnt), cell.seeds, "AGFT")
    with tempfile.TemporaryDirectory(dir=SHM if SHM.is_dir() else None) as folder:
        tuned, note = _tuned(cell, Path(folder))
        cell.runs[OURS] = cell.judged(lambda _: Follows(tuned.plan, Path(folder)), cell.seeds)
    mhz = float(next(iter(settings[single].values())))
    return _told(cell, slack, mhz, tuned, note)


def _single(
    cell: Cell, settings: Sequence[Setting], fixed: dict[int, list[Played]]
) -> tuple[int, list[Played]]:
    """Return the setting with the least energy that keeps the limits, and its result."""
    best, found = len(settings) - 1, None
    for place, setting in enumerate(settings):
        if place not in fixed:
            fixed[place] = cell.judged(_fixed(setting), cell.searching, f"{setting}")
        score = cell.score(fixed[place])
        if score.excess == 0.0 and (found is None or score.energy_j < found.energy_j):
            best, found = place, score
    runs = cell.judged(_fixed(settings[best]), cell.seeds, f"{settings[best]}")
    while cell.score(runs).excess > 0.0 and best < len(settings) - 1:
        best += 1
        runs = cell.judged(_fixed(settings[best]), cell.seeds, f"{settings[best]}")
    return best, runs


def _fixed(setting: Setting) -> Callable[[Sequence[Request]], Controller]:
    return lambda _: Fixed(dict(setting))


def _foreseen(cell: Cell, foresight: Foresight, single: int, places: int) -> list[Played]:
    """Choose a table in hindsight, and play it with every seed."""
    edges = edges_of(foresight(cell.requests(0)), WARM_S, cell.turns * cell.task.until_s)

    def played(table: Table, seeds: range) -> list[Played]:
        arm = f"{foresight.__name__} {edges} {table}"
        return cell.judged(lambda requests: ByLoad(foresight(requests), edges, table), seeds, arm)

    table, _ = descend(
        len(edges) + 1, single, places, lambda t: cell.score(played(t, cell.searching))
    )
    runs = played(table, cell.seeds)
    while cell.score(runs).excess > 0.0 and min(table) < places - 1:
        table = tuple(min(places - 1, place + 1) for place in table)
        runs = played(table, cell.seeds)
    if not cell.score(runs).better(Score(energy(cell.runs[SINGLE]), 0.0)):
        runs = played((single,) * len(table), cell.seeds)
    return runs


def energy(runs: Sequence[Played]) -> float:
    return fmean(r.energy_j for r in runs)


def _gains(cell: Cell) -> tuple[float, float]:
    """Return the PI controller's best gains on the first half."""
    scored = []
    for gains in GAINS:
        runs = [cell.tuned(Slack(cell.limits, *gains), seed) for seed in cell.searching[:3]]
        scored.append((cell.score(runs), gains))
    return min(scored, key=lambda s: (s[0].excess, s[0].energy_j))[1]


def _learnt(cell: Cell) -> Agft:
    """Return a bandit that was trained on the first half, twice."""
    agft = Agft()
    for seed in (0, 1):
        cell.tuned(agft, seed)
    return agft


def _tuned(cell: Cell, folder: Path) -> tuple[Tuned, str]:
    requests = shared(cell.task.tuning, cell.share, 0)
    tuned = tune(cell.open_server, requests, cell.limits, 0, folder)
    return tuned, f"{tuned.phase}: {tuned.reason}"


def _told(cell: Cell, slack: float, single_mhz: float, tuned: Tuned, note: str) -> CellRow:
    single, oracle = cell.runs[SINGLE], cell.runs[ORACLE]
    ways = [s.energy_j - o.energy_j for s, o in zip(single, oracle, strict=True)]
    way = fmean(ways)
    return CellRow(
        server=cell.task.server,
        trace=cell.task.trace,
        share=cell.share,
        slack=slack,
        ttft_p99_ms=1000.0 * cell.limits.ttft_s,
        tpot_p99_ms=1000.0 * cell.limits.tpot_s,
        seeds=len(cell.seeds),
        windows=len(ratios(single, cell.limits)),
        single_mhz=single_mhz,
        possible=way / energy(single),
        possible_stderr=stdev(ways) / len(ways) ** 0.5 / energy(single),
        plan=tuple(
            PlanRow(below=row.below, clock_mhz=float(next(iter(row.setting.values()))))
            for row in tuned.plan.rows
        ),
        trials=tuned.trials,
        hours=tuned.hours,
        note=note,
        arms=tuple(_arm(cell, name, way) for name in cell.runs),
        pairs=tuple(_pair(cell, name) for name in cell.runs if name != OURS),
    )


def _arm(cell: Cell, name: str, way: float) -> ArmRow:
    runs, single = cell.runs[name], cell.runs[SINGLE]
    default = energy(cell.runs[DEFAULT])
    gains = [s.energy_j - r.energy_j for s, r in zip(single, runs, strict=True)]
    told = way >= LEAST_WAY * energy(single)
    seen = ratios(runs, cell.limits)
    share, worst = above(seen), max(seen, default=0.0)
    lost = sum(r.unanswered for r in runs)
    return ArmRow(
        arm=name,
        watts=fmean(r.watts for r in runs),
        saving=1.0 - energy(runs) / default,
        captured=fmean(gains) / way if told else None,
        captured_stderr=stdev(gains) / len(gains) ** 0.5 / way if told else None,
        above=share,
        above_in_spikes=_in_spikes(cell, runs),
        worst=worst,
        keeps=share <= cell.floor[0] and worst <= cell.floor[1] and not lost,
        unanswered=lost,
    )


def _in_spikes(cell: Cell, runs: Sequence[Played]) -> float:
    """Return the share of windows above a limit among those with a spike."""
    return above([
        ratio
        for run in runs
        for begin, end, ratio in run.ratios(cell.limits)
        if any(begin <= at <= end for at in cell.task.spikes_s)
    ])  # fmt: skip


def above(seen: Sequence[float]) -> float:
    """Return the share of windows that are above a limit."""
    return sum(ratio > 1.0 for ratio in seen) / max(1, len(seen))


def _pair(cell: Cell, name: str) -> Pair:
    ours, rival = cell.runs[OURS], cell.runs[name]
    unit = energy(cell.runs[SINGLE])
    apart = [(r.energy_j - o.energy_j) / unit for o, r in zip(ours, rival, strict=True)]
    often = [above(ratios(runs, cell.limits)) for runs in (ours, rival)]
    return Pair(
        rival=name,
        difference=fmean(apart),
        difference_stderr=stdev(apart) / len(apart) ** 0.5 if len(apart) > 1 else 0.0,
        keeps_as_often=often[1] <= max(cell.floor[0], often[0]),
    )
