"""The policy: measure plain decoding at every batch, then where it may change the table most; plan."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from policies.speculation.choice import best_at, next_cell, surely_at
from policies.speculation.grid import Cell, Choice, choices, chosen
from policies.speculation.surface import CostSurface, outlook
from policies.speculation.windows import CellWindow, believable, observations, shared
from tuner.core import (
    Context,
    Done,
    Evidence,
    Past,
    Plan,
    Prediction,
    Row,
    Setting,
    Suggestion,
    Trial,
    TrialState,
    Try,
    Verdict,
    Wait,
    incumbent,
)

DECODING = "decoding_requests"
"""The signal that plans go by: the sequences that decode together."""
BATCHES = (1, 2, 4, 8, 16, 32)
"""What is always profiled, where the load allows it."""
FURTHER = (64, 128, 256)
"""What is profiled, too, as long as drafting still pays at the highest batch before."""
SHARE = 0.25
"""The share of the grid's points that is measured at most."""
LEAST_POINTS = 5
MARGIN = 0.005
"""Rows that differ by less than this share are one."""
MARGIN_BETWEEN = 0.02
"""The same next to a batch that was not measured: each row costs windows to confirm."""
NOISE = 0.03
"""The standard error that a further window is expected to have, where none was seen."""
REACHED = 0.8
"""The share of the requests asked for that must decode together, else the load does not allow them."""
PROVING = 2
"""So many points more are measured at most, where the best at the most requests was not."""
RETRIES = 2
"""How often a cell is tried whose windows come to nothing."""


class Speculation:
    """Finds the speculation length, and the draft, for every number of requests that decode together.

    After Su et al. (arXiv 2310.18813), whose table batch → length from a short profile it follows, and Yan
    et al. (arXiv 2402.01528), whose model of throughput chooses the draft. Ours: acceptance and
    timings are one model with doubt, the knowledge gradient chooses the few windows, and a length of 0 is
    measured at every batch. Where no load can be asked for, it finds one length for what runs.
    """

    def suggest(self, past: Past) -> Suggestion:
        """Return the next window, or the plan.

        Raises:
            InvalidInput: the space has no knob for the length, or one whose values are no lengths.
        """
        settings = choices(past.study.space)
        if past.limits is None:
            return Wait("the baseline has not been measured yet")
        if past.running:
            return Wait("the last trial is still running")
        profiled = _batches(past, settings)
        search = _GridSearch(past, settings, profiled)
        further = iter(FURTHER if profiled else ())
        while True:
            answer = search.plain() or search.informative() or search.proving()
            if answer is not None:
                return answer
            batch = next(further, math.inf)
            if batch >= _too_many(past.trials) or past.left <= 0 or not search.drafts_at_most:
                return search.done()
            search = _GridSearch(past, settings, (*search.profiled, int(batch)))


