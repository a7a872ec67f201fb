"""`python -m jouletune_bench.fleet.example`: train the example app by a real `flwr run`, and tell of it.

Flower leaves a `flower-superlink` running after a simulation; here it gets a home of its own, and all that
lives in it is ended afterwards.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import psutil

APP = Path(__file__).with_name("app")
GRACE_S = 10.0
JOULETUNE = "import sys; from tuner.cli.app import main; sys.exit(main())"
MARK = "JOULETUNE_FLOWER_RUN"
"""In the environment of all that a run starts, also of what leaves its process group."""


def main() -> int:
    """Run it; return Flower's exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m jouletune_bench.fleet.example", description=__doc__
    )
    parser.add_argument("--database", type=Path, default=Path("federation.sqlite"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument(
        "--alpha",
        type=float,
        default=0.1,
        help="concentration of the Dirichlet split of labels; 0: even",
    )
    parser.add_argument("--goal", type=float, default=0.0, help="stop at this accuracy; 0: never")
    parser.add_argument(
        "--objective", default="energy_j", help="metric to minimize: energy_j, round_s or carbon_g"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--python", default=sys.executable, help="Python interpreter of jouletune's environment"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="flower-") as home:
        status = run_flower(
            Path(home),
            options.clients,
            {
                "num-server-rounds": options.rounds,
                "clients": options.clients,
                "alpha": options.alpha,
                "goal": options.goal,
                "objective": options.objective,
                "seed": options.seed,
                "database": str(options.database.resolve()),
                "python": options.python,
            },
        )
    if status == 0:
        ask = ["-c", JOULETUNE, "history", "--workload", "federated"]
        database = f"sqlite:///{options.database.resolve()}"
        subprocess.run([options.python, *ask, "--db", database], check=False)
    return status


def run_flower(home: Path, clients: int, config: Mapping[str, int | float | str]) -> int:
    """Run the app in a simulation and show its output; return Flower's exit status.

    `home` is Flower's; all that the run left behind is ended.
    """
    run_config = " ".join(
        f'{k}="{v}"' if isinstance(v, str) else f"{k}={v}" for k, v in config.items()
    )
    (home / "config.toml").write_text(
        '[superlink]\ndefault = "local"\n[superlink.local]\naddress = ":local:"\n'
        f"options.num-supernodes = {clients}\n"
        "options.backend.client-resources.num-cpus = 1\n",
        encoding="utf-8",
    )
    mark = home.name
    environ = {
        **os.environ,
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "RAY_DEDUP_LOGS": "0",
        # This environment has all that the app needs. Flower would install it once more; if its removal
        # takes longer than 5 s, the run counts as running for minutes after its end.
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        # Ray's default for clients is 15: on a busy machine they take minutes to start.
        "RAY_worker_niceness": "0",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        MARK: mark,
    }
    command = ["flwr", "run", str(APP), "local", "--stream", "--run-config", run_config]
    try:
        return subprocess.run(command, env=environ, check=False).returncode
    finally:
        end_marked(mark)


def end_marked(mark: str) -> None:
    """End every process that a run has left behind: asked, then killed."""
    left = [process for process in psutil.process_iter() if _marked(process, mark)]
    for signal_ in (signal.SIGTERM, signal.SIGKILL):
        for process in left:
            with suppress(psutil.Error):
                process.send_signal(signal_)
        until = time.monotonic() + GRACE_S
        while time.monotonic() < until and any(map(_runs, left)):
            time.sleep(0.1)


def _marked(process: psutil.Process, mark: str) -> bool:
    try:
        return bool(process.pid != os.getpid() and process.environ().get(MARK) == mark)
    except psutil.Error:
        return False


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


if __name__ == "__main__":
    sys.exit(main())
