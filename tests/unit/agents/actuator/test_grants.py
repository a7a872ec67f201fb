from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from agents.actuator.driver import Value
from agents.actuator.grants import ActuatorConfig, Granted, load_config
from tuner.core import ConfigError

RANGES: dict[str, tuple[Value, ...]] = {
    "gpu.clock_mhz": (210, 810, 1410),
    "gpu.power_limit_w": (100, 250, 400),
}
ABOUT = {"uuid": "GPU-1", "ranges": RANGES, "knobs": (*RANGES, "gpu.mem_clock_mhz")}
"""The description of a device with a single memory clock."""

WHOLE = """
socket = "/tmp/a.sock"
state_dir = "/tmp/a"
group = "tuners"
drivers = ["fake:/tmp/h.json"]
lease_s = 2
agent_grace_s = 5.5
hold_s = 3600
deadline_s = 1

[[device]]
match = "GPU-7*"
failsafe = { "gpu.power_limit_w" = 250 }
[device.grant]
"gpu.clock_mhz" = { min = 600, max = 1410 }
[device.original]
"gpu.clock_mhz" = 1410

[[device]]
match = "GPU-*"
failsafe = "original"
"""


def read(tmp_path: Path, text: str) -> ActuatorConfig:
    path = tmp_path / "actuator.toml"
    path.write_text(text)
    return load_config(path)


def test_a_complete_file_is_read(tmp_path: Path) -> None:
    config = read(tmp_path, WHOLE)
    assert (config.lease_s, config.agent_grace_s, config.deadline_s) == (2.0, 5.5, 1.0)
    assert config.hold_s == 3600
    assert (config.group, config.drivers) == ("tuners", ["fake:/tmp/h.json"])
    first = config.granted("GPU-77")
    assert first.grant == {"gpu.clock_mhz": (600, 1410)}
    assert first.failsafe == {"gpu.power_limit_w": 250}
    assert first.original == {"gpu.clock_mhz": 1410}


def test_ungranted_knobs_are_denied(tmp_path: Path) -> None:
    config = read(tmp_path, WHOLE)
    for uuid in ("GPU-1", "MIG-1"):
        assert config.granted(uuid).values({**ABOUT, "uuid": uuid}) == ({}, [])
    assert read(tmp_path, "") == ActuatorConfig()
    assert ActuatorConfig().granted("GPU-1").grant == {}


def test_granted_are_the_supported_values_within_the_bounds() -> None:
    granted = Granted(match="*", grant={"gpu.clock_mhz": (210, 1000)})
    assert granted.values(ABOUT) == ({"gpu.clock_mhz": (210, 810)}, [])


LIMITS = {"gpu.power_limit_w": (100, 400)}


@pytest.mark.parametrize(
    ("granted", "says"),
    [
        (Granted(match="*", grant={"gpu.clock_mhz": (100, 1000)}), "100.*210 to 1410"),
        (Granted(match="*", grant={"gpu.clock_mhz": (210, 2000)}), "2000.*210 to 1410"),
        (Granted(match="*", grant={"gpu.clock_mhz": (300, 400)}), "no supported value"),
        (
            Granted(match="*", grant={"gpu.clok_mhz": (300, 400)}),
            "no such knob; its knobs: gpu.clock",
        ),
        (Granted(match="*", grant={"gpu.mem_clock_mhz": (1, 2)}), "one clock only"),
        (Granted(match="*", grant={"gpu.fan": (1, 2)}), "no value"),
        (Granted(match="*", failsafe={"gpu.clock_mhz": 5000}), "5000.*210 to 1410"),
        (Granted(match="*", original={"gpu.clock_mhz": "max"}), "'max'.*210 to 1410"),
        (
            Granted(
                match="*", grant={"gpu.clock_mhz": (210, 810)}, failsafe={"gpu.clock_mhz": 600}
            ),
            "810 is above the fail-safe; grant at most 600",
        ),
    ],
)
def test_an_unmatched_grant_denies_only_that_knob_and_lists_the_offered_ones(
    granted: Granted, says: str
) -> None:
    about = {**ABOUT, "without": {"gpu.mem_clock_mhz": "one clock only", "gpu.fan": "no value"}}
    both = replace(granted, grant={**granted.grant, **LIMITS})
    values, errors = both.values(about)
    assert values == {"gpu.power_limit_w": (100, 250, 400)}
    (error,) = errors
    assert re.search(says, error) and error.startswith("GPU-1: gpu.")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("leases = 3", "unknown key 'leases'"),
        ("lease_s = 0", "lease_s cannot be 0"),
        ("lease_s = true", "lease_s must be a number, not True"),
        ("lease_s = nan", "lease_s cannot be nan"),
        ("hold_s = inf", "hold_s cannot be inf"),
        ('lease_s = "3"', "lease_s"),
        ('drivers = "nvidia"', "drivers must be a list"),
        ("socket = 3", "socket"),
        ("device = 3", "device must be a list, not 3"),
        ("device = [3]", "device 1"),
        ("[[device]]", "has no match"),
        ('[[device]]\nmatch = "x"\ngrants = 3', "unknown key 'grants'"),
        ('[[device]]\nmatch = "x"\nfailsafe = "none"', "failsafe"),
        ('[[device]]\nmatch = "x"\n[device.grant]\na = 3', "must be a table, not 3"),
        ('[[device]]\nmatch = "x"\n[device.grant]\na = {min = 3}', "give min and max"),
        ('[[device]]\nmatch = "x"\n[device.grant]\na = {min = 3, max = 2}', "min <= max"),
        ('[[device]]\nmatch = "x"\n[device.grant]\na = {min=1, max=2, step=1}', "'step'"),
        ("lease_s = ", "not valid TOML"),
    ],
)
def test_an_unfitting_value_is_refused_by_name(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        read(tmp_path, text)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml"):
        load_config(tmp_path / "none.toml")