def _batches(past: Past, settings: Mapping[Choice, Setting]) -> tuple[int, ...]:
    """Return the batches to profile: as many as the trials allow, from one request to the most."""
    if DECODING not in past.study.askable:
        return ()
    ceiling = _too_many(past.trials)
    if past.left <= 0 and (measured := _measured(past.trials)):
        return tuple(batch for batch in measured if batch < ceiling)
    reachable = [b for b in BATCHES if b < ceiling]
    plain = any(not choice.length for choice in settings)
    most = max(1, (past.study.terms.trials - 1) // (2 if plain else 1))
    if most >= len(reachable):
        return tuple(reachable)
    steps = max(1, most - 1)
    places = {round(i * (len(reachable) - 1) / steps) for i in range(most)}
    return tuple(reachable[i] for i in sorted(places))


def _measured(trials: Sequence[Trial]) -> list[int]:
    """Return the numbers of requests that windows were measured at."""
    batches = {t.context[DECODING] for t in trials if t.state.evidence and DECODING in t.context}
    return sorted(int(batch) for batch in batches if batch.is_integer())


def _too_many(trials: Sequence[Trial]) -> float:
    """Return the fewest requests that were asked for and did not decode together, or failed."""
    tried = [t for t in trials if DECODING in t.context]
    short = [
        min(t.context[DECODING], decoding.mean / REACHED)
        for t in tried
        if (decoding := t.shown.get(DECODING)) is not None
        and decoding.mean < REACHED * t.context[DECODING]
    ]
    failed = [t.context[DECODING] for t in tried if t.state is TrialState.FAILED]
    lost = [b for b in failed if failed.count(b) >= RETRIES and not _evidence(tried, b)]
    return min([*short, *lost], default=math.inf)


def _evidence(trials: Sequence[Trial], batch: float) -> bool:
    return any(t.state.evidence and t.context[DECODING] == batch for t in trials)


@dataclass(frozen=True)
class _GridSearch:
    past: Past
    settings: Mapping[Choice, Setting]
    profiled: tuple[int, ...]
    between: tuple[int, ...] = ()
    """Batches between these, which are not measured: what is expected of them has rows, too."""

    @property
    def batches(self) -> tuple[int, ...]:
        """The batches of the grid; one without a name where the load is whatever runs."""
        return tuple(sorted((*self.profiled, *self.between))) or (1,)

    def context(self, batch: int) -> Context:
        """Return the load to ask for."""
        return {DECODING: float(batch)} if self.profiled else {}

    def evidence(self, batch: int) -> Evidence:
        """Return what is known at a batch."""
        return self.past.at(self.context(batch))

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """The grid."""
        return tuple(Cell(b, choice) for b in self.batches for choice in self.settings)

    @cached_property
    def windows(self) -> list[CellWindow]:
        """What the windows at the grid's cells tell, in their order."""
        pairs = [
            (trial, Cell(batch, choice))
            for batch in self.batches
            for candidate in self.evidence(batch).candidates
            if (choice := chosen(self.settings, candidate.setting)) is not None
            for trial in candidate.trials
        ]
        return believable(pairs, self.past.study)

    @cached_property
    def measured(self) -> frozenset[Cell]:
        """The cells with a window."""
        return frozenset(w.cell for w in self.windows)

    @cached_property
    def closed(self) -> frozenset[Cell]:
        """The cells that cannot be measured: they failed, or their windows came to nothing."""
        return frozenset(cell for cell in self.cells if self._given_up(cell))

    @cached_property
    def infeasible(self) -> frozenset[Cell]:
        """The cells whose windows have proven a limit broken."""
        broken = []
        for cell in self.cells:
            candidate = self.evidence(cell.batch).of(self.settings[cell.choice])
            if candidate is not None and candidate.verdict is Verdict.INFEASIBLE:
                broken.append(cell)
        return frozenset(broken)

    @cached_property
    def outlook(self) -> CostSurface:
        """What every cell is expected to cost."""
        return outlook(self.cells, observations(self.windows, set(self.cells)))

    @property
    def noise(self) -> float:
        """The standard error that a further window is expected to have."""
        sds = sorted(w.sd for w in self.windows)
        return sds[len(sds) // 2] if sds else NOISE

    def plain(self) -> Try | None:
        """Return the next window without drafting: it is measured at every batch."""
        for batch in self.batches if self.past.left > 0 else ():
            for choice in self.settings:
                cell = Cell(batch, choice)
                if not choice.length and cell not in self.measured | self.closed | self.infeasible:
                    return self._try(cell, "plain decoding is always measured")
        return None

    def informative(self) -> Try | None:
        """Return the window that is expected to improve the table most; None once all are spent."""
        reserved = 1 if self._unproven else 0
        if self.past.left <= 0 or len(self.measured) >= self._most_points - reserved:
            return None
        out = self.closed | self.infeasible
        unknown = [c for c in self.cells if c not in out | self.measured]
        best = next_cell(self.outlook, unknown, self.noise, self.infeasible)
        if best is None:
            return None
        cell, gain = best
        share = 100.0 * gain / len(self.batches)
        return self._try(cell, f"expected to make the table {share:.2g} % better")

    def proving(self) -> Try | None:
        """Return a window of the best cell of the most requests at which the plan may draft.

        That one is the dearest to be wrong about, and whether more requests are profiled goes by it.
        """
        spent = self.past.left <= 0 or len(self.measured) >= self._most_points + PROVING
        if spent or self._unproven is None:
            return None
        return self._try(self._unproven, "drafting at the most requests is always measured")

    @property
    def _unproven(self) -> Cell | None:
        likeliest = [best_at(self.outlook, batch, self._out) for batch in self.bests]
        drafted = [cell for cell in likeliest if cell.choice.length]
        highest = max(drafted, key=lambda cell: cell.batch, default=None)
        return None if highest in self.measured else highest

    @property
    def _most_points(self) -> int:
        return max(int(SHARE * len(self.cells)), 2 * len(self.batches) + 1, LEAST_POINTS)

    @property
    def drafts_at_most(self) -> bool:
        """Whether drafting still pays at the highest batch that is profiled."""
        most = self.batches[-1]
        return most in self.bests and best_at(self.outlook, most, self._out).choice.length > 0

    def done(self) -> Done:
        """Return the plan by decoding requests, or the one length for the load that runs."""
        study, evidence = self.past.study, self.past.evidence
        fit = incumbent(study, evidence)
        if not self.profiled:
            setting = study.baseline if fit is None else fit.setting
            return Done(
                Plan.single(setting), f"the best measured at this load, from {self._account}"
            )
        if evidence.broken is not None and fit is not None:
            outcome = (
                f"the best setting that meets {evidence.broken.in_short}, which the baseline breaks"
            )
            return Done(Plan.single(fit.setting), f"{outcome}, from {self._account}")
        between = tuple((a + b) // 2 for a, b in pairwise(self.profiled) if b > a + 1)
        rows = replace(self, between=between)._rows()
        plan = Plan.single(rows[0].setting) if len(rows) == 1 else Plan(rows, DECODING)
        return Done(plan, f"the length for each number of decoding requests, from {self._account}")

    @cached_property
    def bests(self) -> dict[int, Cell]:
        """The best cell of each batch where one is left."""
        return {
            batch: surely_at(self.outlook, batch, self._out)
            for batch in self.batches
            if any(c.batch == batch and c not in self._out for c in self.cells)
        }

    @property
    def _out(self) -> frozenset[Cell]:
        return self.infeasible | self.closed

    @property
    def _account(self) -> str:
        plain = sum(not c.choice.length for c in self.measured)
        return (
            f"{len(self.measured)} of {len(self.cells)} points of the grid ({plain} of them without "
            "drafting)"
        )

    def _rows(self) -> tuple[Row, ...]:
        """Return the plan's rows: each for the batches above the one before, up to its own."""
        spans: list[tuple[Choice, list[int]]] = []
        for batch in self.batches:
            choice = self._kept(batch, spans[-1][0] if spans else None)
            if batch > self._proven and self._plain and Cell(batch, self._plain) not in self._out:
                choice = self._plain
            if not spans or spans[-1][0] != choice:
                spans.append((choice, []))
            spans[-1][1].append(batch)
        rows = [
            Row(over[-1] + 0.5, self.settings[choice], self._gain(spans, k), float(over[-1]))
            for k, (choice, over) in enumerate(spans)
        ]
        beyond = self._beyond(spans[-1][0])
        if beyond is None:
            rows[-1] = replace(rows[-1], below=math.inf)
            return tuple(rows)
        return (*rows, beyond)

    def _beyond(self, last: Choice) -> Row | None:
        """Return the row above the highest profiled batch; None where the row before is as safe.

        A length costs the more the more requests decode together, so none that was not measured there is
        used: plain decoding is, to be confirmed at the double batch, or else the baseline.
        """
        most = 2 * self.batches[-1]
        if not last.length or most >= _too_many(self.past.trials):
            return None
        plain = None if self._plain is None else self.settings[self._plain]
        return Row(math.inf, plain or self.past.study.baseline, at=float(most))

    @property
    def _plain(self) -> Choice | None:
        return next((choice for choice in self.settings if not choice.length), None)

    @property
    def _proven(self) -> int:
        """The most requests at which drafting was measured and pays; none above it draft."""
        drafted = {cell.batch for cell in self.measured if cell.choice.length}
        pays = (batch for batch, choice in self.bests.items() if choice.choice.length)
        return max((batch for batch in pays if batch in drafted), default=0)

    def _kept(self, batch: int, before: Choice | None) -> Choice:
        """Return a batch's choice: the one of the batch before where it is as good."""
        best = self.bests.get(batch)
        if best is None:
            rest = chosen(self.settings, self.past.study.baseline)
            return rest if rest is not None else best_at(self.outlook, batch).choice
        if before is not None and Cell(batch, before) not in self._out:
            stays = self._cost(Cell(batch, before))
            if stays - self._cost(best) < self._margin(batch):
                return before
        return best.choice

    def _margin(self, batch: int) -> float:
        """Return by what share a batch's own choice must be better than that of the batch before."""
        before = max((b for b in self.batches if b < batch), default=batch)
        return MARGIN_BETWEEN if {batch, before} & {*self.between} else MARGIN

    def _gain(self, spans: Sequence[tuple[Choice, list[int]]], k: int) -> float:
        """Return the share that a row saves on its batches, against staying at a neighbouring row."""
        choice, batches = spans[k]
        shares = [
            1.0 - math.exp(self._cost(Cell(batch, choice)) - self._cost(Cell(batch, other)))
            for other, _ in [*spans[max(0, k - 1) : k], *spans[k + 1 : k + 2]]
            for batch in batches
        ]
        return min(1.0, max(MARGIN, *shares)) if shares else 1.0

    def _cost(self, cell: Cell) -> float:
        return float(self.outlook.mean[self.outlook.index[cell]])

    def _try(self, cell: Cell, reason: str) -> Try:
        """Return the trial of a cell, with what is expected of it."""
        at = f" at {cell.batch} decoding requests" if self.profiled else ""
        why = f"length {cell.choice.length}{at}: {reason}; {self._account} are measured"
        objective = self.past.study.objective
        predicted: dict[str, Prediction] = {}
        if self.windows:
            place = self.outlook.index[cell]
            alone = shared(objective.metric, self.past.study.quantities)
            cost = float(self.outlook.mean[place]) - (math.log(cell.batch) if alone else 0.0)
            mean = math.exp(objective.sign * cost)
            sd = math.sqrt(max(0.0, float(self.outlook.cov[place, place])))
            predicted[objective.metric] = Prediction(mean, mean * min(1.0, sd))
        return Try(self.settings[cell.choice], why, predicted, self.context(cell.batch))

    def _given_up(self, cell: Cell) -> bool:
        own = [
            t
            for t in self.past.trials
            if t.tries(self.settings[cell.choice])
            and t.state is not TrialState.ABORTED
            and (not self.profiled or t.context == self.context(cell.batch))
        ]
        failed = any(t.state is TrialState.FAILED for t in own)
        return cell not in self.measured and (failed or len(own) >= RETRIES)
