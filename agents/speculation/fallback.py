"""Decides when to stop drafting: a planned length is used only while it beats plain decoding.

A plan is made from past acceptance rates. If acceptance collapses (source text gives way to random
bytes), every step pays for rejected drafts. An engine must notice that within seconds, long before
the tuner measures again.
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
"""Acceptance counts also fade with this many sequence-steps, which take less time at large batches."""
ENOUGH_SEQUENCE_STEPS = 16
ENOUGH_S = 3.0
"""After this many sequence-steps, or this many seconds, drafting is judged again."""
CHECK_SHARE = 0.01
"""Share of the time spent on checking whether the other choice has become better."""
SOON = 0.35
"""After a proven gain drafting is retried once plain decoding took this share of the time since then, at
least as long as the try: a workload that changes in turns is met again. Later the share above holds."""
DOUBT = 1.0
"""Standard errors of acceptance in favour of the plan: a mild loss looks like noise."""
PLAIN_STEPS = 3
"""Plain steps at a batch size before the first drafted ones."""
DRAFTED_STEPS = 2
TIMES_KEPT = 9


@dataclass(frozen=True, slots=True)
class StepCounts:
    """The counts of one step: `requests` sequences decoding together at draft length `length`.

    `seconds` is the duration of a step without prompts. `drafted` and `accepted` are sums over its
    sequences; a drafter may propose fewer tokens than `length` for each.

    A proxy that only sees finished requests passes one request's counts, its number of steps as
    `sequence_steps`, and the mean duration of a step as `seconds`.

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
        """Number of sequence-steps behind the counts; by default those of one step."""
        return self.sequence_steps or self.requests

    @property
    def elapsed_s(self) -> float:
        """Engine time of the counts in seconds, shared with the sequences decoding beside them."""
        return self.seconds * self.shown_by / self.requests


@dataclass(slots=True)
class _Acceptance:
    """Fading counts of one draft and length since the last judgement."""

    length: int
    accepted: float = 0.0
    weight: float = 0.0
    squared: float = 0.0
    sequence_steps: int = 0
    drafting_s: float = 0.0
    plain_s: float = 0.0
    since_success_s: float = math.inf

    def add(self, step: StepCounts) -> None:
        """Add the counts of a drafted step, after the earlier counts have faded."""
        n = step.shown_by
        fade = math.exp(-max(n / MEMORY_SEQUENCE_STEPS, step.elapsed_s / MEMORY_S))
        self.drafting_s += 0.0 if self.judged else step.elapsed_s
        self.since_success_s += step.elapsed_s
        self.accepted = fade * self.accepted + step.accepted
        self.weight = fade * self.weight + n
        self.squared = fade**2 * self.squared + n
        self.sequence_steps += n
        self.plain_s = 0.0

    @property
    def judged(self) -> bool:
        """Whether enough sequence-steps or seconds are counted to judge the length."""
        return self.sequence_steps >= ENOUGH_SEQUENCE_STEPS or self.drafting_s >= ENOUGH_S

    def tokens(self, doubt: float) -> float:
        """Tokens per sequence-step, this number of standard errors above the mean.

        The error uses the largest variance that l drafts can have. Of few steps the value is at least that
        with one further step whose drafts are all accepted.
        """
        mean = self.accepted / self.weight
        most_sd = math.sqrt(max(0.0, mean * (self.length - mean)))
        bound = mean + doubt * most_sd * math.sqrt(self.squared) / self.weight
        further = 0.0 if self.judged else (self.accepted + self.length) / (self.weight + 1.0)
        return 1.0 + max(bound, further)

    def add_plain(self, seconds: float) -> None:
        """Add the seconds of a plain step in place of a drafted one."""
        self.plain_s += seconds
        self.since_success_s += seconds

    @property
    def due(self) -> bool:
        """Whether drafting should be tried again."""
        soon_s = max(self.drafting_s, SOON * self.since_success_s)
        return self.plain_s >= min(soon_s, self.drafting_s / CHECK_SHARE)

    def forget(self) -> None:
        """Drop all counts, before drafting is tried again."""
        self.accepted = self.weight = self.squared = self.drafting_s = self.plain_s = 0.0
        self.sequence_steps = 0


@dataclass(slots=True)
class _StepTimes:
    """The latest durations of a step at one batch and length; their median, since machines are shared."""

    last: deque[float] = field(default_factory=lambda: deque(maxlen=TIMES_KEPT))

    @property
    def seconds(self) -> float:
        """The median duration of the latest steps, in seconds."""
        return median(self.last)


class SpeculationFallback:
    """Choose between the planned length and 0 at every step, from the steps before it.

    Feed it every step. A length is used while its accepted tokens make up for its longer steps,
    compared with plain steps at this batch (rounded up to a power of two). Otherwise the length is
    0, and drafting is retried: sooner after a recent gain, later for about 1 % of the time. While
    drafting, plain steps are timed for at most the same share.

    All constants are our own choice, for a loss under 5 % and a collapse detected within 10 s.
    """

    def __init__(self) -> None:
        self._acceptance: dict[tuple[str, int], _Acceptance] = {}
        self._times: dict[tuple[int, str, int], _StepTimes] = {}
        self._unchecked_s: dict[int, float] = {}
        self._planned: tuple[str, int] | None = None
        self._before: tuple[str, int] | None = None

    def length(self, requests: int, planned: int, draft: str = "") -> int:
        """Return the length for the next step of `requests` sequences: the planned one, or 0.

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
        if drafted is None or len(drafted.last) < DRAFTED_STEPS or not drafting.sequence_steps:
            return planned
        faster = plain.seconds / drafted.seconds
        gain = drafting.tokens(DOUBT) * faster
        if drafting.judged and drafting.tokens(-DOUBT) * faster >= 1.0:
            drafting.since_success_s = 0.0
        if gain >= 1.0:
            due = CHECK_SHARE * self._unchecked_s.get(batch, 0.0) >= gain * plain.seconds
            return 0 if due else planned
        if not drafting.due:
            return 0
        drafting.forget()
        return planned

    def count(self, step: StepCounts) -> None:
        """Add the counts of one step."""
        batch = _batch(step.requests)
        draft = step.draft if step.length else ""
        own = (draft, step.length)
        # The first step after a change also processes tokens that the draft model has not seen.
        if step.length == 0 or self._before == own or step.sequence_steps:
            self._times.setdefault((batch, *own), _StepTimes()).last.append(step.seconds)
        self._before = own
        if step.length:
            self._unchecked_s[batch] = self._unchecked_s.get(batch, 0.0) + step.elapsed_s
            self._drafting(draft, step.length).add(step)
            return
        self._unchecked_s[batch] = 0.0
        if self._planned is not None:
            self._drafting(*self._planned).add_plain(step.elapsed_s)

    def _drafting(self, draft: str, length: int) -> _Acceptance:
        """Return the acceptance counts of a draft and length; new ones are empty."""
        return self._acceptance.setdefault((draft, length), _Acceptance(length))


def _batch(requests: int) -> int:
    """Round a number of sequences up to a power of two; steps up to it take about the same time."""
    return 1 << (requests - 1).bit_length()
