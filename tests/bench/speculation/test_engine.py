from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the text engine needs torch")

from tests.bench.speculation.engine import DraftRates, estimates, misranked, segments
from tests.engines.text.decoding import DecodingStep
from tests.engines.text.timing import EngineWindow
from tests.engines.text.totals import EngineTotals


def window(rate: float) -> EngineWindow:
    totals = EngineTotals()
    for accepted in ((4, 0), (2, 4), (1, 1)):
        totals.add(DecodingStep(2, 4, "wide", accepted, 2 + sum(accepted), 0.004, 0.01, 0.015, 0))
    totals.tokens = round(rate)
    return EngineWindow(totals, 1.0, 0.0)


def test_windows_show_rates_shares_by_position_and_the_parts_of_a_step() -> None:
    shown = estimates([window(100.0), window(110.0)], 4)
    assert shown["throughput_per_s"].mean == 105.0 and shown["throughput_per_s"].stderr == 5.0
    assert [round(shown[f"accepted_at_{i}"].mean, 3) for i in (1, 2, 3, 4)] == [
        0.833,
        0.5,
        0.333,
        0.333,
    ]
    assert shown["verify_ms"].mean == pytest.approx(10.0)
    assert shown["draft_ms"].mean == pytest.approx(1.0)


def test_without_drafting_no_acceptance_is_reported() -> None:
    totals = EngineTotals()
    totals.add(DecodingStep(2, 0, "", (0, 0), 2, 0.0, 0.01, 0.01, 0))
    shown = estimates([EngineWindow(totals, 1.0, 0.0)] * 2, 0)
    assert set(shown) == {"throughput_per_s", "verify_ms"}


def test_a_traces_ups_and_downs_become_loads_from_one_to_the_most() -> None:
    arrivals = [*[0.1 * k for k in range(50)], *[5.0 + k for k in range(5)], 19.9]
    loads = segments(arrivals, 4, 32)
    assert loads == [32, 10, 1, 3] or (loads[0] == 32 and min(loads) == 1)
    assert segments([float(k) for k in range(40)], 4, 8) == [8, 8, 8, 8], "a steady one stays"


def test_only_differences_beyond_noise_are_misranked() -> None:
    def draft(name: str, predicted: float, measured: float, stderr: float = 1.0) -> DraftRates:
        return DraftRates(1, 4, name, predicted, measured, stderr)

    good, bad = draft("a", 100.0, 100.0), draft("b", 90.0, 80.0)
    assert misranked([good, bad]) == 0
    assert misranked([good, draft("b", 110.0, 80.0)]) == 1
    assert misranked([good, draft("b", 110.0, 99.0)]) == 0
