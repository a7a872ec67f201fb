"""The kit for a GPU host that is read-only for us: built, then run from its folder alone.

No checkout and no package index is within its reach: it starts in another folder, with an environment of
its own. The GPU is the fake NVML; its CUDA driver and nvidia-smi are stand-ins over it.
"""

from __future__ import annotations

import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.boards.fixtures import Mount, boards, mount
from tests.boards.mounted import MountedBoard
from tests.hardware.agreement import contradictions
from tests.hardware.first_hour import calls, settings, write
from tests.hardware.first_hour.build import HOST_SCRIPT, MOST_MIB, PYTHONS, SCRIPT, build
from tests.hardware.first_hour.kernels import PTX
from tests.hardware.first_hour.questions import OPEN, questions
from tests.hardware.first_hour.series import described, ratio, steps
from tests.hardware.stand_ins import smi
from tests.nvml.fake import A100, FakeNvml, build_cuda
from tests.nvml.fixtures import library

__all__ = ["boards", "library", "mount"]

ROOT = Path(__file__).parents[2]
QUICK_S = 400.0
"""A tenth of the durations takes under a minute here; the rest is a margin for a busy machine."""


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Yield a folder that every user may read, unlike pytest's."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture(scope="module")
def kit(folder: Path) -> Path:
    """Yield the folder for this processor, with the wheels of every Python."""
    try:
        assert build(folder / "kit", platform.machine()) < MOST_MIB
    except subprocess.CalledProcessError as error:
        pytest.skip(f"pip cannot fetch the wheels here: {error}")
    return folder / "kit"


@dataclass(frozen=True)
class Ran:
    """A run of the kit, and the GPU that it read."""

    report: dict[str, Any]
    page: str
    fake: FakeNvml
    folder: Path


@pytest.fixture(scope="module")
def ran(kit: Path, folder: Path, library: Path) -> Ran:
    (folder / library.name).write_bytes(library.read_bytes())
    fake = FakeNvml(folder / library.name, folder / "nvml.state", manual=False, busy=0.0)
    build_cuda(fake.library)
    environ = {"PATH": f"{smi(folder)}:/usr/bin:/bin", **fake.environment()}
    done = subprocess.run(
        [sys.executable, str(kit / SCRIPT), "--quick", "--write", "--output", str(folder / "out")],
        env=environ, cwd="/", capture_output=True, text=True, timeout=QUICK_S, check=False,
        input=f"{A100}\n",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads((folder / "out/first-hour.json").read_text())
    return Ran(report, (folder / "out/first-hour.md").read_text(), fake, folder)


@pytest.mark.slow
def test_every_part_of_the_first_hour_runs_from_its_folder_alone(ran: Ran) -> None:
    assert ran.report["complete"] and ran.report["load"]["on"] == "stand-in"
    parts = ran.report["parts"]
    wanted = {"calls_unprivileged", "doctor_loaded", "windows", "agent_killed", "batch_study"}
    wanted |= {f"energy_{name}" for name in ("idle", "context", "steady", "memory", "on_off")}
    wanted |= {"who_works_here"}
    wanted |= {f"clocks_{share}" for share in (5, 30, 100)} | {"settings"}
    missing = {
        name: parts.get(name)
        for name in wanted
        if not {"failed", "not_run"}.isdisjoint(parts[name])
    }
    assert not missing, missing
    assert "Every part ran" in ran.page or os.geteuid() != 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "user",
    [
        pytest.param(
            "root", marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root sees as root")
        ),
        "unprivileged",
    ],
)
def test_every_reading_call_is_made_and_its_code_and_time_are_recorded(ran: Ran, user: str) -> None:
    reading, setting = calls.calls_of(ROOT / "agents/devices/nvidia")
    shown = ran.report["parts"][f"calls_{user}"]
    assert set(reading) <= set(shown), "add its arguments to calls.ARGUMENTS"
    assert not [name for name in reading if "not_run" in shown[name]]
    assert not set(setting) & set(shown)
    assert shown["nvmlInit"]["n"] == calls.CONNECTIONS
    power = shown["nvmlDeviceGetPowerUsage"]
    assert power["n"] == calls.REPEATS / 10 and power["codes"] == {"0": power["n"]}
    assert 0.0 < power["p50_us"] <= power["p99_us"]
    assert (shown["uid"] == 0) is (user == "root")


