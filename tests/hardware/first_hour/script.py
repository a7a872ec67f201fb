"""The first part of the kit's script: it unpacks the wheels beside it, and restarts on top of them."""

from __future__ import annotations

import json
import os
import platform
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
    kit = Path(sys.argv[0]).resolve().parent
    try:
        by_python = json.loads((kit / "wheels/pythons.json").read_text())
    except (OSError, ValueError):
        sys.stderr.write("there is no folder `wheels` beside this script; copy the whole folder\n")
        return 2
    ours = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if platform.machine() != by_python["machine"] or ours not in by_python:
        has = f"{by_python.pop('machine')}, Python {', '.join(by_python)}"
        sys.stderr.write(f"the wheels are for {has}; this is {platform.machine()}, Python {ours}\n")
        return 2
    wheels = [kit / "wheels" / name for name in by_python[ours]]
    with tempfile.TemporaryDirectory(prefix="first-hour-") as folder:
        Path(folder).chmod(0o755)
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as packed:
                packed.extractall(folder)
        path = os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])])
        environ = {**os.environ, "PYTHONPATH": path, UNPACKED: folder}
        command = [sys.executable, *sys.argv]
        limit_s = None if "--write" in sys.argv else LIMIT_S  # nothing ends it in a write
        try:
            return subprocess.run(command, env=environ, timeout=limit_s, check=False).returncode
        except subprocess.TimeoutExpired:
            sys.stderr.write(
                f"ended after {LIMIT_S:g} s; both files tell what was found until then\n"
            )
            return 1
