"""The engine: one thread that decodes, at the set length or at a plan's length for the load."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from copy import deepcopy
from typing import TypeVar

from agents.speculation.fallback import SpeculationFallback, StepCounts
from tests.engines.text.decoding import Decoder, DecodingStep
from tests.engines.text.sequence import DecodingSequence
from tests.engines.text.totals import EngineTotals
from tuner.core import (
    Conflict,
    InvalidInput,
    Knob,
    Part,
    Plan,
    Role,
    Setting,
    Space,
)

LOG = logging.getLogger(__name__)

LENGTH, DRAFT, SIGNAL = "speculation_length", "draft", "decoding_requests"
LONGEST = 8

ResultT = TypeVar("ResultT")


def speculation_space(drafts: tuple[str, ...]) -> Space:
    """Return the knobs of an engine; the default is no speculation and the first draft."""
    lengths = tuple(range(LONGEST + 1))
    return Space(
        (
            Knob(LENGTH, lengths, 0, Part.WORKLOAD, role=Role.SPECULATION_LENGTH),
            Knob(DRAFT, drafts, drafts[0], Part.WORKLOAD, role=Role.DRAFT),
        )
    )


class TextEngine:
    """Decodes requests as they arrive; every step follows the setting or the plan in force.

    While a plan is followed, a length that has become a loss is not used
    (`agents.speculation.fallback`); a setting is always used, so that it can be measured. A failure of
    the decoder ends its requests with an error; the thread continues.
    """

    def __init__(self, decoder: Decoder) -> None:
        self.space = speculation_space(tuple(decoder.drafts))
        self._decoder = decoder
        self._setting: Setting = self.space.default
        self._plan: Plan | None = None
        self._row: int | None = None
        self._fallback = SpeculationFallback()
        self._totals = EngineTotals()
        self._waiting: deque[DecodingSequence] = deque()
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="decoder", daemon=True)

    def start(self) -> None:
        """Start decoding."""
        self._thread.start()

    def close(self) -> None:
        """End the thread; its requests end as failed."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join()

    def submit(self, sequence: DecodingSequence) -> None:
        """Queue a request. Raises InvalidInput: its prompt leaves no room, or is empty."""
        if not 2 <= len(sequence.tokens) < self._decoder.context:
            raise InvalidInput(
                f"a prompt of {len(sequence.tokens)} tokens does not fit a context of "
                f"{self._decoder.context}",
                hint="send from 1 byte to two less than the context",
            )
        with self._changed:
            self._totals.arrived += 1
            self._waiting.append(sequence)
            self._changed.notify()

    def apply(self, setting: Setting) -> None:
        """Put knobs in force from the next step on, which ends a plan. Raises UnknownKnob, OutOfRange."""
        wanted = {**self.setting, **setting}
        self.space.check(wanted)
        with self._changed:
            self._setting, self._plan, self._row = wanted, None, None

    def follow(self, plan: Plan) -> None:
        """Follow a plan from the next step on.

        Raises:
            Conflict: the plan uses another signal.
            UnknownKnob, OutOfRange: a row does not fit.
        """
        if len(plan.rows) > 1 and plan.by != SIGNAL:
            raise Conflict(
                f"the engine goes by {SIGNAL}, not by {plan.by!r}", hint=f"give a plan by {SIGNAL}"
            )
        for row in plan.rows:
            self.space.check(row.setting)
        with self._changed:
            self._plan, self._row = plan, None

    @property
    def setting(self) -> Setting:
        """The setting in force; while a plan is followed, its current row."""
        return self._locked(self._in_force)

    @property
    def followed(self) -> tuple[Plan | None, int | None]:
        """The plan in force and its current row."""
        return self._locked(lambda: (self._plan, self._row))

    @property
    def totals(self) -> EngineTotals:
        """The totals so far."""
        return self._locked(lambda: deepcopy(self._totals))

    @property
    def inside(self) -> tuple[int, int]:
        """The number of requests in the engine, and the number of those that decode."""
        return self._locked(
            lambda: (
                len(self._waiting) + len(self._decoder.sequences),
                len(self._decoder.sequences),
            )
        )

    def _locked(self, read: Callable[[], ResultT]) -> ResultT:
        with self._changed:
            return read()

    def _in_force(self) -> Setting:
        if self._plan is None:
            return self._setting
        row = self._row if self._row is not None else len(self._plan.rows) - 1
        return self._plan.rows[row].setting

    def _run(self) -> None:
        while True:
            joining = self._next()
            if joining is None:
                self._fail([])
                return
            try:
                for sequence in joining:
                    self._decoder.join(sequence)
                    with self._changed:
                        self._totals.tokens += 1
                        self._totals.requests += self._decoder.ended
                    self._decoder.deliver()
                if self._decoder.sequences:
                    self._step()
            except Exception:
                LOG.exception("event=step_failed")
                self._fail([sequence for sequence in joining if sequence.slot < 0])

    def _next(self) -> list[DecodingSequence] | None:
        """Wait for work; return the requests that join now, None at the end."""
        with self._changed:
            while not (self._waiting or self._decoder.sequences or self._stopping):
                self._changed.wait()
            if self._stopping:
                return None
            free = self._decoder.slots - len(self._decoder.sequences)
            joining = [self._waiting.popleft() for _ in range(min(free, len(self._waiting)))]
            return [sequence for sequence in joining if not sequence.cancelled]

    def _step(self) -> None:
        decoding = len(self._decoder.sequences)
        with self._changed:
            plan = self._plan
            if plan is not None:
                self._row = plan.row({SIGNAL: float(decoding)}, self._row)
            setting = self._in_force()
        length, draft = int(setting[LENGTH]), str(setting[DRAFT])
        if plan is not None:
            length = self._fallback.length(decoding, length, draft)
        step = self._decoder.step(length, draft)
        if plan is not None:
            self._fallback.count(counts_of(step))
        with self._changed:
            self._totals.add(step)
            self._totals.requests += self._decoder.ended
        self._decoder.deliver()

    def _fail(self, joining: list[DecodingSequence]) -> None:
        """End every request as failed, without delivery; those that were joining are in no list."""
        with self._changed:
            ended = [*self._decoder.sequences, *joining, *self._waiting]
            self._decoder.sequences.clear()
            self._waiting.clear()
            self._totals.failed += len(ended)
        for sequence in ended:
            sequence.failed = True
            sequence.deliver([], True)


def counts_of(step: DecodingStep) -> StepCounts:
    """Return the counts of a step for the fallback."""
    return StepCounts(
        step.sequences,
        step.length,
        step.sequences * step.length,
        sum(step.accepted),
        max(step.step_s, 1e-9),
        step.draft,
    )
