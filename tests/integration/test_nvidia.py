"""A GPU of the fake NVML behind the real actuator: tuned by a run, abandoned by a killed agent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from agents.actuator_client.client import open_remote
from agents.devices.catalogue import known_truth
from agents.devices.simulated.presets import A100 as PRESET
from agents.host.machine import HostClock
from db import open_store
from tests.actuation import answers
from tests.nvml.fake import A100, FakeNvml
from tests.nvml.fixtures import library
from tests.processes import run_to_end, until
from tuner.cli.run.results import score
from tuner.core import ActuationError, Constraint, Objective, Phase, TrialState

__all__ = ["library"]

LIMIT = "latency_p99_ms <= 1.2x baseline"
LEASE_S = 2.0
DEADLINE_S = 1.0
CONSOLE = "import sys; from tuner.cli.app import main; sys.exit(main(sys.argv[1:]))"
START_S = 20.0


@dataclass(frozen=True)
class Bench:
    """A fake GPU in real time, and the environment in which its actuator is found."""

    nvml: FakeNvml
    environ: Mapping[str, str]
    folder: Path


@pytest.fixture
def bench(library: Path, tmp_path: Path) -> Iterator[Bench]:
    nvml = FakeNvml(library, tmp_path / "nvml.state", manual=False, root_only=0.0)
    socket, config = tmp_path / "actuator.sock", tmp_path / "actuator.toml"
    config.write_text(
        f'socket = "{socket}"\nstate_dir = "{tmp_path / "actuator"}"\nlease_s = {LEASE_S}\n'
        f"deadline_s = {DEADLINE_S}\n"
        f'[[device]]\nmatch = "{A100}"\n[device.grant]\n'
        '"gpu.clock_mhz" = { min = 210, max = 1410 }\n'
        '"gpu.power_limit_w" = { min = 100, max = 400 }\n'
    )
    environ = {
        **os.environ,
        **nvml.environment(),
        "JOULETUNE_ACTUATOR": str(socket),
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    command = [sys.executable, "-m", "agents.actuator.main", "serve", str(config)]
    actuator = subprocess.Popen(command, env=environ)
    try:
        until(lambda: answers(socket), "it does not listen", START_S)
        yield Bench(nvml, environ, tmp_path)
    finally:
        actuator.terminate()
        assert actuator.wait(START_S) == 0


def altered(nvml: FakeNvml) -> tuple[float, float]:
    return nvml.get("lock_max"), nvml.get("limit_w")


ORIGINAL = (0.0, 400.0)


@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_run_finds_most_of_the_saving_and_leaves_the_gpu_as_it_was(bench: Bench) -> None:
    options = ["--device", "nvidia:0", "--policy", "polythrottle", "--constraint", LIMIT]
    options += ["--trials", "15", "--json", "--state-dir", str(bench.folder / "state")]
    done = run_to_end([sys.executable, "-c", CONSOLE, "run", *options], env=bench.environ)
    assert done.returncode == 0, done.stderr[-2000:]
    result = json.loads(done.stdout)
    assert result["won"] is True
    assert result["limit_kept"] is True
    truth = known_truth("simulated:a100")
    assert truth is not None
    worth = score(
        PRESET.space,
        truth,
        Objective("energy_j"),
        (Constraint.parse(LIMIT),),
        result["best"]["setting"],
    )
    assert worth.feasible
    assert worth.captured is not None and worth.captured >= 0.8
    assert altered(bench.nvml) == ORIGINAL


def test_a_killed_agent_leaves_nothing_behind_once_its_lease_is_over(bench: Bench) -> None:
    script = (
        "import os, sys, signal\n"
        "from pathlib import Path\n"
        "from agents.config import Attachment\n"
        "from agents.main import open_target\n"
        "pair = open_target(Attachment('nvidia:0', 'simulated'), 'gpu', 0, Path(sys.argv[1]), Path('/'))\n"
        "pair.apply({'gpu.clock_mhz': 1005, 'gpu.power_limit_w': 250, 'batch_size': 8})\n"
        "print(pair.read(), flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    began = time.monotonic()
    killed = run_to_end(
        [sys.executable, "-c", script, str(bench.folder / "agent")], env=bench.environ
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert "'gpu.clock_mhz': 1005" in killed.stdout
    assert time.monotonic() - began < START_S
    until(lambda: altered(bench.nvml) == ORIGINAL, "it stays altered", LEASE_S + 1.0)


def test_a_setter_that_hangs_costs_its_deadline_and_nothing_else(bench: Bench) -> None:
    knobs = open_remote(bench.folder / "actuator.sock", A100, HostClock())
    bench.nvml.set("hang", 1.0)
    began = time.monotonic()
    with pytest.raises(ActuationError, match="did not answer within"):
        knobs.apply({"gpu.clock_mhz": 1005})
    assert time.monotonic() - began < 10.0 * DEADLINE_S
    with pytest.raises(ActuationError, match="not restored"):
        knobs.apply({"gpu.clock_mhz": 1005})
    bench.nvml.set("hang", 0.0)

    def taken() -> bool:
        with suppress(ActuationError):
            knobs.apply({"gpu.clock_mhz": 1005})
        return bench.nvml.get("lock_max") == 1005

    until(taken, "it is not set", 10.0)
    knobs.close()
    until(lambda: altered(bench.nvml) == ORIGINAL, "it stays altered", LEASE_S + 1.0)


UNKIND = {"reach_mhz": 1305.0, "enforced_w": 300.0}
"""A board that does not reach its listed clocks, under a cap set out of band."""


@pytest.mark.slow
def test_a_study_of_an_unkind_board_goes_on_without_the_knob_that_it_refuses(bench: Bench) -> None:
    # Laptops report the range of a limit that cannot be set (nvitop 86).
    for name, value in UNKIND.items():
        bench.nvml.set(name, value)
    bench.nvml.refuse("nvmlDeviceSetPowerManagementLimit", 3)
    options = ["--device", "nvidia:0", "--policy", "sobol", "--constraint", LIMIT, "--window", "2"]
    options += ["--trials", "6", "--json", "--state-dir", str(bench.folder / "state")]
    done = run_to_end([sys.executable, "-c", CONSOLE, "run", *options], env=bench.environ)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout)["won"] is True
    assert altered(bench.nvml) == ORIGINAL
    store = open_store(f"sqlite:///{bench.folder / 'state' / 'jouletune.sqlite'}", create=False)
    try:
        (study,) = store.studies.list()
        trials = store.trials.list(study.id)
        phases = [revision.study.phase for revision in store.studies.revisions(study.id)]
    finally:
        store.close()
    assert Phase.HOLDING in phases
    (refused,) = [t for t in trials if t.state is TrialState.FAILED]
    assert "Not Supported" in refused.reason
    assert study.space.knob("gpu.power_limit_w").values == (300.0,)  # not the requested limit
    ladder = study.space.knob("gpu.clock_mhz").values
    assert (ladder[-2], ladder[-1]) == (1305, 1410)  # reached at the baseline, no lock
    limits = {t.shown["enforced_limit_w"].mean for t in trials if "enforced_limit_w" in t.shown}
    assert limits == {300.0}
