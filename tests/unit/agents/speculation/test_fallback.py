"""An engine that calls the fallback at every step, on a machine with known step times."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.speculation.fallback import SpeculationFallback, StepCounts
from tests.profiles import examples
from tuner.core import InvalidInput

POOR = 0.1


@dataclass(frozen=True)
class Engine:
    """Sequences that decode together; each drafted token is accepted with a probability."""

    requests: int
    planned: int
    plain_s: float
    drafted_s: float
    noise: float = 0.05

    def run(
        self, accepts: Callable[[float], float], seconds: float, seed: int = 0, turn: int = 0
    ) -> list[tuple[float, int, int]]:
        """Return the end, the length and the tokens of every step; every second turn accepts `POOR`."""
        rng, fallback, now, before = random.Random(seed), SpeculationFallback(), 0.0, 0
        steps: list[tuple[float, int, int]] = []
        while now < seconds:
            length = fallback.length(self.requests, self.planned)
            share = POOR if turn and len(steps) // turn % 2 else accepts(now)
            accepted = sum(self._accepted(length, share, rng) for _ in range(self.requests))
            took = (self.drafted_s if length else self.plain_s) * rng.lognormvariate(0, self.noise)
            took *= 1.5 if length and not before else 1.0
            fallback.count(
                StepCounts(self.requests, length, length * self.requests, accepted, took)
            )
            now, before = now + took, length
            steps.append((now, length, self.requests + accepted))
        return steps

    def against_off(self, steps: list[tuple[float, int, int]]) -> float:
        """Return the ratio of tokens per second to those of plain decoding."""
        return sum(n for _, _, n in steps) / steps[-1][0] * self.plain_s / self.requests

    def gain(self, accepts: float) -> float:
        """Return the true gain of the planned length over plain decoding."""
        tokens = sum(accepts**i for i in range(self.planned + 1))
        return tokens * self.plain_s / self.drafted_s

    def _accepted(self, length: int, accepts: float, rng: random.Random) -> int:
        return next((k for k in range(length) if rng.random() >= accepts), length)


TURNING = (
    Engine(1, 4, 0.02, 0.03), Engine(1, 8, 0.1, 0.25), Engine(4, 4, 0.02, 0.03),
    Engine(8, 4, 0.03, 0.045), Engine(16, 4, 0.03, 0.05), Engine(32, 4, 0.04, 0.07),
)  # fmt: skip


@pytest.mark.parametrize("engine", TURNING)
@pytest.mark.parametrize(("turn", "least"), [(50, 0.93), (300, 0.88)])
def test_acceptance_in_turns_is_followed(engine: Engine, turn: int, least: float) -> None:
    seconds = 1500 * (engine.plain_s + engine.drafted_s)
    steps = engine.run(lambda _: 0.9, seconds, turn=turn)
    always = (engine.gain(0.9) + engine.gain(POOR)) / 2.0
    assert engine.against_off(steps) >= least * always


def test_a_collapse_after_a_gain_costs_little_of_plain_decoding() -> None:
    for engine in TURNING:
        steps = engine.run(lambda at: 0.9 if at < 20.0 else POOR, 20.0 + 5000 * engine.plain_s)
        after = [step for step in steps if step[0] > 20.0]
        rate = sum(n for _, _, n in after) / (after[-1][0] - after[0][0])
        assert rate * engine.plain_s / engine.requests >= 0.95


ENGINES = st.builds(
    Engine,
    requests=st.sampled_from([1, 2, 5, 16, 32]),
    planned=st.integers(1, 8),
    plain_s=st.sampled_from([0.01, 0.05, 0.2]),
    drafted_s=st.just(0.0),
)


@settings(max_examples=examples(0.4))
@given(ENGINES, st.floats(1.05, 4.0), st.floats(0.0, 1.0), st.integers(0, 99))
def test_the_fallback_never_loses_more_than_a_twentieth_to_plain_decoding(
    engine: Engine, slower: float, accepts: float, seed: int
) -> None:
    slow = Engine(engine.requests, engine.planned, engine.plain_s, slower * engine.plain_s)
    steps = slow.run(lambda _: accepts, 60.0, seed)
    noise = 3.0 * slow.noise / math.sqrt(len(steps))
    assert slow.against_off(steps) >= 0.95 - noise


@pytest.mark.parametrize("accepts", [0.7, 0.9, 1.0])
@pytest.mark.parametrize("requests", [1, 4, 32])
def test_a_length_that_gains_is_used_nearly_always(requests: int, accepts: float) -> None:
    engine = Engine(requests, 4, 0.04, 0.07)
    steps = engine.run(lambda _: accepts, 60.0)
    assert engine.against_off(steps) >= 0.97 * engine.gain(accepts)


@pytest.mark.parametrize(
    "engine", [Engine(1, 6, 0.02, 0.03), Engine(1, 8, 0.1, 0.25), Engine(32, 4, 0.2, 0.4)]
)
def test_a_collapse_of_acceptance_ends_drafting_within_ten_seconds(engine: Engine) -> None:
    steps = engine.run(lambda at: 0.9 if at < 60.0 else 0.0, 120.0)
    late = [length for end, length, _ in steps if end > 70.0]
    assert sum(length > 0 for length in late) < 0.1 * len(late)
    first, after = (
        [length for end, length, _ in steps if low < end < low + 20.0] for low in (30.0, 70.0)
    )
    assert sum(first) > 0.9 * engine.planned * len(first)
    assert engine.against_off(steps) > 1.0
    assert len(after) > 0


def test_drafting_comes_back_when_acceptance_does() -> None:
    engine = Engine(4, 6, 0.02, 0.04)
    steps = engine.run(lambda at: 0.0 if 20.0 < at < 60.0 else 0.9, 120.0)
    late = [length for end, length, _ in steps if end > 90.0]
    assert sum(length > 0 for length in late) > 0.95 * len(late)


def test_a_plan_without_drafting_is_followed_without_any_trial_of_it() -> None:
    fallback = SpeculationFallback()
    for _ in range(500):
        assert fallback.length(3, 0) == 0
        fallback.count(StepCounts(3, 0, 0, 0, 0.1))


def test_batches_that_change_at_every_step_are_judged_too() -> None:
    fallback = SpeculationFallback()
    lengths = []
    for step in range(4000):
        requests = (3, 5)[step % 2]
        length = fallback.length(requests, 4)
        fallback.count(StepCounts(requests, length, length * requests, 0, 0.04 if length else 0.02))
        lengths.append(length)
    assert sum(n > 0 for n in lengths[500:]) < 0.05 * 3500


def test_results_of_another_draft_do_not_rule_this_one_out() -> None:
    fallback = SpeculationFallback()
    for _ in range(300):
        length = fallback.length(4, 4, "bad")
        fallback.count(StepCounts(4, length, 4 * length, 0, 0.04 if length else 0.02, "bad"))
    assert fallback.length(4, 4, "bad") == 0
    assert fallback.length(4, 4, "good") == 4


def test_a_finished_request_counts_for_all_its_steps() -> None:
    fallback = SpeculationFallback()
    for _ in range(10):
        length = fallback.length(2, 4)
        drafted = 50 * length
        fallback.count(
            StepCounts(2, length, drafted, 0, 0.04 if length else 0.02, sequence_steps=50)
        )
    assert fallback.length(2, 4) == 0


@pytest.mark.parametrize(
    "counts",
    [
        (0, 4, 0, 0, 0.1),
        (1, -1, 0, 0, 0.1),
        (1, 4, 5, 0, 0.1),
        (1, 4, 4, 5, 0.1),
        (1, 4, 4, -3, 0.1),
        (1, 4, 4, 2, 0.0),
        (1, 4, 4, 2, math.nan),
        (1, 4, 4, 2, math.inf),
    ],
)
def test_impossible_counts_of_a_step_are_refused(counts: tuple[int, int, int, int, float]) -> None:
    with pytest.raises(InvalidInput, match="no step of"):
        StepCounts(*counts)


@pytest.mark.parametrize(("requests", "planned"), [(0, 4), (3, -1)])
def test_an_impossible_step_is_refused(requests: int, planned: int) -> None:
    with pytest.raises(InvalidInput, match="cannot decode"):
        SpeculationFallback().length(requests, planned)
