"""vLLM and SGLang by the files of docs/examples, against fakes that follow their documentation."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import pytest

from agents.target.side import Accepted, FallsBack, FollowsPlans, OffersLoad, Restartable, Side
from agents.workloads import open_workload
from agents.workloads.http.attach import FALL_BACK
from agents.workloads.http.table_fallback import ENOUGH_STEPS, LOOK_S, RETRY_SHARE
from tests.contracts.actuator import SettableContract
from tests.errors import raised
from tests.plugins.examples import documented
from tests.unit.agents.workloads.http.engines import (
    ACCEPTED,
    DRAFT,
    STEPS,
    Engine,
    Sglang,
    Vllm,
    restart_command,
)
from tests.unit.agents.workloads.http.wall import Wall
from tuner.core import (
    ActuationError,
    Clock,
    ConfigError,
    MeasurementError,
    Plan,
    Reading,
    Role,
    Row,
)

DRAFTING = Path(__file__).parents[5] / "docs" / "policies" / "drafting.md"
ENGINES: dict[str, type[Engine]] = {"vllm": Vllm, "sglang": Sglang}
FIRST = {
    "vllm": {
        "speculative-config": {
            "method": "eagle3",
            "model": "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B",
            "num_speculative_tokens": 5,
            "num_speculative_tokens_per_batch_size": [[1, 256, 3]],
        }
    },
    "sglang": {"1": {"candidate_steps": [3]}},
}
"""The text of their files at the default."""
ANSWERS = 20
"""Enough gaps between tokens for the upper bound of a p99."""
PLAN = Plan(
    (
        Row(2.5, {"speculation_length": 5}),
        Row(16.5, {"speculation_length": 1}),
        Row(math.inf, {"speculation_length": 0}),
    ),
    "decoding_requests",
)


@dataclass
class Running:
    """An engine, and the side that the page's file makes of it."""

    engine: Engine
    side: Side
    file: Path


def start(name: str, folder: Path, clock: Clock | None = None, knob: str = "") -> Running:
    """Start an engine by its page, but with another address, folder and restart command."""
    written, prompts = folder / f"{name}.json", folder / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": f"p{i}"}) + "\n" for i in range(64)))
    engine = ENGINES[name](written)
    text = documented(name).replace("values = [0, 1, 3, 5, 7]", "values = [0, 1, 3, 5]") + knob
    text = re.sub(r'url = ".*"', f'url = "{engine.url}"', text)
    text = re.sub(r'"/etc/jouletune/(vllm.yaml|sglang.json)"', f'"{written}"', text)
    text = text.replace("/etc/jouletune/prompts.jsonl", str(prompts))
    text = re.sub(r"/etc/jouletune/\w+-draft\.\w+", str(folder / DRAFT), text)
    text = re.sub(r"command = .*", f"command = {json.dumps(restart_command(engine.url))}", text)
    file = folder / f"{name}.toml"
    file.write_text(text)
    written.write_text(json.dumps(FIRST[name]))
    engine.restart()
    return Running(engine, reopen(file, clock), file)


def reopen(file: Path, clock: Clock | None = None) -> Side:
    wall = clock or Wall()
    return open_workload(f"service:{file}", seed=0, state_dir=file.parent, clock=wall)


def window(running: Running, callers: int = 0) -> Reading:
    """Measure some answers, under our own load."""
    meter = running.side.meter
    if callers:
        assert isinstance(meter, OffersLoad)
        meter = meter.offering({"decoding_requests": float(callers)})
    opened = meter.start()
    deadline, wanted = time.monotonic() + 60.0, len(running.engine.prompts) + ANSWERS
    while len(running.engine.prompts) < wanted and time.monotonic() < deadline:
        time.sleep(0.005)
    opened.read()
    return opened.stop()


def crossing(running: Running) -> Reading:
    """Measure a second of answers while the load goes from one request to eight and back."""
    assert isinstance(running.side.meter, OffersLoad)
    load = {"decoding_requests_low": 1.0, "decoding_requests_high": 8.0, "cycle_s": 0.5}
    opened = running.side.meter.offering(load).start()
    time.sleep(1.0)
    return opened.stop()


@dataclass
class Ahead(Wall):
    """Real time plus the seconds `passed_s` that a test adds."""

    passed_s: float = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.passed_s


@contextmanager
def started(name: str, folder: Path, clock: Clock | None = None) -> Iterator[Running]:
    found = start(name, folder, clock)
    yield found
    found.side.close()
    found.engine.close()


@pytest.fixture
def clock() -> Ahead:
    return Ahead()


