from __future__ import annotations

import dataclasses
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from agents.agent.observing import ObservingAgent
from agents.agent.surroundings import Surroundings
from agents.config import Attachment, load_agent_config
from agents.host.machine import Host
from agents.target.measured import MeasuredTarget
from agents.target.observe import Observer
from agents.target.side import MeasuredSide
from agents.target.window import Usage
from tests.errors import raised
from tests.fakes import Rig
from tests.processes import until
from tuner.core import ConfigError, Estimate, MeasurementError
from tuner.wire import ONLY_OBSERVED


def test_its_target_has_no_actuator_by_type() -> None:
    (of,) = get_args(get_type_hints(Observer)["target"])
    assert of is MeasuredSide
    assert "actuator" not in {field.name for field in dataclasses.fields(MeasuredSide)}
    assert not {"apply", "restore", "hold", "caps"} & {*dir(MeasuredTarget)}
    assert "Target" not in str(get_type_hints(ObservingAgent.__init__))


@pytest.mark.parametrize(
    ("table", "why"),
    [("observe_s = 5.0", "observe"), ("observe = true\nobserve_s = 0.5", "1 s or more")],
)
def test_an_interval_is_heeded_or_refused(tmp_path: Path, table: str, why: str) -> None:
    file = tmp_path / "agent.toml"
    file.write_text(f'[[device]]\nspec = "cpu"\n{table}\n')
    with raised(ConfigError, why):
        load_agent_config(file)
    file.write_text('[[device]]\nspec = "cpu"\nobserve = true\nobserve_s = 5.0\n')
    assert load_agent_config(file).devices == (Attachment("cpu", observe=True, observe_s=5.0),)


def observing(rig: Rig) -> ObservingAgent:
    around = Surroundings(
        link=rig.link, journal=rig.journal, host=Host("host", rig.boot, 2), clock=rig.time,
        now=rig.time.now, stop=rig.stop, start="start-1",
    )  # fmt: skip
    target, usage, rng = rig.target.measured, Usage(2, rig.own_cpu_s), random.Random(0)
    device = target.describe("fake@host", "agent@host", {}, rig.time.now())
    observer = Observer(target=target, host_clock=rig.time, now=rig.time.now, usage=usage)
    return ObservingAgent(device, observer, 1.0, around, rng, lambda: None)


def test_an_unexpected_error_of_a_meter_ends_the_loop(tmp_path: Path) -> None:
    def shows(began: float, now: float) -> dict[str, Estimate]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        observing(Rig(tmp_path, shows=shows)).run()


@contextmanager
def running(rig: Rig) -> Iterator[Callable[[], list[str]]]:
    """Run an observing agent; yield its reasons against orders so far, each once, in their order."""
    loop = threading.Thread(target=observing(rig).run)
    loop.start()
    try:
        yield lambda: list(dict.fromkeys(poll["unable"] for poll in rig.tuner.told("/next")))
    finally:
        rig.stop.set()
        loop.join()


def test_a_meter_that_fails_is_reported_with_one_time_until_it_works(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.meter.fails = MeasurementError("the counter is gone")
    with running(rig) as reasons:
        until(lambda: any("counter" in why for why in reasons()), "no failure is reported")
        polls = len(rig.tuner.heard)
        until(lambda: len(rig.tuner.heard) > polls + 50, "the agent polls no more")
        (why,) = [reason for reason in reasons() if reason != ONLY_OBSERVED]
        assert why.startswith("not measured since 2026-") and "the counter is gone" in why
        rig.meter.fails = None
        until(
            lambda: rig.tuner.told("/next")[-1]["unable"] == ONLY_OBSERVED, "it stays not measured"
        )


def test_a_meter_that_hangs_is_reported_with_one_time(tmp_path: Path) -> None:
    hung = threading.Event()

    def shows(began: float, now: float) -> dict[str, Estimate]:
        hung.wait()
        raise MeasurementError("late")

    rig = Rig(tmp_path, shows=shows)
    with running(rig) as reasons:
        until(lambda: len(reasons()) == 2, "no hang is reported")
        polls = len(rig.tuner.heard)
        until(lambda: len(rig.tuner.heard) > polls + 50, "the agent polls no more")
        assert reasons()[0] == ONLY_OBSERVED and len(reasons()) == 2
        assert "does not answer" in reasons()[1] and "not measured since 2026-" in reasons()[1]
        hung.set()
