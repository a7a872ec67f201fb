"""Readings; raw samples stay within a request and a stored window, however much was read."""

from __future__ import annotations

import math
import random
import zlib

import pytest

from tests.errors import raised
from tuner.core import MOST_VALUES, Latencies, MeasurementError, Reading, WindowSamples


@pytest.mark.parametrize("total", [-0.5, math.nan, math.inf, 1e200])
def test_a_total_that_nothing_can_add_up_to_is_refused_by_name(total: float) -> None:
    with raised(MeasurementError, "energy_j"):
        Reading({"energy_j": total})


def sampled(readings: int, totals: int, latencies: Latencies) -> WindowSamples:
    chance = random.Random(7)
    return WindowSamples(
        clock_s=(0.0, 10.0),
        wall_s=(1e9, 1e9 + 10.0),
        seconds=tuple(chance.random() * 1e4 for _ in range(readings)),
        totals={f"t{n}": tuple(chance.random() for _ in range(readings)) for n in range(totals)},
        ratios={"power_w": ("t0", "seconds", 1.0)},
        latencies=latencies,
    )


def each(count: int) -> Latencies:
    chance = random.Random(8)
    return Latencies.of([chance.random() * 100.0 for _ in range(count)])


BUCKETS = Latencies(edges_ms=tuple(map(float, range(20_000))), counts=(1,) * 20_001)


@pytest.mark.parametrize(
    ("readings", "totals", "latencies"),
    [(256, 40, each(4_096)), (2_048, 0, each(4_096)), (20_000, 3, each(10)), (10, 15, BUCKETS)],
)
def test_a_large_window_fits_a_request_and_its_row(
    readings: int, totals: int, latencies: Latencies
) -> None:
    pytest.importorskip("sqlalchemy", reason="no tuner runs on Python 3.10")
    from db.sql.windows import MOST_BYTES, SAMPLES
    from tuner.wire import Message

    kept = sampled(readings, totals, latencies).bounded()
    text = SAMPLES.dump_json(kept)
    assert len(text) < Message.most_bytes / 2 and len(zlib.compress(text)) <= MOST_BYTES
    assert len(kept.seconds) in (1, readings) and kept.totals.keys() == {
        f"t{n}" for n in range(totals)
    }


def test_a_usual_window_keeps_all_and_a_cut_one_claims_no_ratio() -> None:
    usual = sampled(10, 15, each(4_096))
    assert usual.bounded() is usual
    cut = sampled(MOST_VALUES, 2, each(10)).bounded()
    assert cut.ratios == {} and cut.latencies == each(10)
    assert cut.totals["t0"] == sampled(MOST_VALUES, 2, each(10)).totals["t0"][-1:]