@pytest.mark.slow
def test_the_counters_step_and_ratio_are_the_fakes(ran: Ran) -> None:
    for name in ("idle", "steady", "on_off"):
        part = ran.report["parts"][f"energy_{name}"]
        assert part["counter_mj"]["interval_ms"]["p50"] == pytest.approx(100.0, abs=15.0)
        assert part["counter_mj"]["quantum"] == 1
        assert part["ratio_to_instant_mw"] == pytest.approx(1.0, abs=0.1)


@pytest.mark.slow
def test_the_clock_follows_the_load(ran: Ran) -> None:
    parts = ran.report["parts"]
    assert parts["clocks_100"]["sm_mhz"]["p50"] == 1410
    assert parts["clocks_5"]["sm_mhz"]["p50"] == 210
    assert len(parts["clocks_30"]["series"]) == parts["clocks_30"]["samples"] > 0


@pytest.mark.slow
def test_windows_have_joules_per_item_and_a_killed_agent_leaves_nothing(ran: Ran) -> None:
    parts = ran.report["parts"]
    rows = parts["windows"]["windows"]
    assert len(rows) == 10 and all(row["j_per_item"] > 0.0 and "celsius" in row for row in rows)
    assert parts["agent_killed"]["in_a_window"] and parts["agent_killed"]["signal"] == 9
    assert parts["agent_killed"]["next"]["totals"]["energy_j"] > 0.0


@pytest.mark.slow
def test_the_loads_process_is_found_and_each_row_has_its_true_load(ran: Ran) -> None:
    parts = ran.report["parts"]
    assert parts["who_works_here"]["load_listed"] and parts["who_works_here"]["others"] == 0
    used = {
        name: parts[f"energy_{name}"]["utilisation_pct"]["p50"] for name in ("context", "memory")
    }
    assert used == {"context": 0.0, "memory": 97.0}


@pytest.mark.slow
def test_the_study_saves_joules_and_others_can_check_it(ran: Ran) -> None:
    part = ran.report["parts"]["batch_study"]
    assert part["settings"] == [{"batch_size": 1}, {"batch_size": 4}]
    assert part["agrees"] and part["study_saves"][0] > 0.5 and part["in_turns_saves"][1] > 0.0
    assert part["evidence"]["figures"] > 0
    assert part["evidence"]["contradictions"] == part["evidence"]["refused"] == []
    verifier = [sys.executable, "-I", str(ROOT / "tuner/verify.py")]
    subprocess.run([*verifier, str(ran.folder / "out/evidence.zip")], check=True)


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root sets clocks")
def test_clocks_follow_under_load_and_return_from_each_failure(ran: Ran) -> None:
    part = ran.report["parts"]["write"]
    assert part["answer"] == "5 of 5 followed; all returned"
    for after in ("release", "kill", "reload", "rgc"):
        assert part[f"after_{after}"]["equal_but_for_readings"], after


@pytest.mark.parametrize("typed", ["", "yes", A100[:-1], f" {A100} "])
def test_only_the_typed_uuid_permits_writes(typed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{typed}\n"))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert (write.refused(A100) == "") is (typed.strip() == A100)


@pytest.mark.slow
def test_each_question_has_an_answer_and_its_data(ran: Ran) -> None:
    for row in ran.report["questions"]:
        assert row["answer"] != OPEN or os.geteuid() != 0, row
        assert row["answer"].replace("|", "") in ran.page, row


def test_each_question_names_a_rule_that_exists() -> None:
    for row in questions({"parts": {}, "gpu": {}, "load": {}}):
        path, _, name = row["rule"].partition(": ")
        assert name in (ROOT / path).read_text(), row


@pytest.mark.slow
def test_few_small_files_travel_and_none_names_the_host(ran: Ran) -> None:
    files = [*(ran.folder / "out").iterdir()]
    assert len(files) <= 8 and all(file.stat().st_size < 16 * 2**20 for file in files)
    name = rf"@{re.escape(platform.node())}\b"
    assert not re.search(name, json.dumps(ran.report) + ran.page)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["no GPU", "no compiler"])
