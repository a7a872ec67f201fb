from __future__ import annotations

from collections.abc import Sequence
from unittest.mock import Mock

import pytest
import torch
from scipy import stats

from tests.engines.text.decoding import Decoder, DecodingStep
from tests.engines.text.sequence import DecodingSequence
from tests.engines.text.tests.tiny import tiny
from tests.engines.text.tokenizer import EOS, VOCAB, encode
from tests.errors import raised
from tuner.core import InvalidInput

TARGET, SMALL = tiny(2, 64, 0), tiny(1, 32, 1)
PROMPTS = ("import os\ndef f", "class A:\n  ", "xx", "for i in range(", "A")
LENGTHS = (40, 17, 60, 33, 5)


def decoder(slots: int = 8) -> Decoder:
    return Decoder(TARGET, {"small": SMALL, "itself": TARGET}, slots)


def advance(run: Decoder, length: int, draft: str) -> DecodingStep:
    """Take a step and deliver what it wrote."""
    step = run.step(length, draft)
    run.deliver()
    return step


class Request:
    """A sequence, and its delivered tokens."""

    def __init__(self, prompt: str, most: int, temperature: float = 0.0, seed: int = 0) -> None:
        self.tokens: list[int] = []
        self.ends = 0
        self.sequence = DecodingSequence(
            encode(prompt), most, self.take, temperature, seed, ignores_eos=True
        )

    def take(self, tokens: list[int], ended: bool) -> None:
        self.tokens += tokens
        self.ends += ended


def written(length: int, draft: str, temperature: float = 0.0) -> tuple[list[Request], int]:
    """Let requests join one by one, between steps, and decode to the end; return them and the steps."""
    run, steps = decoder(), 0
    requests = [
        Request(prompt, most, temperature, seed)
        for seed, (prompt, most) in enumerate(zip(PROMPTS, LENGTHS, strict=True))
    ]
    for request in requests:
        run.join(request.sequence)
        advance(run, length, draft)
    while run.sequences:
        advance(run, length, draft)
        steps += 1
    return requests, steps


PLAIN, PLAIN_STEPS = written(0, "small")


@pytest.mark.parametrize(
    ("length", "draft"), [(1, "small"), (5, "small"), (3, "itself"), (8, "itself"), (4, "ngram")]
)
def test_greedy_decoding_writes_the_text_of_plain_decoding(length: int, draft: str) -> None:
    requests, _ = written(length, draft)
    assert [r.tokens for r in requests] == [r.tokens for r in PLAIN]
    assert [len(r.tokens) for r in requests] == list(LENGTHS)
    assert all(r.ends == 1 for r in requests)


def test_a_draft_that_is_right_saves_steps() -> None:
    _, steps = written(7, "itself")
    assert steps < PLAIN_STEPS / 4


