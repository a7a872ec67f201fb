"""The first part of the kit's script: it unpacks the wheels beside it, and restarts on top of them."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

UNPACKED = "JOULETUNE_FIRST_HOUR"
LIMIT_S = 358.0
"""The time limit in s, also with a hanging driver."""


def start() -> int:
    """Run the kit on its wheels, which are only unpacked, so that no pip is needed."""
    if UNPACKED in os.environ:
        from tests.hardware.first_hour.main import main

        return main()
    wheels = sorted((Path(sys.argv[0]).resolve().parent / "wheels").glob("*.whl"))
    if not wheels:
        sys.stderr.write("there is no folder `wheels` beside this script; copy the whole folder\n")
        return 2
    tags = {wheel.stem.split("-")[-3] for wheel in wheels if "-abi3-" not in wheel.name}
    fixed, ours = {tag for tag in tags if tag.startswith("cp3")}, f"cp3{sys.version_info[1]}"
    if fixed - {ours}:
        wanted = ", ".join(sorted(fixed))
        sys.stderr.write(
            f"the wheels are for {wanted}, this Python is {ours}: start it with that\n"
        )
        return 2
    with tempfile.TemporaryDirectory(prefix="first-hour-") as folder:
        Path(folder).chmod(0o755)
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as packed:
                packed.extractall(folder)
        path = os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])])
        environ = {**os.environ, "PYTHONPATH": path, UNPACKED: folder}
        command = [sys.executable, *sys.argv]
        try:
            return subprocess.run(command, env=environ, timeout=LIMIT_S, check=False).returncode
        except subprocess.TimeoutExpired:
            sys.stderr.write(
                f"ended after {LIMIT_S:g} s; both files tell what was found until then\n"
            )
            return 1