def test_a_gpu_that_cannot_be_looked_at_or_loaded_is_named(
    kit: Path, ran: Ran, tmp_path: Path, case: str
) -> None:
    there = {} if case == "no GPU" else {**ran.fake.environment(), "FAKECUDA_CODE": "221"}
    done = subprocess.run(
        [sys.executable, str(kit / SCRIPT), "--quick", "--output", str(tmp_path)],
        env={"PATH": "/usr/bin:/bin", **there}, cwd="/", capture_output=True, text=True,
        timeout=QUICK_S, check=False,
    )  # fmt: skip
    report = json.loads((tmp_path / "first-hour.json").read_text())
    if case == "no GPU":
        assert done.returncode == 3 and done.stdout == ""
        assert re.fullmatch(r"no GPU answers: .*\n", done.stderr)
    else:
        assert done.returncode == 0, done.stderr
        assert "libnvidia-ptxjitcompiler" in report["parts"]["energy_steady"]["not_run"]


def _pythons() -> list[str]:
    """Return the commands of the supported Pythons that this machine has."""
    found = (shutil.which(f"python{version}") for version in PYTHONS)
    return [
        one for one in found if one and not subprocess.run([one, "-c", ""], check=False).returncode
    ]


@pytest.mark.slow
@pytest.mark.parametrize("python", _pythons())
def test_the_kit_starts_with_each_python_of_this_machine(
    kit: Path, tmp_path: Path, python: str
) -> None:
    done = subprocess.run(
        [python, str(kit / SCRIPT), "--quick", "--output", str(tmp_path)],
        env={"PATH": "/usr/bin:/bin"}, cwd="/", capture_output=True, text=True,
        timeout=QUICK_S, check=False,
    )  # fmt: skip
    assert done.returncode == 3, done.stderr


@pytest.mark.slow
def test_the_kernels_assemble_for_every_gpu_of_today(tmp_path: Path) -> None:
    wheel = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--target",
        str(tmp_path),
    ]
    got = subprocess.run(
        [*wheel, "nvidia-cuda-nvcc-cu12==12.9.86"], capture_output=True, check=False
    )
    if got.returncode != 0:
        pytest.skip("pip cannot fetch ptxas here")
    ptxas = tmp_path / "nvidia/cuda_nvcc/bin/ptxas"
    ptxas.chmod(0o755)
    text = tmp_path / "kernels.ptx"
    text.write_text(PTX)
    for generation in ("70", "75", "80", "86", "89", "90", "100"):
        command = [str(ptxas), f"-arch=sm_{generation}", str(text), "-o", str(tmp_path / "out")]
        subprocess.run(command, check=True, capture_output=True)


REPORTS = sorted((Path(__file__).parent / "reports").glob("*.json"))
"""Reports of real hardware; that of a board or server is named after its stand-in: `orin-NAME.json`."""


@pytest.mark.slow
@pytest.mark.skipif(not REPORTS, reason="no report of real hardware was sent yet")
@pytest.mark.parametrize("file", REPORTS, ids=lambda file: file.stem)
def test_a_report_of_real_hardware_agrees_with_the_stand_in(
    kit: Path, mount: Mount, tmp_path: Path, request: pytest.FixtureRequest, file: Path
) -> None:
    report = json.loads(file.read_text())
    if "parts" in report:
        stand_in = request.getfixturevalue("ran").report
    else:
        stand_in = read_host(kit, mount(file.stem.partition("-")[0]), tmp_path)
    assert contradictions(report, stand_in) == []


@pytest.mark.slow
def test_a_report_that_contradicts_the_stand_in_is_named(ran: Ran) -> None:
    assert contradictions(ran.report, ran.report) == []
    real = json.loads(json.dumps(ran.report))
    real["parts"]["calls_unprivileged"]["nvmlDeviceGetPowerUsage"]["codes"] = {"0": 19, "999": 1}
    real["parts"]["energy_steady"]["counter_mj"] |= {"backwards": 1, "quantum": 1000}
    real["parts"]["who_works_here"]["load_listed"] = False
    assert contradictions(real, ran.report) == [
        "calls_unprivileged nvmlDeviceGetPowerUsage: code 999; stand-in: 0",
        "quantum of the energy counter, mJ: 1000; stand-in: 1",
        "backward steps of the energy counter: 1; stand-in: 0",
        "the load's process is listed: False; stand-in: True",
    ]


