from __future__ import annotations

from pathlib import Path

import pytest

from jouletune_bench.fleet.devices import FROZEN, load_devices
from tests.errors import raised
from tuner.core import ConfigError


def test_the_frozen_table_has_three_classes_of_falling_speed_that_make_up_everybody() -> None:
    devices = load_devices()
    speeds = [kind.gflops for kind in devices.classes]
    assert [kind.name for kind in devices.classes] == ["high", "mid", "low"]
    assert speeds == sorted(speeds, reverse=True)
    assert sum(k.share for k in devices.classes) == pytest.approx(1.0)
    assert sum(r.share for r in devices.radios) == pytest.approx(1.0)


def test_carbon_is_energy_times_the_grids_intensity() -> None:
    assert load_devices().carbon_g(3.6e6) == pytest.approx(481.0)


def test_only_the_scaled_quantity_changes() -> None:
    usual = load_devices()
    scaled = usual.scaled(radio=0.5)
    assert scaled.radios[0].base_w == 0.5 * usual.radios[0].base_w
    assert scaled.classes == usual.classes and scaled.work == usual.work
    assert usual.scaled(idle=1.5).classes[0].idle_w == 1.5 * usual.classes[0].idle_w


def test_alike_leaves_one_class_on_one_steady_network_undisturbed() -> None:
    devices = load_devices().alike()
    assert [kind.name for kind in devices.classes] == ["mid"]
    assert devices.radios[0].up_mbps.sd == 0.0 and devices.interference.chance == 0.0


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("busy_w = 5.6", "busy_w = -5.6"),
        ("busy_w = 5.6", 'busy_w = "much"'),
        ("busy_w = 5.6", "busy_w = nan"),
        ("busy_w = 5.6", ""),
        ("busy_w = 5.6", "busy_w = 5.6\npower = 1.0"),
        ("[carbon]", "[coal]"),
        ("mean = 40.0, sd", "median = 40.0, sd"),
    ],
)
def test_an_invalid_table_is_named(tmp_path: Path, old: str, new: str) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text(FROZEN.read_text().replace(old, new, 1))
    with raised(ConfigError, "wrong.toml"):
        load_devices(file)
