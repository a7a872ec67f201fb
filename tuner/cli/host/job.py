"""`jouletune job`: a batch job's own setting, from the batch system's prolog and epilog."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

Config = Annotated[Path, typer.Option(metavar="FILE", help="actuator.toml, with the table [job].")]
StateDir = Annotated[Path, typer.Option(metavar="FOLDER", help="Folder of the jobs' records.")]
Holds = Annotated[Path, typer.Option(metavar="FOLDER", help="Holds of this host's agent.")]
CONFIG, RECORDS = Path("/etc/jouletune/actuator.toml"), Path("/var/lib/jouletune-jobs")
HOLDS = Path("/var/lib/jouletune-agent/holds")


def begin(config: Config = CONFIG, state_dir: StateDir = RECORDS, holds: Holds = HOLDS) -> None:
    """Lease the setting that the job's comment asks for, on the job's own devices, within [job.grant].

    Run by root from Slurm's Prolog with --comment=jouletune:gpu.power_limit_w=250, or with
    --comment=jouletune:profile=STUDY for the setting of this node's last hold of that study. Always exits
    with 0: a refused wish is logged and noted in the job's record, and the job starts at the original
    settings.
    """
    _become("begin", config, state_dir, holds)


def end(config: Config = CONFIG, state_dir: StateDir = RECORDS) -> None:
    """End the job's lease, restore its devices, and note its energy in the job's record.

    Run by root from Slurm's Epilog. Always exits with 0.
    """
    _become("end", config, state_dir)


def _become(verb: str, *paths: Path) -> NoReturn:
    """Replace this process by `agents.job.main`, which starts in a fraction of the time."""
    command = [sys.executable, "-I", "-m", "agents.job.main", verb, *map(str, paths)]
    os.execv(sys.executable, command)