@pytest.fixture(params=sorted(ENGINES))
def running(request: pytest.FixtureRequest, tmp_path: Path, clock: Ahead) -> Iterator[Running]:
    with started(request.param, tmp_path, clock) as found:
        yield found


@pytest.fixture
def vllm(tmp_path: Path) -> Iterator[Running]:
    with started("vllm", tmp_path) as found:
        yield found


@pytest.fixture
def sglang(tmp_path: Path) -> Iterator[Running]:
    with started("sglang", tmp_path) as found:
        yield found


@pytest.fixture
def side(running: Running) -> Side:
    return running.side


class TestKnobs(SettableContract):
    pass


def test_the_length_is_a_knob_that_costs_a_restart(running: Running) -> None:
    (knob,) = running.side.space.knobs
    assert (knob.role, knob.cost.restart) == (Role.SPECULATION_LENGTH, True)
    running.side.actuator.apply({"speculation_length": 5})
    assert (running.engine.starts, running.engine.table) == (2, {1: 5})
    running.side.actuator.apply({"speculation_length": 5})
    assert running.engine.starts == 2, "what is in force restarts nothing"


def test_acceptance_tokens_and_load_are_read_from_its_counters(running: Running) -> None:
    running.side.actuator.apply({"speculation_length": 3})
    running.engine.running = 4
    reading = window(running)
    shown = reading.estimates
    assert shown["accepted_per_step"].mean == pytest.approx(sum(ACCEPTED[:3]), abs=0.01)
    assert shown["decoding_requests"].mean == 4.0
    assert reading.totals["items"] >= ANSWERS * 20, "items are tokens"
    assert "throughput_per_s" not in shown, "requests per second are not tokens per second"
    assert "cpu_s" not in reading.totals, "of one process of several"
    assert len(set(running.engine.prompts)) > 1, "the bodies are sent in turn"


def test_vllm_reports_acceptance_by_position_and_the_time_between_tokens(vllm: Running) -> None:
    running = vllm
    shown = window(running).estimates
    for place, share in enumerate(ACCEPTED[:3], 1):
        assert shown[f"accepted_at_{place}"].mean == pytest.approx(share)
        assert shown[f"accepted_at_{place}"].stderr > 0.0
    assert shown["inter_token_p99_ms"].high == 10.0
    listed = {metric.name for metric in running.side.metrics}
    assert {"accepted_at_5", "inter_token_p50_ms", "decoding_requests"} <= listed
    assert shown.keys() <= listed | {"arrival_rate_per_s"}


def test_without_drafts_nothing_is_accepted(running: Running) -> None:
    running.side.actuator.apply({"speculation_length": 0})
    reading = window(running)
    assert not [name for name in reading.estimates if name.startswith("accepted")]
    assert reading.totals["items"] > 0


def test_a_load_is_requested_as_decoding_requests(running: Running) -> None:
    (signal,) = running.side.signals
    running.engine.running = 7
    assert (signal.signal.name, signal.signal.askable) == ("decoding_requests", True)
    assert signal.read().present == 7.0
    meter = running.side.meter
    assert isinstance(meter, OffersLoad)
    assert meter.context == {"decoding_requests": 4.0}
    assert window(running, callers=2).totals["failed"] == 0.0


def test_a_plan_becomes_its_own_table_with_one_restart(running: Running) -> None:
    actuator = running.side.actuator
    assert isinstance(actuator, FollowsPlans)
    assert actuator.follow(PLAN)
    assert (running.engine.starts, running.engine.table) == (2, {1: 5, 3: 1, 17: 0})
    assert actuator.followed() == PLAN
    assert actuator.read() == {"speculation_length": 5}
    assert actuator.follow(PLAN) and running.engine.starts == 2
    actuator.apply({"speculation_length": 5})
    assert (actuator.followed(), running.engine.table) == (None, {1: 5})


def test_the_cost_of_a_switch_shows_under_a_load_that_crosses_it(vllm: Running) -> None:
    vllm.engine.step_ms, vllm.engine.crowd_ms, vllm.engine.collapse = 0.5, 0.05, 8.0
    table = Plan((Row(2.5, {"speculation_length": 3}), *PLAN.rows[2:]), PLAN.by)
    assert isinstance(vllm.side.actuator, FollowsPlans)
    rates = []
    for follow in (False, True):
        vllm.side.actuator.apply({"speculation_length": 0})
        if follow:
            assert vllm.side.actuator.follow(table)
        shown = crossing(vllm)
        assert shown.totals["failed"] == 0.0
        rates.append(shown.totals["items"])
    assert rates[1] < 0.7 * rates[0], rates


