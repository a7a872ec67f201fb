from __future__ import annotations

from pathlib import Path

import pytest

from agents.devices.fake import knobs as fake
from agents.devices.fake.knobs import FakeKnobs, discover
from tests.contracts.drivers import DriverContract
from tests.contracts.members import MemberContract
from tests.errors import raised
from tuner.core import ActuationError, DeviceLost

CLOCK, LIMIT = "gpu.clock_mhz", "gpu.power_limit_w"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "hardware.json"
    fake.save(path, fake.blank("GPU-1", "GPU-2"))
    return path


@pytest.fixture
def driver(path: Path) -> FakeKnobs:
    return discover(str(path))[0]


class TestFakeKnobs(DriverContract, MemberContract):
    cap_knobs = (CLOCK, LIMIT)


def set_faults(path: Path, **faults: object) -> None:
    state = fake.load(path)
    state["devices"]["GPU-1"]["faults"] = {k.replace("__", "."): v for k, v in faults.items()}
    fake.save(path, state)


def test_a_setting_outlives_the_process_that_set_it(path: Path, driver: FakeKnobs) -> None:
    driver.write(CLOCK, 810)
    driver.write(LIMIT, 250)
    assert discover(str(path))[0].read()[LIMIT] == 250
    held = fake.load(path)["devices"]
    assert (held["GPU-1"]["values"][CLOCK], held["GPU-2"]["values"][CLOCK]) == (810, None)


def test_a_clock_lock_cannot_be_read(driver: FakeKnobs) -> None:
    driver.write(CLOCK, 810)
    assert driver.read()[CLOCK] is None


def test_faults_happen_as_configured(path: Path, driver: FakeKnobs) -> None:
    set_faults(path, gpu__power_limit_w={"clamp": 333}, gpu__clock_mhz="refuse")
    driver.write(LIMIT, 250)
    assert driver.read()[LIMIT] == 333
    driver.write(LIMIT, None)
    assert driver.read()[LIMIT] == 400
    with raised(ActuationError, "refuses"):
        driver.write(CLOCK, 810)
    set_faults(path, **{"*": "lost"})
    with pytest.raises(DeviceLost):
        driver.read()


def test_an_invalid_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{")
    with raised(ActuationError, "x.json"):
        discover(str(tmp_path / "x.json"))
