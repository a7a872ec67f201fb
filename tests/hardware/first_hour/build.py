"""`python -m tests.hardware.first_hour.build FOLDER` builds the kit that runs on a GPU host.

The folder has the product's wheels with all dependencies except torch and the like (`LEFT_OUT`), and one
script. Nothing is installed on the host: the script unpacks the wheels into a temporary folder.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipapp
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[3]
HERE = Path(__file__).parent
SCRIPT, HOST_SCRIPT = "first_hour.pyz", "host.pyz"
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
PLATFORMS = ("manylinux_2_28", "manylinux_2_17", "manylinux2014")
MOST_MIB = 25
LEFT_OUT = {"botorch", "matplotlib", "numpy", "plotly", "pyarrow", "scipy", "torch"}
"""The tuner's dependencies that the kit's study runs without."""
GPU_MAIN = """import sys
from tests.hardware.first_hour.script import start
sys.exit(start())
"""
HOST_MAIN = """import sys
from tests.hardware.first_hour.host import main
sys.exit(main())
"""
HOST_MODULES = ("__init__.py", "host.py", "series.py")
README = """The first hour of jouletune on a GPU host
=========================================
As root if you can, else as you are, with any Python from 3.10 to 3.14:

    python3 first_hour.pyz --output .

At most six minutes. Reads only: no clock, limit or mode is changed, nothing is installed, no network is
used; the GPU is loaded through its CUDA driver, without torch. It leaves first-hour.json, first-hour.md and
evidence.zip in the folder of --output; none has the host's name. --quick takes a tenth of all durations,
--gpu N another GPU than the first. Exit status 3: no GPU answers. On a host of your own, as root, --write
also sets clocks and restores them, after you have typed a confirmation.

host.pyz is the same for a Jetson board or a CPU server, Xeon or EPYC; it needs nothing but Python 3.10:

    python3 host.pyz --output .
"""


def pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*command, *arguments], check=True, cwd=ROOT)


def wheels(folder: Path, machine: str) -> None:
    """Put the product's wheel and all that it needs on each Python into a folder, with a list for each."""
    with tempfile.TemporaryDirectory() as copy:
        source = Path(copy) / "source"
        shutil.copytree(
            ROOT,
            source,
            ignore=lambda _, names: {n for n in names if n.startswith(".") or n == "build"},
        )
        pip("wheel", "--no-deps", "--wheel-dir", str(folder), str(source))
    (ours,) = folder.glob("jouletune-*.whl")
    stand_in = folder / "first_hour_qmc-1-py3-none-any.whl"
    with zipfile.ZipFile(stand_in, "w") as packed:
        packed.writestr("scipy/__init__.py", "")
        packed.writestr("scipy/stats/__init__.py", "")
        packed.write(HERE / "qmc.py", "scipy/stats/qmc.py")
    platforms = [word for name in PLATFORMS for word in ("--platform", f"{name}_{machine}")]
    by_python: dict[str, object] = {"machine": machine}
    for python in PYTHONS:
        constraints = "constraints-310.txt" if python == "3.10" else "constraints.txt"
        with tempfile.TemporaryDirectory() as alone:
            pip(
                "download", "--only-binary=:all:", "--python-version", python, "--implementation", "cp",
                *platforms, "--constraint", str(ROOT / constraints), "--dest", alone, str(ours),
                *(_tuners() if python != PYTHONS[0] else ()),
            )  # fmt: skip
            for compiled in Path(alone).glob("sqlalchemy-*.whl"):
                compiled.unlink()  # 3 MiB for each Python; that without C serves all
                pure = f"sqlalchemy=={compiled.name.split('-')[1]}"
                pip(
                    "download", "--only-binary=:all:", "--no-deps", "--python-version", python,
                    "--implementation", "py", "--abi", "none", "--platform", "any", "--dest", alone, pure,
                )  # fmt: skip
            for file in Path(alone).iterdir():
                shutil.copy(file, folder)
            names = [file.name for file in Path(alone).iterdir()]
            by_python[python] = sorted([*names, stand_in.name])
    (folder / "pythons.json").write_text(json.dumps(by_python, indent=1) + "\n")


def _tuners() -> list[str]:
    """Return what the tuner requires and the kit's study needs; the tuner runs from Python 3.11."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    return [one for one in extras["tuner"] if re.split(r"[<>=]", one)[0] not in LEFT_OUT]


def script(file: Path, main: str, modules: Sequence[str]) -> None:
    """Write a script of this package's modules, with a call that starts them."""
    with tempfile.TemporaryDirectory() as temporary:
        inside = Path(temporary)
        package = inside / "tests/hardware/first_hour"
        package.mkdir(parents=True)
        for module in modules:
            shutil.copy(HERE / module, package)
        for room in (inside / "tests", inside / "tests/hardware"):
            (room / "__init__.py").write_text("")
        (inside / "__main__.py").write_text(main)
        zipapp.create_archive(inside, file, interpreter="/usr/bin/env python3")
    file.chmod(0o755)


def build(folder: Path, machine: str) -> float:
    """Build the kit for a processor and return its size in MiB.

    Raises:
        SystemExit: it is larger than such a host accepts.
    """
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "wheels").mkdir(parents=True)
    wheels(folder / "wheels", machine)
    apart = {"build.py", "host.py", "qmc.py"}
    script(folder / SCRIPT, GPU_MAIN, [m.name for m in HERE.glob("*.py") if m.name not in apart])
    script(folder / HOST_SCRIPT, HOST_MAIN, HOST_MODULES)
    (folder / "README.txt").write_text(README)
    mib = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 2**20
    if mib > MOST_MIB:
        raise SystemExit(f"{folder} has {mib:.0f} MiB; at most {MOST_MIB} travel")
    return mib


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--machine", default="x86_64", choices=("x86_64", "aarch64"))
    given = parser.parse_args()
    print(f"{given.folder}: {build(given.folder, given.machine):.1f} MiB for {given.machine}")