@pytest.mark.slow
def test_the_first_hour_sets_nothing(ran: Ran) -> None:
    assert ran.report["parts"]["settings"]["equal_but_for_readings"]
    assert [ran.fake.get(name) for name in ("lock_max", "mem_lock", "limit_w")] == [0.0, 0.0, 400.0]


@pytest.mark.slow
def test_a_folder_without_its_wheels_is_refused(kit: Path, tmp_path: Path) -> None:
    alone = tmp_path / SCRIPT
    alone.write_bytes((kit / SCRIPT).read_bytes())
    done = subprocess.run([sys.executable, str(alone)], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "copy the whole folder" in done.stderr


def read_host(kit: Path, board: MountedBoard, folder: Path) -> dict[str, Any]:
    """Run the kit's script for hosts on a stand-in; return its report."""
    done = subprocess.run(
        [sys.executable, kit / HOST_SCRIPT, "--quick", "--root", board.root, "--output", folder],
        capture_output=True, text=True, timeout=QUICK_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads((folder / "first-hour.json").read_text())
    return report


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "sensor"),
    [
        ("orin", "curr1_input"),
        ("xeon", "energy_uj"),
        ("epyc", "energy_uj"),
        ("amdgpu", "power1_average"),
        ("amdgpu-mi300", "power1_input"),
        ("xe", "energy1_input"),
        ("i915", "energy1_input"),
        ("grace", "power1_average"),
    ],
)
def test_a_boards_a_servers_and_a_gpus_first_hour_read_their_sensors(
    kit: Path, mount: Mount, tmp_path: Path, name: str, sensor: str
) -> None:
    board = mount(name)
    report = read_host(kit, board, tmp_path)
    (moved, *_) = [part for file, part in report["energy_steady"].items() if file.endswith(sensor)]
    assert moved["most"] > 0.0
    assert len(report["windows"]) == 10 and report["windows"][0]["items"] > 0
    assert report["settings"] > 0 and report["settings_changed"] == {}
    assert board.altered == {}
    answers = {data: answer for _, answer, data, _ in report["questions"]}
    assert float(answers["read"]) > 0.0 and answers["settings_changed"] == "none"
    assert contradictions(report, report) == []
    real = json.loads(json.dumps(report))
    (file, *_) = [file for file in real["read"] if file.endswith(sensor)]
    real["read"][file] = {"error": "Permission denied"}
    assert contradictions(real, report) == [f"{sensor}: refused 1; stand-in: 0"]


def test_the_kit_names_no_call_that_sets() -> None:
    package = ROOT / "tests/hardware/first_hour"
    text = "\n".join(file.read_text() for file in package.glob("*.py"))
    assert not re.findall(r"pynvml\.nvml\w*(?:Set|Reset)\w*", text)


SMI = """
Timestamp                                 : now
GPU 00000000:01:00.0
    Clocks
        SM                                : 1410 MHz
    Max Clocks
        SM                                : 1410 MHz
    GPU Power Readings
        Instantaneous Power Draw          : 60.10 W
        Current Power Limit               : 400.00 W
"""


def test_readings_may_differ_and_settings_may_not() -> None:
    cooler = SMI.replace(
        "Clocks\n        SM                                : 1410",
        "Clocks\n        SM                                : 210",
        1,
    )
    later = cooler.replace("now", "later").replace("60.10", "301.00")
    assert settings.compared(SMI, later)["equal_but_for_readings"]
    limited = settings.compared(SMI, later.replace("400.00", "300.00"))
    assert not limited["equal_but_for_readings"]
    assert list(limited["changed"]) == [
        "GPU 00000000:01:00.0 > GPU Power Readings > Current Power Limit"
    ]


def test_a_step_a_quantum_and_a_ratio_are_read_from_a_series() -> None:
    rows = [(n * 0.01, 1000.0 + (n // 10) * 5000.0, 50_000.0) for n in range(100)]
    moved = steps(rows, 1)
    description = described(moved)
    assert description["steps"] == 9 and description["quantum"] == 5000
    assert description["interval_ms"]["p50"] == pytest.approx(100.0)
    assert ratio(rows, moved, 2) == pytest.approx(1.0)
