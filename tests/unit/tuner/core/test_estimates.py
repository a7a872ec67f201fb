"""Estimates, pooling and tails."""

from __future__ import annotations

import math
import random
from bisect import bisect_left
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.errors import raised
from tuner.core import (
    Better,
    Estimate,
    InvalidInput,
    Load,
    Measurement,
    MeasurementError,
    Metric,
    Origin,
    OverWindows,
    Quantity,
    bucketed_quantile,
    pooled,
    pooled_tail,
    quantile_estimate,
    quantity_of,
    refuse_negative,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "bad",
    [
        {"mean": math.nan},
        {"mean": math.inf},
        {"mean": 1e300},
        {"mean": -1e100},
        {"mean": 1.0, "stderr": 1e300},
        {"mean": 1.0, "stderr": -0.1},
        {"mean": 1.0, "stderr": math.nan},
        {"mean": 1.0, "n": 0},
        {"mean": 1.0, "low": 2.0},
        {"mean": 1.0, "high": 0.5},
    ],
)
def test_nonsense_is_not_an_estimate(bad: dict[str, float]) -> None:
    with pytest.raises(MeasurementError):
        Estimate(**bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("metric", ["energy_j", "power_w", "latency_p99_ms", "throughput_per_s"])
def test_a_negative_value_of_a_positive_quantity_is_refused(metric: str) -> None:
    with raised(MeasurementError, metric, "-1.0"):
        Measurement(estimates={metric: Estimate(-1.0)}, started_at=NOW, seconds=1.0)


def test_only_signed_or_undeclared_quantities_may_be_negative() -> None:
    declared = {"drift": Quantity("K", signed=True), "heat": Quantity("J")}
    refuse_negative({"drift": Estimate(-1.0), "anything": Estimate(-1.0)}, declared)
    with raised(MeasurementError, "-1"):
        refuse_negative({"heat": Estimate(-1.0)}, declared)


def test_a_metrics_meaning_is_standard_or_declared() -> None:
    assert Metric("energy_j").quantity == quantity_of("energy_j")
    frames = Quantity("frames/s", Better.MORE)
    assert Metric("frames", quantity=frames).quantity == frames
    with raised(InvalidInput, "frames_per_s"):
        Metric("frames_per_s")


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf])
def test_a_window_has_a_length(seconds: float) -> None:
    with pytest.raises(MeasurementError):
        Measurement(estimates={}, started_at=NOW, seconds=seconds)


