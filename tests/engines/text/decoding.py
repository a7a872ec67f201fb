"""Batched speculative decoding: requests join and leave between steps, drafts propose, the target decides.

Leviathan et al. 2023 and Chen et al. 2023 (arXiv 2302.01318) for one sequence; the batch as in Su et al.
2023 (arXiv 2310.18813): all sequences of a step get equally many drafted tokens, and each keeps its
accepted ones. Requests join as in Orca (Yu et al. 2022). Ours: a prompt is read in a separate pass
between two steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from tests.engines.text.acceptance import Accepted, chances, draw, greedy, sampled
from tests.engines.text.drafts import Draft, ModelDraft, NgramDraft
from tests.engines.text.model import KeyValueCache, TextModel
from tests.engines.text.sequence import DecodingSequence
from tuner.core import InvalidInput

NGRAM = "ngram"


@dataclass(frozen=True, slots=True)
class DecodingStep:
    """The counts of one step: `draft` proposed `length` tokens for each of `sequences`.

    `accepted` has the number of accepted tokens of each sequence, before the cut at a request's end;
    `tokens` is the number of written ones. `near_ties` counts first choices within 1e-4 of the second.
    """

    sequences: int
    length: int
    draft: str
    accepted: tuple[int, ...]
    tokens: int
    draft_s: float
    verify_s: float
    step_s: float
    near_ties: int


class Decoder:
    """A target and its drafts over one set of slots. One thread calls it.

    Raises InvalidInput where a draft has another vocabulary or a shorter context than the target.
    """

    def __init__(
        self,
        target: TextModel,
        drafts: Mapping[str, TextModel],
        slots: int,
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        for name, model in drafts.items():
            _check_draft(name, model, target)
        self._target = target
        weight = target.lm_head.weight
        self._device = weight.device
        self._cache = KeyValueCache(target.config, slots, weight.device, weight.dtype)
        models = {name: ModelDraft(name, model, slots) for name, model in drafts.items()}
        self.drafts: dict[str, Draft] = {**models, NGRAM: NgramDraft()}
        self.sequences: list[DecodingSequence] = []
        self.slots = slots
        self._undelivered: list[tuple[DecodingSequence, list[int], bool]] = []
        self._now = now

    @property
    def context(self) -> int:
        """The largest number of tokens of a sequence."""
        return self._target.config.context

    @torch.inference_mode()
    def join(self, sequence: DecodingSequence) -> None:
        """Read a prompt and write its first token; a slot must be free."""
        slot = len(self.sequences)
        prompt = torch.tensor([sequence.tokens], device=self._device)
        start = torch.zeros(1, dtype=torch.long, device=self._device)
        logits = self._target.extend(prompt, start, self._cache, slot)[0, -1]
        sequence.slot = slot
        self.sequences.append(sequence)
        token = (
            draw(chances(logits, sequence.temperature), sequence.random)
            if sequence.temperature > 0.0
            else int(logits.argmax())
        )
        self._take(sequence, [token])
        self._leave()

    @torch.inference_mode()
    def step(self, length: int, draft: str) -> DecodingStep:
        """Write the next tokens of every sequence; near a context's end fewer are drafted."""
        began = self._now()
        sequences = list(self.sequences)
        longest = max(len(s.tokens) for s in sequences)
        length = max(0, min(length, self.context - longest - 1))
        drafted, drawn_with = self._propose(sequences, length, draft)
        verified = self._now()
        last = torch.tensor([[s.tokens[-1]] for s in sequences], device=self._device)
        starts = torch.tensor([len(s.tokens) - 1 for s in sequences], device=self._device)
        logits = self._target.extend(torch.cat((last, drafted), 1), starts, self._cache)
        decided = self._decide(sequences, logits, drafted, drawn_with)
        verify_s = self._now() - verified
        if length:
            _remember(sequences, draft, length, decided)
        rows = drafted.tolist()
        tokens = sum(
            self._take(sequence, [*row[: one.count], one.following])
            for sequence, row, one in zip(sequences, rows, decided, strict=True)
        )
        self._leave()
        return DecodingStep(
            len(sequences),
            length,
            draft if length else "",
            tuple(one.count for one in decided),
            tokens,
            verified - began,
            verify_s,
            self._now() - began,
            sum(one.ties for one in decided),
        )

    def _propose(
        self, sequences: list[DecodingSequence], length: int, draft: str
    ) -> tuple[Tensor, Tensor | None]:
        if length == 0:
            nothing = torch.empty((len(sequences), 0), dtype=torch.long, device=self._device)
            return nothing, None
        drafted, drawn_with = self.drafts[draft].propose(sequences, length)
        return drafted.to(self._device), drawn_with

    def _decide(
        self,
        sequences: list[DecodingSequence],
        logits: Tensor,
        drafted: Tensor,
        drawn_with: Tensor | None,
    ) -> list[Accepted]:
        decided = greedy(logits, drafted)
        for row, sequence in enumerate(sequences):
            if sequence.temperature > 0.0:
                wanted = chances(logits[row], sequence.temperature)
                proposed = None if drawn_with is None else drawn_with[row]
                decided[row] = sampled(wanted, drafted[row], proposed, sequence.random)
        return decided

    def deliver(self) -> None:
        """Deliver the tokens written since the last call."""
        written, self._undelivered = self._undelivered, []
        for sequence, tokens, ended in written:
            sequence.deliver(tokens, ended)

    @property
    def ended(self) -> int:
        """The number of requests that have ended since the last delivery."""
        return sum(ended for _, _, ended in self._undelivered)

    def _take(self, sequence: DecodingSequence, tokens: list[int]) -> int:
        """Append tokens to a sequence, end it if it is complete, and return the number appended."""
        taken = sequence.take(tokens)
        if len(sequence.tokens) >= self.context:
            sequence.ended = True
        self._undelivered.append((sequence, taken, sequence.ended))
        return len(taken)

    def _leave(self) -> None:
        """Remove ended sequences; the last sequences move into their slots."""
        for sequence in [s for s in self.sequences if s.ended or s.cancelled]:
            last = self.sequences.pop()
            if last is not sequence:
                self._cache.move(last.slot, sequence.slot, len(last.tokens))
                for draft in self.drafts.values():
                    draft.move(last.slot, sequence.slot, len(last.tokens))
                last.slot = sequence.slot
                self.sequences[last.slot] = last


def _remember(
    sequences: list[DecodingSequence], draft: str, length: int, decided: list[Accepted]
) -> None:
    """Record the tokens that a draft has read: the accepted ones, except for the last drafted."""
    for sequence, one in zip(sequences, decided, strict=True):
        if draft in sequence.seen:
            sequence.seen[draft] += min(one.count, length - 1)


def _check_draft(name: str, draft: TextModel, target: TextModel) -> None:
    if draft.config.vocab != target.config.vocab:
        raise InvalidInput(
            f"the draft {name} has a vocabulary of {draft.config.vocab} tokens, the target one of "
            f"{target.config.vocab}",
            hint="choose a draft with the target's tokenizer",
        )
    if draft.config.context < target.config.context:
        raise InvalidInput(
            f"the draft {name} reads {draft.config.context} tokens, the target {target.config.context}",
            hint="choose a draft with as long a context",
        )
