"""A folder of two tiny surfaces with all answers known by hand."""

from __future__ import annotations

from pathlib import Path

from tests.bench.contest.surfaces import SurfaceProblem, load_problems
from tuner.core import Setting

ROLES = """\
[tiny]
objective = "energy_j"
constrained = "latency_s"
resources = ["gpu_clock_mhz"]
batch = ["batch_size"]
"""
HEADER = "surface,device,workload,gpu_clock_mhz,batch_size,energy_j,latency_s,power_w\n"
STEEP = """\
T|w,T,w,1000,1,12,0.9,
T|w,T,w,1000,2,10,1.0,
T|w,T,w,1000,4,7,1.5,
T|w,T,w,500,1,9,1.05,
T|w,T,w,500,2,8,1.08,
T|w,T,w,500,4,6,1.2,
"""
FLAT = """\
F|w,F,w,1000,1,10.01,1.0,
F|w,F,w,1000,2,10,1.0,
F|w,F,w,1000,4,9.99,1.0,
F|w,F,w,500,1,10.02,1.0,
F|w,F,w,500,2,10.01,1.0,
F|w,F,w,500,4,10,1.0,
"""


def write_tables(folder: Path) -> Path:
    """Write the folder: at slack 1.1 the steep surface's best setting saves a fifth."""
    folder.mkdir(exist_ok=True)
    (folder / "tiny.csv").write_text(HEADER + STEEP + FLAT)
    (folder / "surfaces.toml").write_text(ROLES)
    return folder


def steep(folder: Path) -> SurfaceProblem:
    """Return the surface worth tuning; its baseline is clock 1000, batch 2."""
    return load_problems(write_tables(folder))[0]


def at(clock: int, batch: int) -> Setting:
    return {"gpu_clock_mhz": clock, "batch_size": batch}
