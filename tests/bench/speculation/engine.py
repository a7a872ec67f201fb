"""Adaptive speculation on the reference engine: profiled by the policy, then judged in turns.

Like Su et al. 2023 (arXiv 2310.18813) this compares with no speculation and with each fixed length, at
every batch and under a changing load. Everything is measured here; nothing is simulated.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from policies import load_policy
from tests.bench.turns import QuietTimer, TimedBatches
from tests.engines.text.decoding import NGRAM
from tests.engines.text.engine import DRAFT, LENGTH, LONGEST, SIGNAL
from tests.engines.text.recipe import default_cache
from tests.engines.text.timing import EngineWindow, TextTimer
from tests.engines.text.totals import EngineTotals
from tuner.core import (
    Done,
    Estimate,
    Load,
    Measurement,
    Outcome,
    Past,
    Phase,
    Plan,
    Setting,
    Space,
    Trial,
    TrialState,
    Try,
    TuningError,
    Wait,
)
from tuner.profiling.speculation import START, measured_trial, profiling_study

BATCHES = (1, 2, 4, 8, 16, 32)
ADAPTIVE = "adaptive"
TEXT_STEP, PROFILED = 37, 6
"""The distance of two rounds in texts, and the first text of the policy's windows: it is judged on
others."""
Arm = tuple[int, int, int | str]
"""A text, a number of decoding requests, and a length or the plan."""
Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class WindowTerms:
    """The length of windows, the number of rounds, and the share of the cores that others may use."""

    seconds: float
    rounds: int
    most_foreign: float


@dataclass(frozen=True, slots=True)
class ProfiledTable:
    """The policy's plan, and the number of measured points of the grid of one draft."""

    plan: Plan
    points: int
    of: int
    why: str
    windows: tuple[Trial, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class BatchRates:
    """Tokens per second at a number of requests, of each length and of the plan, round by round.

    In a round all of them generate from the same text.
    """

    batch: int
    planned: int
    fixed: Mapping[int, tuple[float, ...]]
    adaptive: tuple[float, ...]

    @property
    def best(self) -> int:
        """The best fixed length."""
        return max(self.fixed, key=lambda length: statistics.fmean(self.fixed[length]))

    def rate(self, length: int | None) -> tuple[float, float]:
        """Return the mean rate of a fixed length or the plan, with its standard error over the texts."""
        rates = self.adaptive if length is None else self.fixed[length]
        return statistics.fmean(rates), statistics.stdev(rates) / math.sqrt(len(rates))

    def ratio(self, length: int) -> tuple[float, float]:
        """Return the ratio of the plan to a fixed length on the same texts, with its standard error."""
        logs = [math.log(a / b) for a, b in zip(self.adaptive, self.fixed[length], strict=True)]
        ratio = math.exp(statistics.fmean(logs))
        return ratio, ratio * statistics.stdev(logs) / math.sqrt(len(logs))


class EngineBench:
    """Windows of the engine at given loads and settings; windows with foreign load are discarded."""

    def __init__(self, timer: TextTimer, terms: WindowTerms, report: Report) -> None:
        self._timer, self._terms, self._report = timer, terms, report
        self._plan: Plan | None = None
        self._draft = str(timer.engine.space.default[DRAFT])
        self._timed: QuietTimer[Arm] = QuietTimer(self._window, terms.most_foreign)
        self._plain: dict[int, float] = {}

    @property
    def disturbed(self) -> tuple[int, int, float]:
        """The discarded windows, those kept despite foreign load, and its largest share of the cores."""
        return self._timed.rejected, self._timed.disturbed, self._timed.worst

    def profile(self, draft: str) -> ProfiledTable:
        """Measure the policy's windows of one draft until it has its plan."""
        knobs = [
            replace(k, values=(draft,), default=draft) if k.name == DRAFT else k
            for k in self._timer.engine.space.knobs
        ]
        space = Space(tuple(knobs))
        study = profiling_study(space, (LONGEST + 1) * len(BATCHES))
        policy = load_policy("speculation")
        trials = [self._trial(n, study.baseline, 4, Phase.BASELINE) for n in (1, 2)]
        while True:
            answer = policy.suggest(Past(study=study, trials=tuple(trials)))
            if isinstance(answer, Done):
                return self._profiled(answer, trials)
            if isinstance(answer, Wait):
                raise TuningError(f"the policy waits although nothing runs: {answer.why}")
            self._report(answer.why)
            trials.append(self._asked(len(trials) + 1, answer))

    def rates(self, batch: int, plan: Plan, draft: str) -> BatchRates:
        """Return the rates of each fixed length and the plan at a load, in rounds of all in turn."""
        self._plan, self._draft = plan, draft
        arms: list[int | str] = [*range(LONGEST + 1), ADAPTIVE]
        seen: dict[int | str, list[float]] = {arm: [] for arm in arms}
        for turn in range(self._terms.rounds):
            self._report(f"{batch} requests: round {turn + 1} of {self._terms.rounds}")
            for arm in arms[turn % len(arms) :] + arms[: turn % len(arms)]:
                seen[arm].append(1.0 / self._timed((turn, batch, arm)).latency_s)
        row = plan.rows[plan.row({SIGNAL: float(batch)})]
        return BatchRates(
            batch,
            int(row.setting[LENGTH]),
            {length: tuple(seen[length]) for length in range(LONGEST + 1)},
            tuple(seen[ADAPTIVE]),
        )

    def tokens(self, batch: int, seconds: float) -> int:
        """Return the number of tokens that plain decoding writes in this time at a number of requests."""
        if batch not in self._plain:
            self._timer.engine.apply({LENGTH: 0})
            self._plain[batch] = self._timer.work(batch, 48 * batch, 0).tokens_per_s
        return max(8 * batch, round(seconds * self._plain[batch]))

    def put(self, choice: int | str, plan: Plan, draft: str) -> None:
        """Put a fixed length or the plan in force."""
        if choice == ADAPTIVE:
            if self._timer.engine.followed[0] != plan:
                self._timer.engine.follow(plan)
        else:
            self._timer.engine.apply({LENGTH: int(choice), DRAFT: draft})

    def _window(self, arm: Arm) -> TimedBatches:
        text, batch, choice = arm
        tokens = self.tokens(batch, self._terms.seconds)
        assert self._plan is not None
        self.put(choice, self._plan, self._draft)
        shown = self._timer.work(batch, tokens, TEXT_STEP * text)
        return TimedBatches(1.0 / shown.tokens_per_s, 0.0, shown.foreign)

    def _asked(self, number: int, asked: Try) -> Trial:
        batch = int(asked.context.get(SIGNAL, 4.0))
        return self._trial(number, asked.setting, batch, Phase.TUNING)

    def _trial(self, number: int, setting: Setting, batch: int, phase: Phase) -> Trial:
        tokens = self.tokens(batch, self._terms.seconds)
        self._timer.engine.apply(setting)
        shown = [
            self._timer.work(batch, tokens, TEXT_STEP * (PROFILED + k))
            for k in range(self._terms.rounds)
        ]
        shown_estimates = estimates(shown, int(setting[LENGTH]))
        load = {SIGNAL: float(batch)}
        seen = Measurement(
            estimates=shown_estimates, started_at=START, seconds=1.0, load=Load(1000), context=load
        )
        done = Outcome(state=TrialState.COMPLETED, measurement=seen)
        return measured_trial(number, setting, load if phase is Phase.TUNING else {}, done, phase)

    def _profiled(self, done: Done, trials: Sequence[Trial]) -> ProfiledTable:
        cells = {(t.context[SIGNAL], t.setting[LENGTH]) for t in trials if SIGNAL in t.context}
        return ProfiledTable(
            done.plan, len(cells), (LONGEST + 1) * len(BATCHES), done.why, tuple(trials)
        )


def estimates(windows: Sequence[EngineWindow], length: int) -> dict[str, Estimate]:
    """Return the estimates from windows of one setting, with the agent's names of metrics."""
    rates = [w.tokens_per_s for w in windows]
    stderr = statistics.stdev(rates) / math.sqrt(len(rates))
    shown = {
        "throughput_per_s": Estimate.of_mean(statistics.fmean(rates), stderr, len(rates)),
    }
    total = EngineTotals()
    for window in windows:
        total = total.plus(window.totals)
    steps = max(1, total.steps)
    shown["verify_ms"] = Estimate.of_mean(1000.0 * total.verify_s / steps, 0.0, steps)
    if not length or not total.drafts:
        return shown
    per_position = 1000.0 * total.draft_s / max(1, total.draft_positions)
    shown["draft_ms"] = Estimate.of_mean(per_position, 0.0, total.draft_positions)
    for position in range(length):
        count = total.by_position[position] if position < len(total.by_position) else 0
        share = count / total.drafts
        spread = math.sqrt(share * (1.0 - share) / total.drafts)
        shown[f"accepted_at_{position + 1}"] = Estimate.of_mean(share, spread, total.drafts)
    return shown


def segments(moments_s: Sequence[float], count: int, most: int) -> list[int]:
    """Return the number of decoding requests in each of `count` equal parts of a trace of arrivals.

    The ranks of the parts by arrivals are mapped to 1 … `most` requests, on a logarithmic scale.
    """
    first, last = min(moments_s), max(moments_s)
    width = (last - first) / count or 1.0
    arrived = [0] * count
    for moment in moments_s:
        arrived[min(count - 1, int((moment - first) / width))] += 1
    ranks = sorted(set(arrived))
    if len(ranks) == 1:
        return [most] * count
    scale = {n: k / (len(ranks) - 1) for k, n in enumerate(ranks)}
    return [max(1, round(most ** scale[n])) for n in arrived]


@dataclass(frozen=True, slots=True)
class MovingRates:
    """Tokens per second over a whole moving load, of each fixed length and of the plan."""

    loads: tuple[int, ...]
    fixed: Mapping[int, float]
    adaptive: float


def moving(
    bench: EngineBench,
    timer: TextTimer,
    plan: Plan,
    draft: str,
    loads: Sequence[int],
    seconds: float,
) -> MovingRates:
    """Return the rate of each choice with the same texts under the same moving load, stretch by stretch."""
    arms: list[int | str] = [*range(LONGEST + 1), ADAPTIVE]
    spent: dict[int | str, float] = dict.fromkeys(arms, 0.0)
    written = 0
    for turn, requests in enumerate(loads):
        tokens = bench.tokens(requests, seconds)
        written += tokens
        for arm in arms[turn % len(arms) :] + arms[: turn % len(arms)]:
            bench.put(arm, plan, draft)
            shown = timer.work(requests, tokens, TEXT_STEP * turn)
            spent[arm] += tokens / shown.tokens_per_s
    rates = {arm: written / spent[arm] for arm in arms}
    return MovingRates(tuple(loads), {n: rates[n] for n in range(LONGEST + 1)}, rates[ADAPTIVE])


@dataclass(frozen=True, slots=True)
class Collapse:
    """Source text, then noise: tokens per second against plain decoding, and when drafting stopped."""

    before: float
    after: float
    plain_after: float
    stopped_after_s: float | None


def collapse(
    timer: TextTimer, plan: Plan, requests: int, seconds: float, look_s: float = 0.25
) -> Collapse:
    """Let acceptance collapse during a run, and return the engine's reaction.

    Random bytes replace the source text, and the plan drafts by n-grams of the text: a model distilled
    from the target would still predict the target on any text.
    """
    rows = tuple(replace(row, setting={**row.setting, DRAFT: NGRAM}) for row in plan.rows)
    plan = replace(plan, rows=rows)
    timer.engine.apply({LENGTH: 0})
    timer.settle(requests)
    timer.load(requests, random=True)
    plain = timer.window(seconds).tokens_per_s
    timer.engine.follow(plan)
    timer.settle(requests)
    before = timer.window(seconds).tokens_per_s
    timer.load(requests, random=True)
    looks = [timer.window(look_s) for _ in range(round(2.0 * seconds / look_s))]
    drafted = [look.totals.drafted / max(1, look.totals.tokens) for look in looks]
    quiet = next(
        (
            k
            for k in range(len(drafted))
            if statistics.fmean(drafted[k:]) < 0.2 and drafted[k] < 0.2
        ),
        None,
    )
    after = sum(look.totals.tokens for look in looks) / sum(look.seconds for look in looks)
    return Collapse(before, after, plain, None if quiet is None else quiet * look_s)


@dataclass(frozen=True, slots=True)
class DraftRates:
    """The predicted and the measured rate of one draft at a number of requests and a length."""

    batch: int
    length: int
    draft: str
    predicted: float
    measured: float
    stderr: float


def drafts(
    bench: EngineBench, timer: TextTimer, batch: int, length: int, rounds: int, seconds: float
) -> list[DraftRates]:
    """Return each draft's rates at a load; the prediction is from its parts' times and its acceptance.

    Yan et al. 2024 (arXiv 2402.01528): tokens of a step over K · t_draft + t_verify. The parts are of other
    windows than the measured rate.
    """
    names = [str(name) for name in timer.engine.space.knob(DRAFT).values]
    seen: dict[str, list[EngineWindow]] = {name: [] for name in names}
    for turn in range(2 * rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            tokens = bench.tokens(batch, seconds)
            timer.engine.apply({LENGTH: length, DRAFT: name})
            seen[name].append(timer.work(batch, tokens, TEXT_STEP * turn))
    rates = []
    for name, windows in seen.items():
        parts, judged = windows[::2], windows[1::2]
        shown = estimates(parts, length)
        accepted = math.fsum(shown[f"accepted_at_{i}"].mean for i in range(1, length + 1))
        step_ms = length * shown["draft_ms"].mean + shown["verify_ms"].mean
        rate = estimates(judged, length)["throughput_per_s"]
        predicted = 1000.0 * batch * (1.0 + accepted) / step_ms
        rates.append(DraftRates(batch, length, name, predicted, rate.mean, rate.stderr))
    return rates


def misranked(rates: Sequence[DraftRates]) -> int:
    """Return the number of pairs of drafts that differ beyond noise, opposite to the prediction."""
    return sum(
        (one.predicted - other.predicted) * (one.measured - other.measured) < 0.0
        and abs(one.measured - other.measured) > 2.0 * math.hypot(one.stderr, other.stderr)
        for one, other in itertools.combinations(rates, 2)
    )


def open_timer(report: Callable[[str], None]) -> TextTimer:
    """Return the engine, trained first if necessary; `report` gets the progress.

    Raises:
        InvalidInput: a trained model cannot be read.
    """

    def progress(name: str, step: int, steps: int, bits: float) -> None:
        report(f"training {name}: step {step} of {steps}, {bits:.2f} bits a byte")

    return TextTimer(default_cache(), progress, Path("/proc/stat"))
