"""`jouletune job`: a batch job's own setting, from the batch system's prolog and epilog."""

from __future__ import annotations

import os
import sys
from typing import NoReturn


def begin() -> None:
    """Lease the setting that the job's comment asks for, on the job's own devices, within [job.grant].

    Run by root from Slurm's Prolog with --comment=jouletune:gpu.power_limit_w=250, or with
    --comment=jouletune:profile=STUDY for the setting of this node's last hold of that study. Always exits
    with 0: a refused wish is logged and noted in the job's record, and the job starts at the original
    settings.
    """
    _become("begin")


def end() -> None:
    """End the job's lease, restore its devices, and note its energy in the job's record.

    Run by root from Slurm's Epilog. Always exits with 0.
    """
    _become("end")


def _become(verb: str) -> NoReturn:
    """Replace this process by `agents.job.main`, which starts in a fraction of the time."""
    os.execv(sys.executable, [sys.executable, "-I", "-m", "agents.job.main", verb])
