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

LOAD = "callers=4,prompt=32,output=4"
ENOUGH = 60
"""Requests in a window; a mean latency needs 40, which a busy host may not answer."""
HTTP_MS = 10.0
"""A client's share of a latency on loopback: to connect, send, read and parse."""


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
            expected["latency_mean_ms"] = own["ms"] / own["requests"], HTTP_MS
        for name, (value, floor) in expected.items():
            apart = abs(shown[name]["value"] - value)
            assert apart <= 2.0 * shown[name]["stderr"] + floor, (name, value, shown, own)
    for name in ("latency_p99_ms", "ttft_p99_ms", "tpot_p50_ms"):
        assert seen["metrics"][name]["origin"] == "measured", seen["metrics"]
