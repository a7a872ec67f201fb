"""The accepted tokens at each length, from shares by position or from a mean alone."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.speculation.acceptance import (
    AcceptedLength,
    acceptance_rate,
    geometric,
    observed_lengths,
    pooled,
    position,
)
from tests.errors import raised
from tuner.core import Estimate, InvalidInput


def by_position(shares: list[float], steps: int = 1000) -> dict[str, Estimate]:
    return {
        position(i): Estimate.of_mean(p, math.sqrt(p * (1 - p) / steps), steps)
        for i, p in enumerate(shares, start=1)
    }


def test_one_window_informs_about_every_shorter_length() -> None:
    lengths = observed_lengths(by_position([0.8, 0.5, 0.4]), 3)
    assert [a.mean for a in lengths] == pytest.approx([0.8, 1.3, 1.7])


def test_the_standard_error_is_that_of_the_counted_steps() -> None:
    rng, steps, rate, means = random.Random(1), 400, 0.7, []
    for _ in range(300):
        runs = [next((k for k in range(4) if rng.random() >= rate), 4) for _ in range(steps)]
        means.append(sum(runs) / steps)
    spread = math.sqrt(sum((m - geometric(rate, 4)) ** 2 for m in means) / len(means))
    shares = [rate**i for i in range(1, 5)]
    assert observed_lengths(by_position(shares, steps), 4)[-1].stderr == pytest.approx(
        spread, rel=0.15
    )


def test_positions_after_a_gap_are_left_out() -> None:
    shown = by_position([0.8, 0.5, 0.4])
    del shown[position(2)]
    assert len(observed_lengths(shown, 3)) == 1


def test_a_mean_alone_predicts_the_other_lengths_with_more_doubt() -> None:
    mean = geometric(0.8, 4)
    lengths = observed_lengths({"accepted_per_step": Estimate.of_mean(mean, 0.01, 500)}, 4)
    assert [a.mean for a in lengths] == pytest.approx([geometric(0.8, s) for s in (1, 2, 3, 4)])
    assert lengths[0].stderr > lengths[3].stderr == pytest.approx(0.01)


@given(st.floats(0.0, 1.0), st.integers(1, 8))
def test_a_rate_is_recovered_from_its_accepted_tokens(rate: float, length: int) -> None:
    acceptance = acceptance_rate(geometric(rate, length), length)
    assert geometric(acceptance, length) == pytest.approx(geometric(rate, length), abs=1e-9)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_nothing_or_everything_accepted_is_known_with_some_doubt(share: float) -> None:
    lengths = observed_lengths(by_position([share] * 4, 100), 4)
    assert [a.mean for a in lengths] == pytest.approx([share * s for s in (1, 2, 3, 4)])
    assert all(a.stderr > 0.0 for a in lengths)
    mean = observed_lengths({"accepted_per_step": Estimate.of_mean(4 * share, 0.0, 100)}, 4)
    assert mean[-1].mean == pytest.approx(4 * share)
    assert mean[-1].stderr > 0.0


def test_an_engine_without_metrics_is_not_an_error() -> None:
    assert observed_lengths({"throughput_per_s": Estimate.of_mean(10.0, 1.0)}, 4) == ()
    assert observed_lengths(by_position([0.5]), 0) == ()


@pytest.mark.parametrize(
    "shares", [[1.3], [-0.4], [0.2, 0.9]], ids=["over one", "below none", "rising"]
)
def test_shares_that_cannot_be_are_refused_with_the_likely_cause(shares: list[float]) -> None:
    shown = {position(i): Estimate.of_mean(p, 0.01, 99) for i, p in enumerate(shares, start=1)}
    with raised(InvalidInput, "reset"):
        observed_lengths(shown, len(shares))


@pytest.mark.parametrize("mean", [-0.5, 4.5])
def test_more_accepted_than_drafted_tokens_are_refused(mean: float) -> None:
    with raised(InvalidInput, "reset"):
        observed_lengths({"accepted_per_step": Estimate.of_mean(mean, 0.01, 99)}, 4)


def test_windows_of_one_text_are_pooled_and_known_better() -> None:
    one = observed_lengths(by_position([0.81, 0.6]), 2)
    other = observed_lengths(by_position([0.79, 0.62, 0.5]), 3)
    lengths = pooled([one, other])
    assert [a.mean for a in lengths[:2]] == pytest.approx([0.8, 1.41], abs=0.01)
    assert lengths[0].stderr < one[0].stderr
    assert lengths[2] == other[2]


def test_a_window_that_contradicts_those_before_replaces_them() -> None:
    text, noise = (
        observed_lengths(by_position([0.9, 0.8]), 2),
        observed_lengths(by_position([0.1, 0.01]), 2),
    )
    assert pooled([text, text, noise]) == noise


def test_scatter_alone_replaces_no_length() -> None:
    rng, replaced = random.Random(3), 0
    for _ in range(200):
        windows = [
            observed_lengths(
                by_position([sum(rng.random() < 0.7 for _ in range(500)) / 500], 500), 1
            )
            for _ in range(5)
        ]
        replaced += pooled(windows)[0].stderr > 0.7 * windows[0][0].stderr
    assert replaced <= 2


def test_a_pool_keeps_longer_lengths_when_shorter_windows_follow_them() -> None:
    long, short = (
        observed_lengths(by_position([0.8, 0.6, 0.5]), 3),
        observed_lengths(by_position([0.8]), 1),
    )
    assert len(pooled([long, short])) == 3
    assert isinstance(pooled([long])[0], AcceptedLength)
