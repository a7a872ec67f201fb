"""The policy: measure plain decoding at every batch, then the most informative cells; then plan."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from policies.speculation import starts
from policies.speculation.batches import DECODING, FURTHER, batches_of, given_up, too_many
from policies.speculation.choice import best_at, next_cell, surely_at
from policies.speculation.grid import Cell, Choice, Draft, choices, chosen, named
from policies.speculation.surface import CostSurface, outlook
from policies.speculation.windows import CellWindow, believable, observations, prediction
from tuner.core import (
    Context,
    Done,
    Evidence,
    Past,
    Plan,
    Row,
    Setting,
    Study,
    Suggestion,
    Try,
    Verdict,
    Wait,
    incumbent,
)
from tuner.guard import silencing

SHARE = 0.25
"""The largest share of the grid's points that is measured."""
SHARE_AT_STARTS = 0.35
"""The largest share where one start measures many points: they take less time than the start. With
0.25 they are too few for tiles (seeds 3000 to 3005), as they are chosen several at once."""
LEAST_POINTS = 5
MARGIN = 0.005
"""Rows that differ by less than this share are merged."""
MARGIN_BETWEEN = 0.02
"""The same next to a batch that was not measured: each row costs windows to confirm."""
NOISE = 0.03
"""The expected standard error of a further window, without any window so far."""
PROVING = 2
"""The most further points, where the best cell at the most requests was not measured."""
CHECKED = 4
"""The most points at batches between measured ones: two for each batch, plain decoding and the plan's."""


class Speculation:
    """Chooses the speculation length, and the draft, for each number of requests that decode together.

    After Su et al. (arXiv 2310.18813), for the table batch → length from a short profile, and Yan
    et al. (arXiv 2402.01528), for the model of throughput that chooses the draft. Ours: acceptance
    and timings are one model with errors, the knowledge gradient chooses the few windows, and a
    length of 0 is measured at every batch. Where trials cannot set the load, it chooses one length
    for the running load.
    """

    def refuse(self, study: Study) -> None:
        """Raise InvalidInput if no knob is the length."""
        choices(study.space)

    def suggest(self, past: Past) -> Suggestion:
        """Return the next window, or the plan.

        Raises:
            InvalidInput: the space has no knob for the length, or one with values other than integers >= 0.
        """
        settings = choices(past.study.space)
        if past.limits is None:
            return Wait("the baseline has not been measured yet")
        if past.running:
            return Wait("the last trial is still running")
        profiled = batches_of(past, settings)
        search = _GridSearch(past, settings, profiled)
        further = iter(FURTHER if profiled else ())
        while True:
            answer = search.plain() or search.informative() or search.proving()
            if answer is not None:
                return answer
            batch = next(further, math.inf)
            if batch >= too_many(past.trials) or past.left <= 0 or not search.drafts_at_most:
                return search.checking() or search.done()
            search = _GridSearch(past, settings, (*search.profiled, int(batch)))