@pytest.mark.parametrize("length", [1, 2, 5])
def test_a_draft_reads_each_token_once_for_any_number_of_accepted_ones(
    length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    itself = tiny(2, 64, 0)
    run = Decoder(TARGET, {"itself": itself}, 8)
    for prompt in PROMPTS[:3]:
        run.join(Request(prompt, 60).sequence)
    advance(run, length, "itself")
    extend = Mock(wraps=itself.extend)
    monkeypatch.setattr(itself, "extend", extend)
    for _ in range(3):
        assert advance(run, length, "itself").accepted == (length,) * 3
    assert extend.call_count == 3 * length


def test_drafts_and_lengths_change_from_step_to_step() -> None:
    run, request = decoder(), Request(PROMPTS[0], 60)
    run.join(request.sequence)
    for length, draft in 20 * ((3, "itself"), (0, ""), (2, "small"), (4, "ngram"), (5, "itself")):
        if run.sequences:
            step = advance(run, length, draft or "small")
            assert draft != "itself" or step.accepted == (length,), "its cache is as if never away"
    alone = decoder()
    plain = Request(PROMPTS[0], 60)
    alone.join(plain.sequence)
    while alone.sequences:
        advance(alone, 0, "small")
    assert request.tokens == plain.tokens


def test_a_step_reports_its_counts() -> None:
    run = decoder()
    for prompt in PROMPTS[:3]:
        run.join(Request(prompt, 50).sequence)
    step = advance(run, 3, "itself")
    assert (step.sequences, step.length, step.draft) == (3, 3, "itself")
    assert step.accepted == (3, 3, 3) and step.tokens == 12
    assert step.draft_s > 0.0 and step.verify_s > 0.0
    assert step.draft_s + step.verify_s <= step.step_s
    plain = advance(run, 0, "itself")
    assert (plain.length, plain.draft, plain.accepted, plain.tokens) == (0, "", (0, 0, 0), 3)


def test_the_coldest_sampling_writes_the_text_of_plain_decoding() -> None:
    requests, _ = written(3, "small", temperature=5e-324)
    assert [r.tokens for r in requests] == [r.tokens for r in PLAIN]


def test_at_the_end_of_the_context_less_is_drafted_and_nothing_overflows() -> None:
    run, request = decoder(), Request("y" * (TARGET.config.context - 6), 100)
    run.join(request.sequence)
    steps: list[DecodingStep] = []
    while run.sequences:
        steps.append(advance(run, 8, "itself"))
    assert len(request.sequence.tokens) == TARGET.config.context
    assert request.ends == 1 and steps[0].length < 8


def test_a_cancelled_request_leaves_and_the_others_go_on() -> None:
    run = decoder()
    requests = [Request(prompt, most) for prompt, most in zip(PROMPTS, LENGTHS, strict=True)]
    for request in requests:
        run.join(request.sequence)
    requests[1].sequence.cancelled = True
    while run.sequences:
        advance(run, 4, "itself")
    rest = [0, 2, 3, 4]
    assert [requests[k].tokens for k in rest] == [PLAIN[k].tokens for k in rest]


@pytest.mark.parametrize("draft", ["small", "ngram"])
def test_sampling_writes_each_text_as_often_as_plain_sampling(draft: str) -> None:
    """Chi-square over the third token of many requests, speculative against plain."""
    speculative, plain = (
        sampled_thirds(length, draft, first_seed) for length, first_seed in ((2, 0), (0, 10_000))
    )
    tokens = sorted(set(speculative) | set(plain))
    table = [[drawn.count(token) for token in tokens] for drawn in (speculative, plain)]
    common = [k for k in range(len(tokens)) if table[0][k] + table[1][k] >= 10]
    kept = [[row[k] for k in common] for row in table]
    assert len(common) > 3
    assert stats.chi2_contingency(kept).pvalue > 0.01


def sampled_thirds(length: int, draft: str, first_seed: int, count: int = 600) -> list[int]:
    drawn: list[int] = []
    for batch in range(count // 30):
        run = decoder(30)
        requests = [Request("ab", 3, 0.5, first_seed + 30 * batch + k) for k in range(30)]
        for request in requests:
            run.join(request.sequence)
        while run.sequences:
            advance(run, length, draft)
        drawn += [request.tokens[2] for request in requests]
    return drawn


def test_the_end_of_text_token_ends_a_request_and_the_rest_is_cut_off() -> None:
    pieces: list[tuple[list[int], bool]] = []
    sequence = DecodingSequence(
        encode("a"), 9, lambda tokens, ended: pieces.append((tokens, ended))
    )
    assert sequence.take([65, EOS, 66]) == [65, EOS]
    assert sequence.ended and sequence.tokens == [*encode("a"), 65, EOS]


def test_a_draft_of_another_vocabulary_or_a_shorter_context_is_refused() -> None:
    for draft in (tiny(1, 32, 0, vocab=VOCAB + 1), tiny(1, 32, 0, context=64)):
        with raised(InvalidInput, "other"):
            Decoder(TARGET, {"other": draft}, 2)


def texts(requests: Sequence[Request]) -> list[bytes]:
    return [bytes(t for t in r.tokens if t < 256) for r in requests]


def test_the_same_seed_draws_the_same_text() -> None:
    one, _ = written(3, "small", temperature=0.7)
    other, _ = written(3, "small", temperature=0.7)
    assert texts(one) == texts(other) and texts(one) != texts(PLAIN)
    assert torch.is_inference_mode_enabled() is False
