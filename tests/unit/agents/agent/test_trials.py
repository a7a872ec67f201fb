"""Trials that restart the workload: the device is not restored between two of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest

from agents.agent.loop import NEXT_TRIAL_S
from agents.agent.trials import restarts_workload
from agents.target.side import SignalSample
from tests.fakes import FakeActuator, FakeMeter, Rig
from tests.unit.agents.agent.orders import hold, trial
from tuner.core import Context, Cost, Knob, Part, Plan, Role, Row, Signal, Space
from tuner.wire import Assignment

LENGTH = Knob(
    "length", (0, 3, 5), 3, Part.WORKLOAD, Cost(120.0, restart=True), Role.SPECULATION_LENGTH
)
ORIGINAL = {"gpu.clock_mhz": 800, "length": 3}


class Decoding:
    """The load that our generator sends."""

    signal = Signal("decoding_requests", askable=True)

    def read(self) -> SignalSample:
        return SignalSample(0.0)


@dataclass
class OfferingMeter(FakeMeter):
    """A meter that sends any load."""

    @property
    def context(self) -> Context:
        return {}

    def offering(self, context: Context) -> FakeMeter:
        return self


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    rig = Rig(tmp_path, signals=(Decoding(),))
    rig.workload_space = Space((LENGTH,))
    rig.work = FakeActuator("workload", rig.workload_space, rig.log)
    rig.work_meter = OfferingMeter(rig.time, lambda began, now: {})
    rig.device.now["gpu.clock_mhz"] = 800
    return rig


def at(number: int, length: int, **changes: object) -> Assignment:
    fields: dict[str, object] = {
        "setting": {"gpu.clock_mhz": 800, "length": length},
        "baseline": ORIGINAL,
        "context": {"decoding_requests": 4.0},
        "metrics": ("energy_j",),
        "limits": (),
    }
    return trial(number, **{**fields, **changes})


def lengths(rig: Rig) -> list[object]:
    """Return the lengths with which the workload was started."""
    started: list[object] = []
    for label, setting in rig.log:
        if label == "workload" and setting["length"] != (started[-1:] or [3])[0]:
            started.append(setting["length"])
    return started


def test_two_trials_in_a_row_cost_no_restart_between_them(rig: Rig) -> None:
    agent = rig.agent()
    rig.tuner.orders = [at(1, 0), at(2, 0), at(3, 5)]
    agent.step()
    assert lengths(rig) == [0, 5, 3], "restored once there is nothing more to try"
    assert len(rig.tuner.told("/trials/report")) == 3
    assert rig.setting == ORIGINAL and rig.journal.get("fake@host") is None
    levels = [poll["applied"]["level"] for poll in rig.tuner.told("/next")]
    assert levels[:4] == ["original", "trial", "trial", "trial"]
    waits = [poll["wait_s"] for poll in rig.tuner.told("/next")]
    assert waits[1:4] == [NEXT_TRIAL_S] * 3, "the tuner takes some time to suggest the next one"


def test_a_hold_follows_without_a_restore(rig: Rig) -> None:
    agent = rig.agent()
    held = {"gpu.clock_mhz": 800, "length": 5}
    rig.tuner.orders = [at(1, 0), hold(plan=Plan.single(held), baseline=ORIGINAL, limits=((),))]
    agent.step()
    assert lengths(rig) == [0, 5] and rig.setting == held


def test_an_agent_that_is_stopped_between_two_trials_restores_the_workload(rig: Rig) -> None:
    agent = rig.agent()
    rig.tuner.orders = [at(1, 0), at(2, 0)]

    def stopping(request: httpx2.Request) -> None:
        if len(rig.tuner.told("/next")) == 1 and request.url.path.endswith("/next"):
            rig.stop.set()

    rig.tuner.broken = stopping
    agent.step()
    assert rig.setting == ORIGINAL and rig.journal.get("fake@host") is None


def test_an_agent_that_dies_between_two_trials_restores_the_workload_at_its_next_start(
    rig: Rig,
) -> None:
    class Killed(BaseException):
        pass

    def killed(request: httpx2.Request) -> None:
        if len(rig.tuner.told("/next")) == 1 and request.url.path.endswith("/next"):
            raise Killed

    agent = rig.agent()
    rig.tuner.orders = [at(1, 0)]
    rig.tuner.broken = killed
    with pytest.raises(Killed):
        agent.step()
    assert rig.setting["length"] == 0
    rig.agent().begin()
    assert rig.setting == ORIGINAL


def test_a_tuner_that_does_not_answer_leaves_the_original(rig: Rig) -> None:
    def cut(request: httpx2.Request) -> None:
        if len(rig.tuner.told("/next")) == 1 and request.url.path.endswith("/next"):
            raise httpx2.ConnectError("no route")

    agent = rig.agent()
    rig.tuner.orders = [at(1, 0)]
    rig.tuner.broken = cut
    agent.step()
    assert rig.setting == ORIGINAL


def test_only_a_restart_under_our_own_load_is_worth_it(rig: Rig) -> None:
    target = rig.target
    rows = (Row(4.5, at(1, 0).setting, at=4.0), Row(math.inf, at(1, 3).setting, at=8.0))
    assert restarts_workload(at(1, 0), target)
    assert restarts_workload(at(1, 3, plan=Plan(rows, "decoding_requests")), target)
    assert not restarts_workload(at(1, 3), target), "the original"
    assert not restarts_workload(at(1, 0, context={}), target), "traffic that arrives"
    slower = {"gpu.clock_mhz": 400, "length": 0}
    assert not restarts_workload(at(1, 0, setting=slower), target), "a device goes back at once"
