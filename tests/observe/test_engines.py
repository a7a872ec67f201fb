"""The figures of `observe` on real engines agree with the kernel's and the engines' own totals."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.observe.engines import Engine, real_llama_server, real_vllm
from tests.observe.sampled import sampled
from tests.observe.watched import observe

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

CALLERS = 4
LOAD = f"callers={CALLERS},prompt=32,output=4"
ENOUGH = 60
"""Requests in a window; a mean latency needs 40, which a busy host may not answer."""
CLIENT_MS = 10.0
"""The greatest time of a caller between an answer and its next request."""


@pytest.mark.parametrize("real", [real_llama_server, real_vllm])
def test_the_figures_of_a_real_engine_are_its_own(
    real: Callable[[Path], AbstractContextManager[Engine]], tmp_path: Path
) -> None:
    with real(tmp_path) as engine, sampled(engine.totals) as sampler:
        options = ["--device", "cpu", "--generate-load", LOAD, "--window", "20"]
        seen = observe(tmp_path, "--llm", engine.url, *options)
    assert len(seen["windows"]) == 3 and seen["settings_written"] == []
    for window in seen["windows"]:
        own, shown = sampler.within(window), window["metrics"]
        expected = {
            "cpu_time_ms": (1e3 * own["cpu_s"] / own["tokens"], 0.0),
            "throughput_per_s": (own["tokens"] / window["seconds"], 0.0),
        }
        if own["requests"] >= ENOUGH:
            # By Little's law: an engine's histogram lacks what its HTTP server takes, seconds when busy.
            in_flight_ms = 1e3 * CALLERS * window["seconds"]
            expected["latency_mean_ms"] = in_flight_ms / own["requests"], CLIENT_MS
            latency = shown["latency_mean_ms"]
            assert own["ms"] / own["requests"] <= latency["value"] + 2.0 * latency["stderr"], own
        for name, (value, floor) in expected.items():
            apart = abs(shown[name]["value"] - value)
            assert apart <= 2.0 * shown[name]["stderr"] + floor, (name, value, shown, own)
    for name in ("latency_p99_ms", "ttft_p99_ms", "tpot_p50_ms"):
        assert seen["metrics"][name]["origin"] == "measured", seen["metrics"]