METHODS = {"vllm": ("eagle3", "ngram"), "sglang": ("EAGLE3", "EAGLE")}


@pytest.mark.parametrize("name", METHODS)
def test_the_drafting_method_of_its_page_is_a_knob_that_costs_one_restart_with_the_table(
    name: str, tmp_path: Path
) -> None:
    default, other = METHODS[name]
    knobs = re.findall(r"```toml\n(.*?)```", DRAFTING.read_text(), re.DOTALL)
    (knob,) = [one for one in knobs if f"{name}-draft" in one]
    keys = json.loads(
        re.sub(r"(\w[\w-]*) = ", r'"\1": ', re.findall(rf"{default} = (.*)", knob)[0])
    )
    (tmp_path / DRAFT).write_text(json.dumps(keys))
    running = start(name, tmp_path, knob="\n" + knob)
    engine, actuator = running.engine, running.side.actuator
    try:
        assert [one.role for one in running.side.space.knobs] == [
            Role.SPECULATION_LENGTH,
            Role.DRAFT,
        ]
        assert actuator.read() == {"speculation_length": 3, "draft": default}
        actuator.apply({"speculation_length": 5, "draft": other})
        assert (engine.starts, engine.table) == (2, {1: 5})
        assert other in engine.draft.values()
        assert isinstance(actuator, FollowsPlans)
        rows = tuple(
            Row(row.below, {**row.setting, "draft": default}, at=row.at) for row in PLAN.rows
        )
        assert actuator.follow(Plan(rows, PLAN.by))
        assert (engine.starts, engine.table) == (3, {1: 5, 3: 1, 17: 0})
        assert default in engine.draft.values()
        mixed = (Row(2.5, {**PLAN.rows[0].setting, "draft": other}), *rows[1:])
        assert not actuator.follow(Plan(mixed, PLAN.by)), "one start has one method"
    finally:
        running.side.close()
        engine.close()


NONE: Accepted = MappingProxyType({})


def watched(
    running: Running, clock: Ahead, accepted: tuple[float, ...], reference: Accepted = NONE
) -> Accepted:
    """Let the engine answer alone at a share of accepted drafts, while the agent watches."""
    assert isinstance(running.side.actuator, FallsBack)
    running.engine.accepted = accepted
    for _ in range(2 + round(2.0 * ENOUGH_STEPS / STEPS)):
        reference = running.side.actuator.look(reference)
        clock.passed_s += LOOK_S
        running.engine.running = 1
        running.engine.answer("p")
    return reference


NOTHING = (0.05, 0.0, 0.0, 0.0, 0.0)


def test_an_engine_with_its_own_table_decodes_plainly_once_acceptance_collapses(
    running: Running, clock: Ahead
) -> None:
    actuator = running.side.actuator
    assert isinstance(actuator, FollowsPlans) and isinstance(actuator, FallsBack)
    running.engine.step_ms = 0.0
    assert actuator.follow(PLAN)
    watched(running, clock, ACCEPTED)
    assert running.engine.starts == 2, "what is accepted as before changes nothing"
    watched(running, clock, NOTHING)
    assert (running.engine.starts, running.engine.table) == (3, {1: 0})
    assert actuator.followed() == PLAN and actuator.read() == {"speculation_length": 0}
    assert actuator.follow(PLAN) and running.engine.starts == 3, "the hold is not ordered anew"
    clock.passed_s += 2.0 * 120.0 / RETRY_SHARE
    actuator.look({})
    assert (running.engine.starts, running.engine.table) == (4, {1: 5, 3: 1, 17: 0})
    watched(running, clock, NOTHING)
    assert running.engine.table == {1: 0}, "and given up again"
    actuator.apply({"speculation_length": 0})
    assert actuator.followed() is None


def test_another_agent_compares_with_the_acceptance_before_its_start(
    running: Running, clock: Ahead
) -> None:
    actuator = running.side.actuator
    assert isinstance(actuator, FollowsPlans)
    running.engine.step_ms = 0.0
    assert actuator.follow(PLAN)
    reference = watched(running, clock, ACCEPTED)
    assert reference[5][1] >= ENOUGH_STEPS
    running.side.close()
    running.side = reopen(running.file, clock)  # acceptance collapses while no agent runs
    assert isinstance(running.side.actuator, FollowsPlans)
    assert running.side.actuator.follow(PLAN) and running.engine.starts == 2
    assert watched(running, clock, NOTHING, reference) == reference
    assert running.engine.table == {1: 0}


