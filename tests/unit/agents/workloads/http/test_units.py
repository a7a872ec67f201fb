"""A knob that is a property of a systemd unit: set by fixed words, read back, and checked in the kernel."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from agents.workloads.http.knob_config import Property, UnitProperty
from agents.workloads.http.reading import UnlistedValue
from agents.workloads.http.units import RESOURCES, KnobInUnit
from tests.errors import raised
from tests.systemctl import FakeSystemctl
from tests.unit.agents.workloads.http.wall import Wall
from tuner.core import ActuationError, Knob, Part, Value

GROUP = "/system.slice/pool.service"


def knob_of(name: Property, values: tuple[Value, ...], cgroups: Path) -> KnobInUnit:
    knob = Knob("limit", values, values[0], Part.WORKLOAD)
    return KnobInUnit(knob, UnitProperty("pool.service", name), Wall(), cgroups)


def in_kernel(folder: Path, attribute: str, text: str) -> None:
    file = folder / GROUP.lstrip("/") / attribute
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text + "\n")


def test_a_quota_is_set_until_the_next_boot_and_read_back(
    fake_systemctl: FakeSystemctl, tmp_path: Path
) -> None:
    fake_systemctl.reports(ControlGroup=GROUP, CPUQuotaPerSecUSec="infinity")
    fake_systemctl.answers("CPUQuota=150%", CPUQuotaPerSecUSec="1s 500ms")
    fake_systemctl.answers("CPUQuota=", CPUQuotaPerSecUSec="infinity")
    knob = knob_of("CPUQuota", (50, 150, "infinity"), tmp_path)
    assert knob.read() == "infinity" and knob.is_at("infinity")
    knob.set(150)
    words = ["set-property", "--runtime", "pool.service", "CPUQuota=150%"]
    assert ["--no-ask-password", *words] in fake_systemctl.calls
    assert knob.read() == 150 and not knob.is_at(50)
    knob.set("infinity")
    assert knob.read() == "infinity"


@pytest.mark.parametrize(
    ("name", "value", "properties", "attribute", "kernel"),
    [
        ("CPUQuota", 6000, {"CPUQuotaPerSecUSec": "1min"}, "cpu.max", "6000000 100000"),
        ("CPUQuota", 12.5, {"CPUQuotaPerSecUSec": "125ms"}, "cpu.max", "12500 100000"),
        ("CPUQuota", "infinity", {"CPUQuotaPerSecUSec": "infinity"}, "cpu.max", "max 100000"),
        ("CPUWeight", 100, {"CPUWeight": "[not set]"}, "cpu.weight", "100"),
        ("CPUWeight", 50, {"CPUWeight": "50"}, "cpu.weight", "50"),
        ("IOWeight", 50, {"IOWeight": "50"}, "io.weight", "default 50"),
        ("AllowedCPUs", "0-1,3", {"AllowedCPUs": "0-1 3"}, "cpuset.cpus", "0-1,3"),
        ("AllowedCPUs", "infinity", {"AllowedCPUs": ""}, "cpuset.cpus", ""),
        ("MemoryHigh", 4096, {"MemoryHigh": "4096"}, "memory.high", "4096"),
        ("MemoryMax", "infinity", {"MemoryMax": str(2**64 - 1)}, "memory.max", "max"),
        ("TasksMax", 9, {"TasksMax": "9"}, "pids.max", "9"),
    ],
)
def test_texts_of_systemd_and_kernel_are_parsed_to_the_value(
    fake_systemctl: FakeSystemctl,
    tmp_path: Path,
    name: Property,
    value: Value,
    properties: dict[str, str],
    attribute: str,
    kernel: str,
) -> None:
    fake_systemctl.reports(ControlGroup=GROUP, **properties)
    knob = knob_of(name, (value, 7), tmp_path)
    assert knob.read() == value
    assert f"shows no {attribute}" in knob.unproven()
    in_kernel(tmp_path, attribute, kernel)
    assert knob.read() == value
    assert knob.unproven() == ""


@pytest.mark.promise("a knob cannot be read back")
def test_a_contradicting_kernel_is_believed(fake_systemctl: FakeSystemctl, tmp_path: Path) -> None:
    fake_systemctl.reports(ControlGroup=GROUP, CPUQuotaPerSecUSec="500ms")
    in_kernel(tmp_path, "cpu.max", "max 100000")
    with raised(ActuationError, "CPUQuota=50", "pool.service", "cpu.max"):
        knob_of("CPUQuota", (50, 100), tmp_path).read()


def test_foreign_values_and_refusals_are_reported(
    fake_systemctl: FakeSystemctl, tmp_path: Path
) -> None:
    fake_systemctl.reports(ControlGroup="", CPUWeight="33")
    knob = knob_of("CPUWeight", (50, 100), tmp_path)
    with pytest.raises(UnlistedValue, match="is at '33'"):
        knob.read()
    fake_systemctl.refuses("Interactive authentication required")
    with pytest.raises(ActuationError, match="Interactive authentication required"):
        knob.set(50)


def test_a_unit_that_does_not_keep_its_value_is_an_error(
    fake_systemctl: FakeSystemctl, tmp_path: Path
) -> None:
    fake_systemctl.reports(ControlGroup="", CPUWeight="100")
    fake_systemctl.answers("CPUWeight=50", CPUWeight="100")
    with raised(ActuationError, "pool.service", "limit=50", "uses 100"):
        knob_of("CPUWeight", (50, 100), tmp_path).set(50)


def test_every_property_that_a_file_may_name_is_known_here() -> None:
    assert set(RESOURCES) == set(get_args(Property))
