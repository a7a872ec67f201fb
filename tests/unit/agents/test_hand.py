from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from agents.devices import fake_knobs
from agents.hand import Hand, KnobDriver, Value
from tuner.core import ActuationError, DeviceLost

GPU = "GPU-1"


class Now(Hand):
    """A hand whose every call is waited for."""

    def now(self, verb: str, *details: Value) -> Any:  # noqa: ANN401
        return asyncio.run(self.ask(verb, *map(str, details[:1]), *details[1:]))


@pytest.fixture
def hardware(tmp_path: Path) -> Path:
    path = tmp_path / "hardware.json"
    fake_knobs.save(path, fake_knobs.blank(GPU))
    return path


@pytest.fixture
def hand(hardware: Path) -> Iterator[Now]:
    def discover() -> Sequence[KnobDriver]:
        return fake_knobs.discover(str(hardware))

    hand = Now(discover, 0.3)
    yield hand
    asyncio.run(hand.close())
    # Only what has ended: other tests' children, a database server say, live on.
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def fault(hardware: Path, **faults: object) -> None:
    state = fake_knobs.load(hardware)
    state["devices"][GPU]["faults"] = {k.replace("__", "."): v for k, v in faults.items()}
    fake_knobs.save(hardware, state)


def test_it_does_as_the_driver_would(hand: Now, hardware: Path) -> None:
    (device,) = hand.now("describe")
    assert (device["uuid"], device["board"]) == (GPU, "A100 (fake)")
    assert device["ranges"]["gpu.mem_clock_mhz"] == [405, 1215]
    hand.now("write", GPU, "gpu.power_limit_w", 250)
    hand.now("write", GPU, "gpu.clock_mhz", 810)
    values, epoch = hand.now("read", GPU)
    assert values == {"gpu.clock_mhz": None, "gpu.mem_clock_mhz": None, "gpu.power_limit_w": 250}
    assert epoch == "1"
    hand.now("reset", GPU, "gpu.power_limit_w")
    assert hand.now("read", GPU)[0]["gpu.power_limit_w"] == 400


def test_what_the_driver_says_comes_through(hand: Now, hardware: Path) -> None:
    fault(hardware, gpu__clock_mhz="refuse")
    with pytest.raises(ActuationError, match=r"refuses gpu\.clock_mhz=810; a fault"):
        hand.now("write", GPU, "gpu.clock_mhz", 810)
    fault(hardware, **{"*": "lost"})
    with pytest.raises(DeviceLost, match="fell off"):
        hand.now("read", GPU)
    with pytest.raises(DeviceLost, match="GPU-9 is not there"):
        hand.now("read", "GPU-9")


def test_a_call_that_hangs_hangs_only_the_child(hand: Now, hardware: Path) -> None:
    hand.now("read", GPU)
    fault(hardware, gpu__clock_mhz="hang")
    began = time.monotonic()
    with pytest.raises(DeviceLost, match=r"did not answer within 0\.3 s"):
        hand.now("write", GPU, "gpu.clock_mhz", 810)
    assert time.monotonic() - began < 3.0
    assert hand.now("read", GPU)[0]["gpu.power_limit_w"] == 400


def test_a_child_that_dies_is_replaced(hand: Now) -> None:
    hand.now("read", GPU)
    os.kill(hand._child, signal.SIGKILL)
    with pytest.raises(DeviceLost, match="ended"):
        hand.now("read", GPU)
    assert hand.now("read", GPU)[1] == "1"


def test_the_child_keeps_nothing_of_the_actuators(hand: Now, tmp_path: Path) -> None:
    with (tmp_path / "secret").open("w"):
        hand.now("read", GPU)
        held = [str(p.readlink()) for p in Path(f"/proc/{hand._child}/fd").iterdir()]
    assert not [name for name in held if "secret" in name]
    assert len([name for name in held if name.startswith("socket:")]) == 1
