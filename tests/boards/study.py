"""`jouletune run` on mounted boards through a real actuator: `python -m tests.boards.study --help`.

All is simulated; the held setting is scored by the physics behind the files.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

from db import open_store
from tests.actuation import answers
from tests.bench.result import header
from tests.boards.machine import BATCHES, COOL_K, Machine
from tests.boards.mounted import HERE, MountedBoard, mounted
from tests.boards.trees import LAYOUTS, board
from tuner.core import Phase, Trial

P99 = 1.0 + 0.01 * 2.576
"""A batch's 99th percentile over its time: see `tests.boards.machine.JITTER`."""
LIMIT = 1.2
CONSOLE = "import sys; from tuner.cli.app import main; sys.exit(main(sys.argv[1:]))"
KNOBS = ("gpu.clock_mhz", "gpu.mem_clock_mhz", "cpu.max_mhz", "batch_size")
SERVICE = """
name = "inference"
url = "{url}"
version = "1"
cpu_time = false
always_busy = true

[[knob]]
name = "batch_size"
role = "batch"
values = [1, 2, 4, 8, 16]
default = 8
set = {{ method = "POST", path = "/config", json = {{ batch = "{{value}}" }} }}
read = {{ path = "/config", json = "batch" }}

[latency]
histogram = "batch_seconds"
"""
ACTUATOR = """
socket = "{folder}/actuator.sock"
state_dir = "{folder}/journal"
drivers = ["{device}:{root}"]
[[device]]
match = "{device}*"
[device.grant]
{grants}
"""
START_S = 30.0

Values = Mapping[str, float]


@dataclass(frozen=True)
class Outcome:
    """The result of one study, by the true values."""

    board: str
    policy: str
    seed: int
    saving: float
    possible: float
    kept: bool
    tried: int
    tried_above: int
    trials_to_95: int | None
    seconds: float

    @property
    def captured(self) -> float:
        return self.saving / self.possible if self.possible else 1.0


class Truth:
    """The settled energy and p99 of every setting of a board."""

    def __init__(self, name: str) -> None:
        layout, machine = LAYOUTS["orin" if name == "odd" else name], board(name).machine
        self.grid: dict[tuple[float, ...], tuple[float, float]] = {}
        for gpu, memory, cpu, batch in product(
            [hz / 1e6 for hz in layout.gpu_hz],
            [hz / 1e6 for hz in layout.memory_hz],
            [khz / 1e3 for khz in layout.cpu_khz],
            BATCHES,
        ):
            machine.batch = batch
            machine.clocks = lambda at=(gpu, memory, cpu): (*at, 1e9)  # type: ignore[misc]
            joules, slowest_ms = steady(machine)
            self.grid[gpu, memory, cpu, batch] = joules, slowest_ms * P99
        self.default = (
            layout.gpu_hz[-1] / 1e6,
            layout.memory_hz[-1] / 1e6,
            layout.cpu_khz[-1] / 1e3,
            8,
        )

    def possible(self, limit_ms: float) -> float:
        """Return the most that can be saved under a limit."""
        good = [energy for energy, p99 in self.grid.values() if p99 <= limit_ms]
        return 1.0 - min(good) / self.grid[self.default][0]

    def of(self, setting: Mapping[str, Any], limit_ms: float) -> tuple[float, bool]:
        """Return the true saving of a setting, and whether it keeps a limit."""
        whole = dict(zip(KNOBS, self.default, strict=True)) | {
            k: float(v) for k, v in setting.items() if k in KNOBS
        }
        energy, p99 = self.grid[tuple(whole[k] for k in KNOBS)]
        return 1.0 - energy / self.grid[self.default][0], p99 <= limit_ms


def steady(machine: Machine) -> tuple[float, float]:
    """Return a machine's energy per item and its slow batches' time in ms, once it is warm.

    One that heats over its trip point alternates between throttled and not; the result is the mean of both,
    and the slower time if it is that of more than one batch in a hundred.
    """
    chip, thermal = machine.chip, machine.chip.thermal
    machine.hot = False
    free, watts = chip.settled(machine.work, machine.point())
    if thermal.settled_c(watts, leaking=False) <= machine.trip_c:
        return watts * free.step_s / machine.batch, free.step_s * 1000.0
    machine.celsius, joules, items = machine.trip_c, 0.0, 0.0
    batches: dict[float, float] = {}
    for _ in range(400):
        pace = machine.pace()
        machine.celsius, drawn = thermal.warm(machine.celsius, pace.power_w, 0.25, leaking=True)
        machine.hot = machine.celsius > machine.trip_c + (COOL_K if machine.hot else 0.0)
        joules, items = joules + drawn, items + 0.25 / pace.step_s * machine.batch
        batches[pace.step_s] = batches.get(pace.step_s, 0.0) + 0.25 / pace.step_s
    machine.hot = False
    often = [step for step, count in batches.items() if count > 0.01 * sum(batches.values())]
    return joules / items, max(often) * 1000.0