def test_lower_acceptance_at_another_length_is_not_a_collapse(
    running: Running, clock: Ahead
) -> None:
    actuator = running.side.actuator
    assert isinstance(actuator, FollowsPlans) and isinstance(actuator, FallsBack)
    running.engine.step_ms = 0.0
    assert actuator.follow(PLAN)
    watched(running, clock, ACCEPTED)
    for _ in range(150):
        running.engine.running = 8
        running.engine.answer("p")
        actuator.look({})
        clock.passed_s += LOOK_S
    assert running.engine.starts == 2


def test_a_table_without_the_length_0_is_refused(running: Running) -> None:
    text = running.file.read_text()
    running.file.write_text(text.replace("values = [0, 1,", "values = [1,"))
    with raised(ConfigError, "table", "value 0"):
        reopen(running.file)


def test_without_a_counter_of_accepted_tokens_there_is_no_fallback(running: Running) -> None:
    text = running.file.read_text().replace("accepted_per_step", "accepted_of_a_step")
    running.file.write_text(text)
    side = reopen(running.file)
    assert "accepted_per_step" in side.cannot[FALL_BACK]
    side.close()


def test_a_plan_in_force_is_found_again_by_another_agent(running: Running) -> None:
    assert isinstance(running.side.actuator, FollowsPlans)
    running.side.actuator.follow(PLAN)
    again = reopen(running.file)
    assert isinstance(again.actuator, FollowsPlans)
    assert again.actuator.follow(PLAN)
    assert (running.engine.starts, again.actuator.followed()) == (2, PLAN)
    again.close()


def test_a_plan_for_another_signal_is_not_handed_over(running: Running) -> None:
    assert isinstance(running.side.actuator, FollowsPlans)
    rows = (Row(9.0, {"speculation_length": 1}), Row(math.inf, {"speculation_length": 0}))
    assert not running.side.actuator.follow(Plan(rows, "requests_in_system"))
    assert running.engine.starts == 1


def test_a_length_that_sglang_does_not_take_up_is_an_error(sglang: Running) -> None:
    running = sglang
    running.engine.deaf = True
    with raised(ActuationError, "speculation_length=5", "uses 3"):
        running.side.actuator.apply({"speculation_length": 5})


def test_a_length_that_vllm_ignores_gives_no_measurement(vllm: Running) -> None:
    running = vllm
    running.engine.deaf = True
    running.side.actuator.apply({"speculation_length": 5})
    with raised(MeasurementError, "to 5", "drafts_total", "is 3"):
        window(running)
    running.side.actuator.apply({"speculation_length": 0})
    with raised(MeasurementError, "to 0"):
        window(running)
    running.engine.table = {1: 0}
    running.side.actuator.apply({"speculation_length": 5})
    with raised(MeasurementError, "to 5"):
        window(running)


def test_a_table_that_vllm_ignores_gives_no_measurement(vllm: Running) -> None:
    assert isinstance(vllm.side.actuator, FollowsPlans)
    vllm.engine.deaf = True
    assert vllm.side.actuator.follow(PLAN)
    with raised(MeasurementError, "to 5", "is 3"):
        window(vllm, callers=1)


def test_a_table_that_sglang_does_not_take_up_is_an_error(sglang: Running) -> None:
    sglang.engine.deaf = True
    assert isinstance(sglang.side.actuator, FollowsPlans)
    with raised(ActuationError, "uses 3"):
        sglang.side.actuator.follow(PLAN)


def test_each_row_of_a_table_is_measured_at_its_own_load(running: Running) -> None:
    assert isinstance(running.side.actuator, FollowsPlans)
    assert running.side.actuator.follow(PLAN)
    for callers, length in ((1, 5), (4, 1)):
        running.engine.running = callers
        shown = window(running, callers=callers).estimates["accepted_per_step"].mean
        assert shown == pytest.approx(sum(ACCEPTED[:length]), abs=0.05)
    assert running.engine.starts == 2, "one start for all rows"


def test_a_restart_of_vllm_is_detected_by_its_start_time(vllm: Running) -> None:
    running = vllm
    assert isinstance(running.side.actuator, Restartable)
    before = running.side.actuator.incarnation()
    running.engine.restart()
    assert running.side.actuator.incarnation() != before
    assert running.side.signals[0].read().incarnation == running.side.actuator.incarnation()


def test_counters_that_were_reset_give_no_measurement(running: Running) -> None:
    window(running)
    opened = running.side.meter.start()
    running.engine.counts = dict.fromkeys(running.engine.counts, 0.0)
    with pytest.raises(MeasurementError, match="went backwards"):
        opened.stop()
