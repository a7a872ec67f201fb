"""The engine's totals since its start; only the current numbers may decrease."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from itertools import zip_longest

from tests.engines.text.decoding import DecodingStep


@dataclass(slots=True)
class EngineTotals:
    """Counts and seconds.

    `decoding_s` adds up over sequences the seconds they decoded, `busy_s` those in which any did. `drafts`
    counts sequences that were drafted for, step by step, `by_position[i]` those of them that accepted more
    than i tokens; `passes` counts the passes that write tokens, sequence by sequence, with drafting or
    not. `draft_positions` counts the positions drafted in `draft_s`: a step that drafts s tokens has s.
    """

    tokens: int = 0
    arrived: int = 0
    failed: int = 0
    requests: int = 0
    steps: int = 0
    passes: int = 0
    drafts: int = 0
    drafted: int = 0
    accepted: int = 0
    by_position: list[int] = field(default_factory=list)
    draft_s: float = 0.0
    draft_positions: int = 0
    verify_s: float = 0.0
    step_s: float = 0.0
    decoding_s: float = 0.0
    near_ties: int = 0

    def since(self, before: EngineTotals) -> EngineTotals:
        """Return the totals since an earlier state."""
        return self.plus(before, -1)

    def plus(self, other: EngineTotals, sign: int = 1) -> EngineTotals:
        """Return the sum, or the difference with `sign` -1."""
        counts = {
            field.name: getattr(self, field.name) + sign * getattr(other, field.name)
            for field in fields(self)
            if field.name != "by_position"
        }
        both = zip_longest(self.by_position, other.by_position, fillvalue=0)
        return EngineTotals(**counts, by_position=[one + sign * two for one, two in both])

    def add(self, step: DecodingStep) -> None:
        """Add the counts of a step."""
        self.tokens += step.tokens
        self.steps += 1
        self.passes += step.sequences
        self.verify_s += step.verify_s
        self.step_s += step.step_s
        self.decoding_s += step.sequences * step.step_s
        self.near_ties += step.near_ties
        if step.length == 0:
            return
        self.drafts += step.sequences
        self.drafted += step.sequences * step.length
        self.accepted += sum(step.accepted)
        self.draft_s += step.draft_s
        self.draft_positions += step.length
        self.by_position += [0] * (step.length - len(self.by_position))
        for count in step.accepted:
            for position in range(count):
                self.by_position[position] += 1