@dataclass(frozen=True)
class _GridSearch:
    past: Past
    settings: Mapping[Choice, Setting]
    profiled: tuple[int, ...]
    between: tuple[int, ...] = ()
    """Batches between the measured ones: their predictions have rows, too."""

    @property
    def batches(self) -> tuple[int, ...]:
        """The batches of the grid; a single placeholder for the running load."""
        return tuple(sorted((*self.profiled, *self.between))) or (1,)

    def context(self, batch: int) -> Context:
        """Return the load to request."""
        return {DECODING: float(batch)} if self.profiled else {}

    def evidence(self, batch: int) -> Evidence:
        """Return the evidence at a batch."""
        return self.past.at(self.context(batch))

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """The grid."""
        return tuple(Cell(b, choice) for b in self.batches for choice in self.settings)

    @cached_property
    def windows(self) -> list[CellWindow]:
        """The windows at the grid's cells, in their order."""
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
        """The cells that cannot be measured: they failed, gave no result, or the engine does not start."""
        trials, settings = self.past.trials, self.settings
        silent = silencing(self.past.study, trials)
        unknown = [c for c in self.cells if c not in self.measured]
        return frozenset(
            c
            for c in unknown
            if given_up(trials, settings[c.choice], self.context(c.batch))
            or silent & settings[c.choice].items()
        )

    @cached_property
    def infeasible(self) -> frozenset[Cell]:
        """The cells that are proven to break a limit."""
        broken = []
        for cell in self.cells:
            candidate = self.evidence(cell.batch).of(self.settings[cell.choice])
            if candidate is not None and candidate.verdict is Verdict.INFEASIBLE:
                broken.append(cell)
        return frozenset(broken)

    @cached_property
    def outlook(self) -> CostSurface:
        """The predicted cost of every cell."""
        return outlook(self.cells, observations(self.windows, set(self.cells)))

    @property
    def noise(self) -> float:
        """The expected standard error of a further window."""
        sds = sorted(w.sd for w in self.windows)
        return sds[len(sds) // 2] if sds else NOISE

    def plain(self) -> Try | None:
        """Return the next window without drafting: it is measured at every batch."""
        unknown = [c for c in self.cells if c not in self._out | self.measured]
        missing = [cell for cell in unknown if not cell.choice.length]
        if self.past.left <= 0 or not missing:
            return None
        # One start measures plain decoding at all batches; the last one may have others beside it.
        rest = unknown if len(missing) == 1 else []
        return self._try(
            missing[0], "plain decoding is always measured", self._table(missing[0], rest)
        )

    def informative(self) -> Try | None:
        """Return the window with the largest expected improvement of the table; None once all are spent."""
        reserved = 1 if self._unproven else 0
        if self.past.left <= 0:
            return None
        unknown = [c for c in self.cells if c not in self._out | self.measured]
        for cell, begun in starts.last_table(self.past.trials, self.settings):
            if cell in unknown:
                return self._try(cell, "it is measured at the same start", begun)
        if len(self.measured) >= self._most_points - reserved:
            return None
        best = next_cell(self.outlook, unknown, self.noise, self.infeasible)
        if best is None:
            return None
        cell, gain = best
        share = 100.0 * gain / len(self.batches)
        return self._try(
            cell, f"expected to make the table {share:.2g} % better", self._table(cell, unknown)
        )

    def _table(self, first: Cell, unknown: Sequence[Cell]) -> Plan | None:
        """Return the table of a start that measures a cell and some of other batches; None for it alone."""
        most = min(self.past.left, self._most_points - len(self.measured))
        if not self._shares_starts or most < 2:
            return None
        cells = starts.cells_beside(self.outlook, first, unknown, self.noise, self.infeasible)
        return starts.table([first, *cells][:most], self.settings, DECODING)

    def proving(self) -> Try | None:
        """Return a window of the best cell at the highest number of requests with drafting in the plan.

        An error there costs the most, and it decides whether higher numbers of requests are
        profiled.
        """
        spent = self.past.left <= 0 or len(self.measured) >= self._most_points + PROVING
        if spent or self._unproven is None:
            return None
        return self._try(self._unproven, "drafting at the most requests is always measured")

    def checking(self) -> Try | None:
        """Return a window at the highest batch between two profiled ones at which drafting should pay.

        There plain decoding may fill a pass exactly, and so beat drafting although drafting pays at
        both neighbours. If it does, the next lower batch is checked.
        """
        wide, plain = self._with_between, self._plain
        drafted = [b for b in wide.bests.values() if b.batch in wide.between and b.choice.length]
        seen = [cell for cell in wide.measured if cell.batch in wide.between]
        if not self.profiled or plain is None or len(seen) >= CHECKED or not drafted:
            return None
        highest = drafted[-1]
        for cell in (Cell(highest.batch, plain), highest):
            if self.past.left > 0 and cell not in wide.measured | wide.closed | wide.infeasible:
                why = f"drafting at {cell.batch} requests is checked; {self._account} are measured"
                return replace(wide._try(cell, ""), why=why)
        return None

    @cached_property
    def _with_between(self) -> _GridSearch:
        """The search with the batches midway between two profiled ones added."""
        between = tuple((a + b) // 2 for a, b in pairwise(self.profiled) if b > a + 1)
        return replace(self, between=between)

    @property
    def _unproven(self) -> Cell | None:
        """The best cell that drafts at the highest such batch; None if it is measured, or none drafts."""
        likeliest = [best_at(self.outlook, batch, self._unused) for batch in self.bests]
        drafted = [cell for cell in likeliest if cell.choice.length]
        highest = max(drafted, key=lambda cell: cell.batch, default=None)
        return None if highest in self.measured else highest

    @property
    def _most_points(self) -> int:
        """The most cells to measure: a share of the grid, but enough for every batch."""
        share = SHARE_AT_STARTS if self._shares_starts else SHARE
        return max(int(share * len(self.cells)), 2 * len(self.batches) + 1, LEAST_POINTS)

    @cached_property
    def _shares_starts(self) -> bool:
        """Whether one start of the engine can profile several cells."""
        return bool(self.profiled) and starts.shares_starts(self.past, DECODING)

    @property
    def drafts_at_most(self) -> bool:
        """Whether drafting still pays at the highest profiled batch."""
        most = self.batches[-1]
        return most in self.bests and best_at(self.outlook, most, self._unused).choice.length > 0

    def done(self) -> Done:
        """Return the plan by decoding requests, or one length for the running load."""
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
        rows = self._with_between._rows()
        plan = Plan.single(rows[0].setting) if len(rows) == 1 else Plan(rows, DECODING)
        return Done(plan, f"the length for each number of decoding requests, from {self._account}")

    @cached_property
    def bests(self) -> dict[int, Cell]:
        """The best cell of each batch, if it has a cell that is not in `_unused`."""
        return {
            batch: surely_at(self.outlook, batch, self._unused)
            for batch in self.batches
            if any(c.batch == batch and c not in self._unused for c in self.cells)
        }

    @cached_property
    def _draft(self) -> Draft | None:
        """The one draft of an engine with its own table; None where each row may have its own."""
        return starts.one_draft(self.outlook, self._out) if self._shares_starts else None

    @property
    def _unused(self) -> frozenset[Cell]:
        """The cells that the plan cannot have."""
        own = self._draft
        return self._out if own is None else self._out | starts.by_others(self.cells, own)

    def _setting(self, choice: Choice) -> Setting:
        """Return a row's setting: without drafting, too, with the draft that the engine has."""
        setting = self.settings[choice]
        if self._draft is None or choice.length:
            return setting
        return {**setting, **named(self.past.study.space, self._draft)}

    @property
    def _out(self) -> frozenset[Cell]:
        """The cells that may not be chosen: infeasible ones, and those given up."""
        return self.infeasible | self.closed

    @property
    def _account(self) -> str:
        """The number of measured cells, as text."""
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
            Row(over[-1] + 0.5, self._setting(choice), self._gain(spans, k), float(over[-1]))
            for k, (choice, over) in enumerate(spans)
        ]
        beyond = self._beyond(spans[-1][0])
        if beyond is None:
            rows[-1] = replace(rows[-1], below=math.inf)
            return tuple(rows)
        return (*rows, beyond)

    def _beyond(self, last: Choice) -> Row | None:
        """Return the row above the highest profiled batch; None where the row before is as safe.

        The cost of a length grows with the requests that decode together, so no unmeasured length
        is used there. The row has plain decoding, to be confirmed at the double batch, or else the
        baseline.
        """
        most = 2 * self.batches[-1]
        if not last.length or most >= too_many(self.past.trials):
            return None
        plain = None if self._plain is None else self._setting(self._plain)
        return Row(math.inf, plain or self.past.study.baseline, at=float(most))

    @property
    def _plain(self) -> Choice | None:
        """The choice without drafting; None if the space has none."""
        return next((choice for choice in self.settings if not choice.length), None)

    @property
    def _proven(self) -> int:
        """The most requests at which drafting was measured and pays; rows above do not draft."""
        drafted = {cell.batch for cell in self.measured if cell.choice.length}
        pays = (batch for batch, choice in self.bests.items() if choice.choice.length)
        return max((batch for batch in pays if batch in drafted), default=0)

    def _kept(self, batch: int, before: Choice | None) -> Choice:
        """Return a batch's choice: that of the batch before if it is as good."""
        best = self.bests.get(batch)
        if best is None:
            rest = chosen(self.settings, self.past.study.baseline)
            return rest if rest is not None else best_at(self.outlook, batch).choice
        if before is not None and Cell(batch, before) not in self._unused:
            stays = self._cost(Cell(batch, before))
            if stays - self._cost(best) < self._margin(batch):
                return before
        return best.choice

    def _margin(self, batch: int) -> float:
        """Return the share by which a batch's own choice must beat that of the batch before."""
        before = max((b for b in self.batches if b < batch), default=batch)
        return MARGIN_BETWEEN if {batch, before} & {*self.between} else MARGIN

    def _gain(self, spans: Sequence[tuple[Choice, list[int]]], k: int) -> float:
        """Return the share that a row saves on its batches, compared with a neighbouring row."""
        choice, batches = spans[k]
        shares = [
            1.0 - math.exp(self._cost(Cell(batch, choice)) - self._cost(Cell(batch, other)))
            for other, _ in [*spans[max(0, k - 1) : k], *spans[k + 1 : k + 2]]
            for batch in batches
        ]
        return min(1.0, max(MARGIN, *shares)) if shares else 1.0

    def _cost(self, cell: Cell) -> float:
        """Return the logarithm of a cell's predicted cost."""
        return float(self.outlook.mean[self.outlook.index[cell]])

    def _try(self, cell: Cell, reason: str, plan: Plan | None = None) -> Try:
        """Return the trial of a cell, with its prediction."""
        at = f" at {cell.batch} decoding requests" if self.profiled else ""
        why = f"length {cell.choice.length}{at}: {reason}; {self._account} are measured"
        predicted = prediction(self.past.study, self.outlook, cell) if self.windows else {}
        return Try(self.settings[cell.choice], why, predicted, self.context(cell.batch), plan)
