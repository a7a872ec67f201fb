"""When to stop drafting: a planned length is used only while it gains over plain decoding.

A plan is made from the acceptance of the past. Where that collapses (source text gives way to random
bytes), every step pays for drafts that nobody accepts; an engine has to notice within seconds, long
before the tuner measures again.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from statistics import median

from tuner.errors import InvalidInput

MEMORY_S = 2.5
"""Acceptance counts fade with this time constant, so that a collapse shows within 10 s."""
MEMORY_SEQUENCE_STEPS = 256.0
"""They fade with this many sequence-steps, too, which at large batches take less time."""
ENOUGH_SEQUENCE_STEPS = 16
ENOUGH_S = 3.0
"""After so many sequence-steps, or so long, drafting is judged anew."""
CHECK_SHARE = 0.01
"""The share of the time that goes into looking whether the other choice has become the better one."""
DOUBT = 1.0
"""Standard errors of the acceptance in favour of the plan: a mild loss is not told from chance."""
PLAIN_STEPS = 3
"""Plain steps at a batch before the first drafted ones there."""
DRAFTED_STEPS = 2
TIMES_KEPT = 9


@dataclass(frozen=True, slots=True)
class StepCounts:
    """What one step showed of `requests` sequences decoding together with the `length` it was told.

    `seconds` is the time of a step without prompts, `drafted` and `accepted` are sums over its
    sequences; a drafter may propose fewer tokens than `length` for each. A proxy that learns of a
    finished request only gives that request's counts, its steps as `sequence_steps` and the mean time
    of one as `seconds`.

    Raises:
        InvalidInput: counts that no step can have.
    """

    requests: int
    length: int
    drafted: int
    accepted: int
    seconds: float
    draft: str = ""
    sequence_steps: int = 0

    def __post_init__(self) -> None:
        counted = self.requests >= 1 and self.length >= 0 and self.sequence_steps >= 0
        drafted = 0 <= self.accepted <= self.drafted <= self.length * self.shown_by
        if not (counted and drafted and math.isfinite(self.seconds) and self.seconds > 0.0):
            raise InvalidInput(
                f"no step of {self.requests} sequences and length {self.length} drafts {self.drafted} "
                f"tokens, has {self.accepted} accepted and takes {self.seconds} s",
                hint="give differences of counters that were not reset, and the step's seconds",
            )

    @property
    def shown_by(self) -> int:
        """Sequence-steps behind the counts: those of one step, where it is not said."""
        return self.sequence_steps or self.requests

    @property
    def elapsed_s(self) -> float:
        """The engine's time that the counts took, shared with the sequences beside them."""
        return self.seconds * self.shown_by / self.requests


@dataclass(slots=True)
class _Acceptance:
    """Fading counts of one draft and length, since it was last judged anew."""

    length: int
    accepted: float = 0.0
    weight: float = 0.0
    squared: float = 0.0
    sequence_steps: int = 0
    drafting_s: float = 0.0
    plain_s: float = 0.0

    def add(self, step: StepCounts) -> None:
        n = step.shown_by
        fade = math.exp(-max(n / MEMORY_SEQUENCE_STEPS, step.elapsed_s / MEMORY_S))
        self.drafting_s += 0.0 if self.judged else step.elapsed_s
        self.accepted = fade * self.accepted + step.accepted
        self.weight = fade * self.weight + n
        self.squared = fade**2 * self.squared + n
        self.sequence_steps += n
        self.plain_s = 0.0

    @property
    def judged(self) -> bool:
        return self.sequence_steps >= ENOUGH_SEQUENCE_STEPS or self.drafting_s >= ENOUGH_S

    @property
    def tokens(self) -> float:
        """Tokens per sequence-step at best, within the doubt: the most that l drafts can scatter."""
        mean = self.accepted / self.weight
        most_sd = math.sqrt(max(0.0, mean * (self.length - mean)))
        return 1.0 + mean + DOUBT * most_sd * math.sqrt(self.squared) / self.weight

    def forget(self) -> None:
        self.accepted = self.weight = self.squared = self.drafting_s = self.plain_s = 0.0
        self.sequence_steps = 0


@dataclass(slots=True)
class _StepTimes:
    """The last times of a step at one batch and length; a median, since machines are shared."""

    last: deque[float] = field(default_factory=lambda: deque(maxlen=TIMES_KEPT))

    @property
    def seconds(self) -> float:
        return median(self.last)


class SpeculationFallback:
    """Chooses between the planned length and 0 at every step, from what the steps before showed.

    Feed it every step. A length is used while its accepted tokens make up for its time against that
    of plain steps at this batch (a power of two); else 0, with drafting tried again for about a
    hundredth of the time. Meanwhile plain steps are timed for no more than that. All constants are
    our own choice, for a loss under 5 % and a collapse seen within 10 s.
    """

    def __init__(self) -> None:
        self._acceptance: dict[tuple[str, int], _Acceptance] = {}
        self._times: dict[tuple[int, str, int], _StepTimes] = {}
        self._unchecked_s: dict[int, float] = {}
        self._planned: tuple[str, int] | None = None
        self._before: tuple[str, int] | None = None

    def length(self, requests: int, planned: int, draft: str = "") -> int:
        """Return the length for the next step of so many sequences: the planned one, or 0.

        Raises:
            InvalidInput: no sequence, or a negative length.
        """
        if requests < 1 or planned < 0:
            raise InvalidInput(f"{requests} sequences cannot decode with length {planned}")
        self._planned = (draft, planned) if planned else None
        if not planned:
            return 0
        batch = _batch(requests)
        plain = self._times.get((batch, "", 0))
        if plain is None or len(plain.last) < PLAIN_STEPS:
            return 0
        drafting = self._drafting(draft, planned)
        drafted = self._times.get((batch, draft, planned))
        if drafted is None or len(drafted.last) < DRAFTED_STEPS or not drafting.judged:
            return planned
        gain = drafting.tokens * plain.seconds / drafted.seconds
        if gain >= 1.0:
            due = CHECK_SHARE * self._unchecked_s.get(batch, 0.0) >= gain * plain.seconds
            return 0 if due else planned
        if CHECK_SHARE * drafting.plain_s < drafting.drafting_s:
            return 0
        drafting.forget()
        return planned

    def count(self, step: StepCounts) -> None:
        """Take in what a step showed."""
        batch = _batch(step.requests)
        draft = step.draft if step.length else ""
        own = (draft, step.length)
        # The first step after a change also catches up on what the draft has not seen.
        if step.length == 0 or self._before == own or step.sequence_steps:
            self._times.setdefault((batch, *own), _StepTimes()).last.append(step.seconds)
        self._before = own
        if step.length:
            self._unchecked_s[batch] = self._unchecked_s.get(batch, 0.0) + step.elapsed_s
            self._drafting(draft, step.length).add(step)
            return
        self._unchecked_s[batch] = 0.0
        if self._planned is not None:
            self._drafting(*self._planned).plain_s += step.elapsed_s

    def _drafting(self, draft: str, length: int) -> _Acceptance:
        return self._acceptance.setdefault((draft, length), _Acceptance(length))


def _batch(requests: int) -> int:
    """Return the power of two at or above a number of sequences: steps up to it take alike long."""
    return 1 << (requests - 1).bit_length()
