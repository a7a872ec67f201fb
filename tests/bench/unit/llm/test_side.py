"""A simulated LLM server as an agent sees it: opened by its name, measured, followed by signals."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.devices.catalogue import known_truth, open_device
from agents.target.side import Side
from agents.target.target import Target
from jouletune_bench.llm import SERVERS
from tests.contracts.actuator import SettableContract
from tests.contracts.meter import Later, MeterContract
from tests.errors import raised
from tuner.core import Clock, InvalidInput, Origin

SPECS = [f"{server}/{model}" for server, models in SERVERS.items() for model in models]
TRACE = "arrival_s,prompt_tokens,output_tokens\n0.5,200,20\n1.0,100,10\n2.0,50,1\n"


def opened(spec: str, state_dir: Path | None = None) -> Side:
    return open_device(f"simulated:{spec}", seed=1, state_dir=state_dir)


def clock_of(side: Side) -> Clock:
    assert side.clock is not None
    return side.clock


@pytest.fixture(params=SPECS)
def side(request: pytest.FixtureRequest) -> Side:
    return opened(f"{request.param}@0.5")


class TestActuator(SettableContract):
    """It keeps the contract of every actuator."""


class TestMeter(MeterContract):
    origin = Origin.SIMULATED
    """It keeps the contract of every meter."""

    @pytest.fixture
    def later(self, side: Side) -> Later:
        return lambda: clock_of(side).sleep(60.0)


def test_a_trace_is_played_and_repeated(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text(TRACE)
    side = opened(f"l20-llm@{tmp_path / 'trace.csv'}")
    window = side.meter.start()
    clock_of(side).sleep(30.0)
    shown = window.stop()
    assert shown.totals["items"] == pytest.approx(30.0, abs=2), "three in every three seconds"
    assert shown.estimates["arrival_rate_per_s"].mean == pytest.approx(1.0, abs=0.1)


def test_signals_are_exact_between_two_readings() -> None:
    side = opened("h100-llm@5")
    signals = Target((side,)).signals
    assert set(signals) == {
        "arrival_rate_per_s", "decoding_requests", "waiting", "tokens_per_s", "utilisation",
    }  # fmt: skip
    clock_of(side).sleep(60.0)
    before = {name: live.read() for name, live in signals.items()}
    clock_of(side).sleep(300.0)
    after = {name: live.read() for name, live in signals.items()}

    def mean(name: str) -> float:
        then, now = before[name].integral, after[name].integral
        assert then is not None and now is not None
        return (now - then) / 300.0

    assert mean("arrival_rate_per_s") == pytest.approx(5.0, rel=0.15)
    assert 0.0 < mean("utilisation") <= 1.0
    assert mean("decoding_requests") > 1.0
    assert mean("tokens_per_s") > 1000.0
    assert after["waiting"].present is not None


@pytest.mark.parametrize(
    "spec", ["h100-llm/gpt", "h100-llm@0", "h100-llm@-1", "h100-llm@nan", "h100-llm@no/such.csv"]
)
def test_an_unknown_server_or_model_is_refused(spec: str) -> None:
    with raised(InvalidInput):
        opened(spec)


@pytest.mark.parametrize(
    "text", ["", "arrival_s\n1\n", TRACE + "1.0,5,5\n", TRACE + "3.0,0,5\n", TRACE + "x,1,1\n"]
)
def test_a_file_that_is_not_a_trace_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "trace.csv").write_text(text)
    with raised(InvalidInput):
        opened(f"h100-llm@{tmp_path / 'trace.csv'}")


def test_no_setting_of_a_server_has_a_true_value() -> None:
    assert known_truth("simulated:h100-llm@3") is None


def test_a_setting_outlives_the_simulated_server(tmp_path: Path) -> None:
    opened("h100-llm@1", tmp_path).actuator.apply({"gpu.clock_mhz": 1200})
    assert opened("h100-llm@2", tmp_path).actuator.read() == {"gpu.clock_mhz": 1200}