@pytest.mark.parametrize(
    "bad",
    [
        {"completed": -1},
        {"failed": -1},
        {"utilisation": math.inf},
    ],
)
def test_nonsense_is_not_a_load(bad: dict[str, float]) -> None:
    with raised(MeasurementError, "load"):
        Load(**bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("circumstance", ["overhead_s", "foreign"])
def test_the_circumstances_of_a_window_are_finite(circumstance: str) -> None:
    with raised(MeasurementError, "nan"):
        Measurement(estimates={}, started_at=NOW, seconds=1.0, **{circumstance: math.nan})  # type: ignore[arg-type]


def test_a_p99_needs_299_samples_for_an_upper_bound() -> None:
    samples = [float(i) for i in range(299)]
    assert quantile_estimate(samples, 0.99).high == 298.0
    assert quantile_estimate(samples[:-1], 0.99).high == math.inf


def test_the_bounds_of_a_p99_cover_the_truth_at_their_stated_rate() -> None:
    rng = random.Random(7)
    truth = -math.log(0.01)
    above = below = 0
    for _ in range(400):
        estimate = quantile_estimate([rng.expovariate(1.0) for _ in range(600)], 0.99)
        above += truth <= estimate.high
        below += estimate.low <= truth
    # Order statistics are discrete, so the coverage is at least, not exactly, 95 %.
    assert above >= 0.93 * 400
    assert below >= 0.93 * 400


@given(st.lists(st.floats(0.1, 1e3), min_size=1, max_size=400), st.sampled_from([0.5, 0.9, 0.99]))
def test_a_quantile_is_one_of_the_samples_and_within_its_bounds(
    samples: list[float], quantile: float
) -> None:
    estimate = quantile_estimate(samples, quantile)
    assert estimate.mean in samples
    assert estimate.low <= estimate.mean <= estimate.high


def test_no_samples_or_broken_samples_give_no_quantile() -> None:
    with pytest.raises(MeasurementError):
        quantile_estimate([], 0.5)
    with pytest.raises(MeasurementError):
        quantile_estimate([1.0, math.inf], 0.5)


def test_pooling_weighs_by_precision() -> None:
    both = pooled([Estimate.of_mean(1.0, 0.1), Estimate.of_mean(1.3, 0.3)])
    assert 1.0 < both.mean < 1.1
    assert both.stderr >= 0.09


def test_pooling_agreeing_windows_narrows_the_bounds() -> None:
    one = Estimate.of_mean(1.0, 0.1, 10)
    four = pooled([one] * 4)
    assert four.mean == pytest.approx(1.0)
    assert four.n == 40
    assert four.stderr == pytest.approx(0.05)
    assert 0.5 < (four.high - 1.0) / (one.high - 1.0) < 0.75


def test_pooling_disagreeing_windows_does_not_average_the_disagreement_away() -> None:
    apart = pooled([Estimate.of_mean(1.0, 0.01), Estimate.of_mean(2.0, 0.01)])
    assert apart.stderr > 0.2
    assert apart.high > 1.9


def test_a_pool_of_means_covers_the_truth_also_when_windows_differ() -> None:
    rng = random.Random(5)
    for count in (2, 4):
        above = 0
        for _ in range(2000):
            windows = [Estimate.of_mean(rng.gauss(10.0, 0.2), 0.15) for _ in range(count)]
            above += pooled(windows).high >= 10.0
        assert above >= 0.93 * 2000


def test_a_pool_claims_no_more_than_its_weakest_member() -> None:
    mixed = [Estimate.of_mean(1.0, 0.1), Estimate.of_mean(1.0, 0.1, origin=Origin.ESTIMATED)]
    assert pooled(mixed).origin is Origin.ESTIMATED
    assert pooled_tail(mixed).origin is Origin.ESTIMATED


@pytest.mark.parametrize("count", [1, 2, 4])
def test_pooled_tails_stay_above_the_truth_for_a_service_with_a_rare_slow_mode(count: int) -> None:
    rng = random.Random(11)

    def latency() -> float:
        return rng.gauss(100.0, 5.0) if rng.random() < 0.012 else rng.gauss(10.0, 1.0)

    truth = sorted(latency() for _ in range(200_000))[198_000]
    below = 0
    for _ in range(300):
        windows = [quantile_estimate([latency() for _ in range(400)], 0.99) for _ in range(count)]
        below += pooled_tail(windows).high < truth
    assert below <= 0.08 * 300


def test_requests_that_share_a_batch_are_worth_one_draw() -> None:
    rng = random.Random(13)
    truth = -math.log(0.01)
    below = 0
    for _ in range(300):
        samples = [x for _ in range(400) for x in [rng.expovariate(1.0)] * 8]
        estimate = quantile_estimate(samples, 0.99, together=8)
        assert estimate.n == 400
        below += estimate.high < truth
    assert below <= 0.08 * 300
    assert quantile_estimate([1.0] * 2000, 0.99, together=8).high == math.inf


@pytest.mark.parametrize("metric", ["latency_p99_ms", "latency_p50_ms", "latency_p999_ms"])
def test_a_quantile_of_a_standard_metric_is_also_a_tail(metric: str) -> None:
    assert quantity_of(metric) == replace(quantity_of("latency_ms"), over_windows=OverWindows.TAIL)


@pytest.mark.parametrize("metric", ["power_w", "latency_mean_ms", "throughput_per_s"])
def test_a_mean_is_not_a_quantile(metric: str) -> None:
    assert not quantity_of(metric).tail


def test_an_unbounded_window_does_not_unbound_the_others() -> None:
    assert pooled([Estimate(1.0, 0.1, 10, 0.8, 1.2), Estimate(1.0, 0.1)]).high < 1.3
    assert pooled([Estimate(1.0, 0.1), Estimate(1.0, 0.1)]).high == math.inf


@given(st.lists(st.tuples(st.floats(0.1, 1e3), st.floats(1e-3, 10.0)), min_size=1, max_size=6))
def test_a_pool_lies_between_its_members(members: list[tuple[float, float]]) -> None:
    estimates = [Estimate.of_mean(mean, stderr) for mean, stderr in members]
    mean = pooled(estimates).mean
    assert min(m for m, _ in members) - 1e-9 <= mean <= max(m for m, _ in members) + 1e-9


@pytest.mark.parametrize("size", [1e-200, 1e-12, 1e99])
def test_a_pool_does_not_depend_on_the_unit(size: float) -> None:
    ones = [Estimate.of_mean(1.0, 0.1), Estimate.of_mean(1.3, 0.3)]
    scaled = [Estimate.of_mean(e.mean * size, e.stderr * size) for e in ones]
    assert pooled(scaled).mean == pytest.approx(pooled(ones).mean * size)


def test_there_is_nothing_to_pool_in_nothing() -> None:
    with pytest.raises(MeasurementError):
        pooled([])


class TestBucketedQuantile:
    EDGES = (1.0, 2.0, 5.0, 10.0, math.inf)

    @given(
        st.lists(st.floats(0.0, 20.0), min_size=1, max_size=400), st.sampled_from([0.5, 0.9, 0.99])
    )
    def test_the_bounds_enclose_those_of_the_samples(
        self, samples: list[float], quantile: float
    ) -> None:
        counts = [0] * len(self.EDGES)
        for sample in samples:
            counts[bisect_left(self.EDGES, sample)] += 1
        exact = quantile_estimate(samples, quantile)
        shown = bucketed_quantile(self.EDGES, counts, quantile)
        assert shown.n == exact.n
        assert shown.low <= exact.low
        assert shown.high >= exact.high
        inside = counts[-1] == 0
        assert not inside or abs(shown.mean - exact.mean) <= 5.0  # the width of the widest bucket

    def test_the_mean_is_linear_within_its_bucket(self) -> None:
        estimate = bucketed_quantile(self.EDGES, [0, 0, 100, 0, 0], 0.5)
        assert estimate.mean == pytest.approx(3.5)
        assert (estimate.low, estimate.high) == (2.0, 5.0)
        assert estimate.stderr == pytest.approx(1.5)

    def test_beyond_the_last_edge_nothing_is_claimed(self) -> None:
        estimate = bucketed_quantile(self.EDGES, [0, 0, 0, 0, 400], 0.99)
        assert (estimate.mean, estimate.low, estimate.high) == (10.0, 10.0, math.inf)

    def test_too_few_samples_have_no_upper_bound(self) -> None:
        assert bucketed_quantile(self.EDGES, [298, 0, 0, 0, 0], 0.99).high == math.inf
        assert bucketed_quantile(self.EDGES, [299, 0, 0, 0, 0], 0.99).high == 1.0

    @pytest.mark.parametrize(
        ("edges", "counts"),
        [
            ((), ()),
            ((1.0, math.inf), (0, 0)),
            ((1.0, 2.0), (1, 1)),
            ((2.0, 1.0, math.inf), (1, 1, 1)),
            ((1.0, math.inf), (1,)),
            ((1.0, math.inf), (2, -1)),
            ((math.inf,), (257,)),
        ],
    )
    def test_a_metric_that_is_not_a_histogram_is_refused(
        self, edges: tuple[float, ...], counts: tuple[int, ...]
    ) -> None:
        with pytest.raises(MeasurementError):
            bucketed_quantile(edges, counts, 0.5)


def test_stopping_once_the_windows_bound_a_tail_is_seldom_wrong() -> None:
    """Two to five windows at a setting whose p99 is truly at the limit, as confirming takes them."""
    chance = random.Random(4)
    limit = -math.log(0.01)

    def wrongly_shown() -> bool:
        windows = []
        for _ in range(5):
            samples = [chance.expovariate(1.0) for _ in range(300)]
            windows.append(quantile_estimate(samples, 0.99))
            if len(windows) > 1 and pooled_tail(windows).high < limit:
                return True
        return False

    assert sum(wrongly_shown() for _ in range(1000)) / 1000 < 0.05
