"""Mounted boards behind the real actuator: tuned by a run, and abandoned by a killed agent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.actuation import answers
from tests.boards.fixtures import Mount, boards, mount
from tests.boards.gpus import ADDRESS
from tests.boards.mounted import HERE
from tests.boards.study import LIMIT, Truth, granted_study, study, trials_of
from tests.nvml.fake import A100, FakeNvml
from tests.nvml.fixtures import library
from tests.processes import run_to_end, until
from tuner.core import Phase, TrialState

__all__ = ["boards", "library", "mount"]
LEASE_S = 2.0
START_S = 60.0
KILLED = """
import os, sys, signal
from pathlib import Path
from agents.config import Attachment
from agents.main import open_target
target = open_target(Attachment(sys.argv[1]), 'one', 0, Path(sys.argv[2]), Path(sys.argv[3]))
target.apply({k.name: k.values[len(k.values) // 2] for k in target.space.knobs})
print(target.read(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@contextmanager
def actuator(folder: Path, text: str, environ: Mapping[str, str]) -> Iterator[None]:
    config, socket = folder / "actuator.toml", folder / "actuator.sock"
    config.write_text(
        f'socket = "{socket}"\nstate_dir = "{folder / "journal"}"\nlease_s = {LEASE_S}\n{text}'
    )
    command = [sys.executable, "-m", "agents.actuator.main", "serve", str(config)]
    with subprocess.Popen(command, env=environ, cwd=HERE) as served:
        try:
            until(lambda: answers(socket), "the actuator does not listen", START_S)
            yield
        finally:
            served.terminate()
            assert served.wait(START_S) == 0


def killed(folder: Path, spec: str, root: Path, environ: Mapping[str, str]) -> str:
    """Set every knob of a target to its middle value in a process, which is then killed."""
    done = run_to_end(
        [sys.executable, "-c", KILLED, spec, str(folder / "agent"), str(root)],
        env=environ,
        cwd=HERE,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_run_saves_the_energy_that_the_board_shows_and_restores_every_file(
    mount: Mount, tmp_path: Path
) -> None:
    board, truth = mount("orin"), Truth("orin")
    report = study(board, "sobol", 3, 6, tmp_path)
    tried = [t for t in trials_of(tmp_path) if t.phase is Phase.TUNING]
    assert len(tried) == 6
    _, kept = truth.of(report["best"]["setting"], LIMIT * truth.grid[truth.default][1])
    assert kept
    assert board.altered == {}


@pytest.mark.slow
def test_a_cpu_that_boosts_over_its_ceiling_is_tuned_with_its_boost_and_goes_back(
    mount: Mount, tmp_path: Path
) -> None:
    """acpi-cpufreq on an EPYC: 2.89 GHz over a ceiling of 2.3 on an untouched host (util-linux 755)."""
    board = mount("zen")
    grants = '"cpu.max_mhz" = { min = 1200, max = 2300 }\n"cpu.boost" = ["off", "on"]'
    granted_study(board, "cpu", grants, "sobol", 3, 4, tmp_path)
    made = trials_of(tmp_path)
    states = {(t.phase, t.state): t.reason for t in made}
    assert all(state is TrialState.COMPLETED for _, state in states), states
    tried = [t.setting for t in made if t.phase is Phase.TUNING]
    assert len(tried) == 4 and {"off", "on"} == {setting["cpu.boost"] for setting in tried}
    assert all("energy_j" in t.shown for t in made if t.phase is Phase.BASELINE)
    assert board.altered == {}


LIMITED = (
    '"gpu.power_limit_w" = {{ min = {}, max = {} }}\n"gpu.clock_mhz" = {{ min = {}, max = {} }}'
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "driver", "spec", "grants"),
    [
        ("amdgpu", "drm", f"drm:{ADDRESS}", LIMITED.format(200, 300, 1200, 1500)),
        ("amdgpu-mi300", "drm", f"drm:{ADDRESS}", LIMITED.format(200, 300, 1100, 1500)),
        ("xe", "drm", f"drm:{ADDRESS}", LIMITED.format(150, 190, 1100, 1500)),
        ("i915", "drm", f"drm:{ADDRESS}", LIMITED.format(150, 190, 1100, 1500)),
        ("grace", "cpu", "cpu", '"cpu.max_mhz" = { min = 2700, max = 3100 }'),
    ],
)
def test_a_study_of_each_vendor_holds_its_confirmed_setting_and_is_restored(
    mount: Mount, tmp_path: Path, name: str, driver: str, spec: str, grants: str
) -> None:
    board = mount(name)
    report = granted_study(board, driver, grants, "sobol", 3, 5, tmp_path, spec)
    made = trials_of(tmp_path)
    assert report["won"] and report["saving_percent"] > 5.0, report["why"]
    assert any(t.phase is Phase.CONFIRMING for t in made)
    assert all("energy_j" in t.shown for t in made if t.phase is Phase.BASELINE)
    assert board.altered == {}


def test_a_killed_agent_leaves_no_clock_of_a_board_behind(mount: Mount, tmp_path: Path) -> None:
    board = mount("tx2")
    grants = (
        f'drivers = ["jetson:{board.root}"]\n[[device]]\nmatch = "jetson"\n[device.grant]\n'
        '"gpu.clock_mhz" = { min = 400, max = 1300.5 }\n'
        '"gpu.mem_clock_mhz" = { min = 1000, max = 1866 }\n'
        '"cpu.max_mhz" = { min = 600, max = 2035.2 }\n'
    )
    environ = {**os.environ, "JOULETUNE_ACTUATOR": str(tmp_path / "actuator.sock")}
    with actuator(tmp_path, grants, environ):
        shown = killed(tmp_path, "jetson", board.root, environ)
        assert "'gpu.mem_clock_mhz': 1600" in shown
        until(lambda: not board.altered, "the board is not back", LEASE_S + 5.0)


@pytest.mark.parametrize("name", ["amdgpu", "xe", "i915"])
def test_a_killed_agent_leaves_no_limit_of_a_gpu_behind(
    mount: Mount, tmp_path: Path, name: str
) -> None:
    board = mount(name)
    limits = LIMITED.format(100, 180, 300, 2100)
    grants = (
        f'drivers = ["drm:{board.root}"]\n[[device]]\nmatch = "drm:*"\n[device.grant]\n{limits}\n'
    )
    environ = {**os.environ, "JOULETUNE_ACTUATOR": str(tmp_path / "actuator.sock")}
    with actuator(tmp_path, grants, environ):
        shown = killed(tmp_path, f"drm:{ADDRESS}", board.root, environ)
        assert "'gpu.power_limit_w': 1" in shown and "'gpu.clock_mhz': " in shown
        until(lambda: not board.altered, "the GPU is not back", LEASE_S + 5.0)


def test_a_gpu_and_its_hosts_cpu_are_one_target_and_both_go_back(
    mount: Mount, library: Path, tmp_path: Path
) -> None:
    board = mount("xeon")
    nvml = FakeNvml(library, tmp_path / "nvml.state", manual=False, root_only=0.0)
    grants = (
        f'drivers = ["nvidia", "cpu:{board.root}"]\n'
        f'[[device]]\nmatch = "{A100}"\n[device.grant]\n'
        '"gpu.clock_mhz" = { min = 210, max = 1410 }\n'
        '[[device]]\nmatch = "cpu"\n[device.grant]\n'
        '"cpu.max_mhz" = { min = 1000, max = 3800 }\n'
        '"cpu.package_power_limit_w" = { min = 60, max = 125 }\n'
        '"cpu.governor" = ["performance", "powersave"]\n'
    )
    environ = {
        **os.environ,
        **nvml.environment(),
        "JOULETUNE_ACTUATOR": str(tmp_path / "actuator.sock"),
    }
    with actuator(tmp_path, grants, environ):
        shown = killed(tmp_path, f"nvidia:{A100}+cpu", board.root, environ)
        assert "'gpu.clock_mhz': " in shown and "'cpu.max_mhz': " in shown
        until(lambda: not board.altered, "the CPU is not back", LEASE_S + 5.0)
        until(lambda: nvml.get("lock_max") == 0.0, "the GPU is not back", LEASE_S + 5.0)
