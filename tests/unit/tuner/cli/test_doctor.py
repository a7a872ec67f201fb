"""What a machine can measure and set: looked up under a root that tests can make."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tuner.cli.app import main
from tuner.cli.doctor import cpufreq, jetson, powercap


def made(root: Path, name: str, text: str = "0\n") -> Path:
    file = root / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def test_it_never_fails_and_says_why_not(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JOULETUNE_DB", raising=False)
    assert main(["doctor", "--json"]) == 0
    findings = json.loads(capsys.readouterr().out)["findings"]
    about = [f["about"] for f in findings]
    for name in ("cores", "device cpu", "NVIDIA GPU (NVML)", "database", "Jetson board"):
        assert name in about
    assert all(f["seen"] for f in findings)
    assert main(["doctor"]) == 0
    assert "next step" in capsys.readouterr().out


def test_a_database_that_does_not_answer_is_a_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "--json", "--db", f"sqlite:///{tmp_path / 'none'}"]) == 0
    findings = {f["about"]: f for f in json.loads(capsys.readouterr().out)["findings"]}
    assert findings["database"]["there"] is False
    assert "none" in findings["database"]["seen"]


def test_energy_counters(tmp_path: Path) -> None:
    assert not powercap(tmp_path).there
    made(tmp_path, "sys/class/powercap/intel-rapl:0/energy_uj")
    assert powercap(tmp_path).there
    assert "intel-rapl:0" in powercap(tmp_path).seen


def test_clock_limits(tmp_path: Path) -> None:
    assert "offers no clock limits" in cpufreq(tmp_path).seen
    made(tmp_path, "sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq")
    made(tmp_path, "sys/devices/system/cpu/cpu1/cpufreq/scaling_max_freq")
    assert cpufreq(tmp_path).seen == "2 clock limits, writable"


def test_boards_are_known_by_their_device_tree(tmp_path: Path) -> None:
    assert not jetson(tmp_path).there
    made(tmp_path, "proc/device-tree/model", "Raspberry Pi 5\0")
    assert jetson(tmp_path).seen == "this board is a Raspberry Pi 5"
    made(tmp_path, "proc/device-tree/model", "NVIDIA Jetson AGX Orin\0")
    assert jetson(tmp_path).there
