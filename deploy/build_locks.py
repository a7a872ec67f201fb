"""Write the locks: `build_locks.py UV [NAME ...]`, every package of an installation with its digests.

UV is the command that resolves, for every Python and processor at once. What the constraints name stays at
that release; what they do not, and pyproject.toml asks for, gets the newest.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1]
LOCKS = Path(__file__).with_name("locks")
EXTRAS: dict[str, tuple[str, ...]] = {"agent": (), "tuner": ("tuner", "postgres")}
WHERE = {
    "agent": ("--universal", "--python-version", "3.10"),
    "tuner": ("--python-version", "3.11", "--python-platform", "x86_64-manylinux_2_28"),
}
WHAT = {
    "agent": "An agent and its actuator: Python 3.10 and newer, x86-64 and ARM.",
    "tuner": """A tuner, with PostgreSQL: Python 3.11 to 3.13 on x86-64. torch is the CPU build for 3.11;
# for newer Pythons install torch first (Debian 13: apt install python3-torch).""",
}
HEADER = """# {what}
# Written by `make locks`, from pyproject.toml and the constraints.
# pip install --require-hashes -r {name}.txt
"""
TORCH = re.compile(r"^(torch==\S+)", re.MULTILINE)


def main() -> None:
    """Write the locks that are named, or all."""
    uv, *names = sys.argv[1:]
    uv = str(Path(shutil.which(uv) or uv).absolute())
    for name in names or EXTRAS:
        file = LOCKS / f"{name}.txt"
        file.write_text(locked(uv, name), encoding="utf-8")
        sys.stdout.write(f"{file.relative_to(SOURCE)}\n")


def locked(uv: str, name: str) -> str:
    """Return a lock's text. Exits where no set of releases fits."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for file, text in inputs(name).items():
            (folder / file).write_text(text, encoding="utf-8")
        extras = [word for extra in EXTRAS[name] for word in ("--extra", extra)]
        command = [uv, "pip", "compile", "pyproject.toml", *extras, "-c", "constraints.txt",
                   *WHERE[name], "--generate-hashes",
                   "--strip-extras", "--no-header", "--no-annotate", "--no-emit-index-url",
                   "--no-emit-find-links", "--quiet"]  # fmt: skip
        # The folder of wheels that pip is set to look in; uv reads none of pip's settings.
        environ = {"UV_FIND_LINKS": os.environ.get("PIP_FIND_LINKS", ""), **os.environ}
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=environ, cwd=folder
        )
    if done.returncode:
        sys.exit(f"build_locks.py: {name}: {done.stderr.strip()}")
    text = TORCH.sub(r'\1 ; python_version < "3.12"', done.stdout)
    return HEADER.format(what=WHAT[name], name=name) + text


def inputs(name: str) -> dict[str, str]:
    """Return the project and the constraints to resolve: Python 3.10 has its own."""
    lines = constraints("constraints.txt", "python_version >= '3.11'")
    if name == "agent":
        lines += constraints("constraints-310.txt", "python_version < '3.11'")
    text = TORCH.sub(r"\1+cpu", "\n".join(lines) + "\n")
    project = (SOURCE / "pyproject.toml").read_text(encoding="utf-8")
    return {"pyproject.toml": project, "constraints.txt": text}


def constraints(file: str, marker: str) -> list[str]:
    """Return the lines of a file of constraints, each for some Pythons."""
    lines = (SOURCE / file).read_text(encoding="utf-8").splitlines()
    return [f"{line} ; {marker}" for line in lines if line and not line.startswith(("#", "-"))]


if __name__ == "__main__":
    main()
