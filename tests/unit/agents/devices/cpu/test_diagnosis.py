"""The doctor's findings on CPUs, on mounted servers."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from agents.devices.cpu.device import open_cpu
from agents.devices.cpu.diagnosis import examine
from agents.host.symptoms import Symptom
from tests.boards.fixtures import Mount, boards, mount

__all__ = ["boards", "mount"]


@pytest.fixture(autouse=True)
def _no_actuator(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JOULETUNE_ACTUATOR", str(tmp_path / "nobody.sock"))


def examined(root: Path) -> dict[str, Symptom]:
    return {symptom.about: symptom for symptom in examine(root)}


def test_a_server_lists_its_possible_knobs_and_requirements(mount: Mount) -> None:
    symptoms = examined(mount("xeon").root)
    assert symptoms["cpu"].seen == "Intel(R) Xeon(R) (fake), 4 clock policies (intel_pstate)"
    assert symptoms["cpu: cpu.max_mhz"].seen == "800 to 3800, 31 values; now 3800"
    assert symptoms["cpu: cpu.governor"].seen == "performance, powersave; now powersave"
    assert "package-0, package-1, dram" in symptoms["cpu: energy"].seen
    rights = symptoms["cpu: permission to set"]
    assert not rights.well and "install.sh --cpu" in rights.cure


def test_policies_with_different_limits_are_a_finding(mount: Mount) -> None:
    board = mount("epyc")
    board.file("sys/devices/system/cpu/cpufreq/policy2/scaling_max_freq").write_text("2000000")
    symptoms = [s for s in examine(board.root) if s.about == "cpu: cpu.max_mhz"]
    assert [symptom.well for symptom in symptoms] == [True, False]
    assert "different limits" in symptoms[1].seen and symptoms[1].cure


def test_a_machine_without_knobs_lists_the_missing_parts(tmp_path: Path) -> None:
    symptoms = examined(tmp_path)
    assert symptoms.keys() == {"cpu", "cpu: cpu.max_mhz", "cpu: energy"}
    for about in ("cpu: cpu.max_mhz", "cpu: energy"):
        assert not symptoms[about].well and symptoms[about].cure


def tree(root: Path, cpuinfo: str, **files: str) -> Path:
    for name, text in {
        "proc/cpuinfo": cpuinfo,
        "proc/stat": "cpu  1 0 0 9 0 0 0 0 0 0",
        **files,
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text}\n")
    return root


X86 = "model name\t: a CPU\nflags\t\t: fpu sse2"
KINDS = {
    "bare": (X86, {}, ("enable a cpufreq driver", "intel_rapl_msr")),
    "guest": (f"{X86} hypervisor", {}, ("virtual machine", "virtual machine")),
    "guest by DMI": (X86, {"sys/class/dmi/id/sys_vendor": "QEMU"}, ("virtual machine",) * 2),
    "Arm": ("CPU implementer\t: 0x41", {}, ("enable a cpufreq driver", "Arm")),
    "Arm guest": (
        "CPU implementer\t: 0x41",
        {"sys/class/dmi/id/product_name": "KVM Virtual Machine"},
        ("virtual machine",) * 2,
    ),
    "container": (X86, {".dockerenv": ""}, ("container", "container")),
    "Arm guest of a cloud": (
        "CPU implementer\t: 0x41",
        {
            "sys/class/dmi/id/sys_vendor": "Amazon EC2",
            "sys/class/dmi/id/product_name": "c7g.large",
        },
        ("virtual machine",) * 2,
    ),
    "Arm of a cloud": (
        "CPU implementer\t: 0x41",
        {
            "sys/class/dmi/id/sys_vendor": "Amazon EC2",
            "sys/class/dmi/id/product_name": "c7g.metal",
        },
        ("enable a cpufreq driver", "Arm"),
    ),
    "container in a pod": (
        X86,
        {"var/run/secrets/kubernetes.io/serviceaccount/token": ""},
        ("container", "container"),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_advice_is_for_the_kind_of_machine(kind: str, tmp_path: Path) -> None:
    cpuinfo, files, (clocks, energy) = KINDS[kind]
    symptoms = examined(tree(tmp_path, cpuinfo, **files))
    assert clocks in symptoms["cpu: cpu.max_mhz"].cure
    assert energy in symptoms["cpu: energy"].cure
    assert ("intel_rapl_msr" in symptoms["cpu: energy"].cure) is (kind == "bare")
    guest = "guest" in kind or "container" in kind
    failed = None if guest else False
    with closing(open_cpu("", seed=0, state_dir=None, root=tmp_path)) as side:
        assert ("actuator" not in side.cannot["cpu.max_mhz"]) is guest
    assert symptoms["cpu: cpu.max_mhz"].well is failed
    assert symptoms["cpu: energy"].well is (failed if kind == "bare" else None)


def test_a_runtime_that_masks_powercap_is_reported(tmp_path: Path) -> None:
    """The links are broken: podman pull request 20510, kubernetes/website 47229."""
    links = tree(tmp_path, X86, **{".dockerenv": ""}) / "sys/class/powercap"
    links.mkdir(parents=True)
    for zone in ("intel-rapl", "intel-rapl:0"):
        (links / zone).symlink_to(f"../../devices/virtual/powercap/intel-rapl/{zone}")
    symptom = examined(tmp_path)["cpu: energy"]
    assert "masks" in symptom.seen and "unmask=/sys/devices/virtual/powercap" in symptom.cure


def test_a_knob_without_a_value_is_a_finding(tmp_path: Path) -> None:
    policy = tmp_path / "sys/devices/system/cpu/cpufreq/policy0"
    policy.mkdir(parents=True)
    for file, text in {"cpuinfo_min_freq": 800_000, "cpuinfo_max_freq": 2_000_000}.items():
        (policy / file).write_text(f"{text}\n")
    (policy / "scaling_max_freq").write_text("2000000\n")
    (policy / "scaling_min_freq").write_text("2100000\n")  # a floor above the range
    symptom = examined(tmp_path)["cpu: cpu.max_mhz"]
    assert not symptom.well and symptom.cure


def test_heat_is_reported_if_the_kernel_counts_it(tmp_path: Path) -> None:
    counts = tmp_path / "sys/devices/system/cpu/cpu0/thermal_throttle"
    counts.mkdir(parents=True)
    (counts / "package_throttle_count").write_text("3\n")
    assert examined(tmp_path)["cpu: heat"].seen == "throttled 3 times since the start"


def test_a_jetsons_cpu_is_listed_with_its_board(mount: Mount) -> None:
    assert examined(mount("orin").root) == {}


def test_energy_counters_that_stay_at_0_in_a_virtual_machine_are_not_a_meter(
    tmp_path: Path,
) -> None:
    """A VM may show RAPL zones whose counters never move (mlco2/codecarbon 1321)."""
    zone = tmp_path / "sys/class/powercap/intel-rapl:0"
    zone.mkdir(parents=True)
    for file, text in {
        "name": "package-0",
        "energy_uj": "0",
        "max_energy_range_uj": "65712999613",
    }.items():
        (zone / file).write_text(f"{text}\n")
    stat = tmp_path / "proc/stat"
    stat.parent.mkdir()
    stat.write_text("cpu  1 0 0 9 0 0 0 0 0 0\n")
    symptom = examined(tmp_path)["cpu: energy"]
    assert (
        not symptom.well and "did not change" in symptom.seen and "virtual machine" in symptom.cure
    )


def test_energy_is_shown_with_the_resulting_power(mount: Mount) -> None:
    symptom = examined(mount("xeon").root)["cpu: energy"]
    assert symptom.well and symptom.seen.endswith(" W under load")