def study(there: MountedBoard, policy: str, seed: int, trials: int, folder: Path) -> dict[str, Any]:
    """Run one study of a Jetson board and return what `jouletune run --json` printed."""
    layout = LAYOUTS["orin" if there.name == "odd" else there.name]
    spans = {
        "gpu.clock_mhz": [hz / 1e6 for hz in layout.gpu_hz],
        "gpu.mem_clock_mhz": [hz / 1e6 for hz in layout.memory_hz],
        "cpu.max_mhz": [khz / 1e3 for khz in layout.cpu_khz],
    }
    grants = "\n".join(f'"{k}" = {{ min = {v[0]}, max = {v[-1]} }}' for k, v in spans.items())
    return granted_study(there, "jetson", grants, policy, seed, trials, folder)


def granted_study(
    there: MountedBoard,
    device: str,
    grants: str,
    policy: str,
    seed: int,
    trials: int,
    folder: Path,
    spec: str = "",
) -> dict[str, Any]:
    """Run one study of a device with these grants and return what `jouletune run --json` printed.

    `device` is its driver, `spec` its name for `--device` if that differs.
    """
    (folder / "service.toml").write_text(SERVICE.format(url=there.url))
    config = folder / "actuator.toml"
    config.write_text(ACTUATOR.format(folder=folder, device=device, root=there.root, grants=grants))
    environ = os.environ | {
        "JOULETUNE_ROOT": str(there.root),
        "JOULETUNE_ACTUATOR": str(folder / "actuator.sock"),
        "PYTHONPATH": str(HERE),
    }
    serve = [sys.executable, "-m", "agents.actuator.main", "serve", str(config)]
    with subprocess.Popen(serve, env=environ, cwd=folder) as actuator:
        try:
            until = time.monotonic() + START_S
            while not answers(folder / "actuator.sock"):
                assert actuator.poll() is None and time.monotonic() < until, "no actuator"
                time.sleep(0.05)
            options = [
                "--device",
                spec or device,
                "--workload",
                f"service:{folder / 'service.toml'}",
            ]
            options += ["--policy", policy, "--trials", str(trials), "--seed", str(seed), "--json"]
            options += ["--constraint", f"latency_p99_ms <= {LIMIT}x baseline", "--window", "1.5"]
            done = subprocess.run(
                [sys.executable, "-c", CONSOLE, "run", *options, "--state-dir", str(folder / "state")],
                env=environ, cwd=folder, capture_output=True, text=True, check=False,
            )  # fmt: skip
        finally:
            actuator.terminate()
            actuator.wait(START_S)
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-3000:] or done.stdout[-3000:])
    assert there.altered == {}, there.altered
    granted: dict[str, Any] = json.loads(done.stdout)
    return granted


def trials_of(folder: Path) -> list[Trial]:
    """Return the trials of a study, in order, from its database."""
    (file,) = (folder / "state").rglob("*.sqlite")
    store = open_store(f"sqlite:///{file}", create=False)
    (one,) = store.studies.list()
    return list(store.trials.list(one.id))


def outcome(name: str, policy: str, seed: int, trials: int, truth: Truth) -> Outcome:
    """Mount a board, run a study on it, and score the held setting.

    The limit is 1.2 × the baseline as the study measured it, first: a board that throttles once it is warm
    has another one then.
    """
    with tempfile.TemporaryDirectory(prefix="board-") as folder:
        began = time.monotonic()
        with mounted(name, Path(folder) / "root") as there:
            report = study(there, policy, seed, trials, Path(folder))
        made = trials_of(Path(folder))
    first = next(t for t in made if t.phase is Phase.BASELINE and "latency_p99_ms" in t.shown)
    limit_ms = LIMIT * first.shown["latency_p99_ms"].mean
    possible = truth.possible(limit_ms)
    tried = [truth.of(t.setting, limit_ms) for t in made if t.phase is Phase.TUNING]
    held = report["best"]["setting"] if report.get("best") else {}
    saving, kept = truth.of(held, limit_ms)
    near = (n for n, (saved, good) in enumerate(tried, 1) if good and saved >= 0.95 * possible)
    return Outcome(
        board=name,
        policy=policy,
        seed=seed,
        saving=saving,
        possible=possible,
        kept=kept,
        tried=len(tried),
        tried_above=sum(not good for _, good in tried),
        trials_to_95=next(near, None),
        seconds=time.monotonic() - began,
    )


def main(arguments: Sequence[str]) -> None:
    """Run the requested studies, print a line for each, and write them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--boards", default="orin,tx2,odd")
    parser.add_argument("--policies", default="polythrottle,polythrottle-two-phase")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args(arguments)
    runs: list[dict[str, Any]] = []
    for name in options.boards.split(","):
        truth = Truth(name)
        for policy, seed in product(options.policies.split(","), range(options.seeds)):
            one = outcome(name, policy, seed, options.trials, truth)
            runs.append(asdict(one) | {"captured": one.captured})
            sys.stdout.write(f"{json.dumps(runs[-1])}\n")
            sys.stdout.flush()
            if options.output:
                options.output.write_text(json.dumps({**header(), "runs": runs}, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
