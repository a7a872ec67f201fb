"""Build the sdist, the wheel from it, and verify.py: `build_wheel.py FOLDER [--version VERSION]`.

What git has of the checkout as it stands is copied, with its commit, and built there. A tag on the commit
has to be the version's. `--version` gives the copy another one: upgrades are tried with that.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1]
PARTS = ("agents", "db", "deploy", "policies", "tuner", "pyproject.toml", "MANIFEST.in", "README.md",
         "CHANGELOG.md", "LICENSE", "constraints*.txt")  # fmt: skip


def main() -> None:
    """Read the command line and build."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--version", default="")
    given = parser.parse_args()
    for file in build(given.folder, given.version):
        sys.stdout.write(f"{file}\n")
    # Alone, too: who checks evidence need not install anything.
    sys.stdout.write(f"{shutil.copy2(SOURCE / 'tuner' / 'verify.py', given.folder)}\n")


def build(folder: Path, version: str = "") -> list[Path]:
    """Return the sdist and the wheel. Exits where the commit's tag is not the version's."""
    folder.mkdir(parents=True, exist_ok=True)
    refuse_other_tags(released(), git("tag", "--points-at", "HEAD").split())
    with tempfile.TemporaryDirectory() as temporary:
        copy, made = Path(temporary, "source"), Path(temporary, "made")
        copy_source(copy, version)
        command = [sys.executable, "-m", "build", "--outdir", str(made), str(copy)]
        environ = {**os.environ, "SOURCE_DATE_EPOCH": git("log", "-1", "--format=%ct").strip()}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
        if done.returncode:
            sys.exit(f"build_wheel.py: {done.stdout[-3000:]}{done.stderr[-3000:]}")
        return [Path(shutil.move(file, folder / file.name)) for file in sorted(made.iterdir())]


def copy_source(to: Path, version: str = "") -> None:
    """Copy what git knows of the product, as it stands, and note the commit in it."""
    for name in git("ls-files", "-z", "-co", "--exclude-standard", "--", *PARTS).split("\0"):
        if name and (SOURCE / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(SOURCE / name, to / name)
    described = git("describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")
    (to / "tuner" / "commit.txt").write_text(described, encoding="utf-8")
    if version:
        project = to / "pyproject.toml"
        text = project.read_text(encoding="utf-8")
        named = re.sub(
            r'^version = ".*"$', f'version = "{version}"', text, count=1, flags=re.MULTILINE
        )
        project.write_text(named, encoding="utf-8")


def released() -> str:
    """Return the version in pyproject.toml."""
    return str(tomllib.loads((SOURCE / "pyproject.toml").read_text())["project"]["version"])


def refuse_other_tags(version: str, tags: list[str]) -> None:
    """Exit where a commit has a version's tag and none is this version's."""
    versions = [tag for tag in tags if re.fullmatch(r"v?\d+(\.\d+)*.*", tag)]
    if versions and version not in [tag.removeprefix("v") for tag in versions]:
        sys.exit(
            f"build_wheel.py: this commit is tagged {', '.join(versions)}, pyproject.toml has version "
            f"{version}; correct one of them"
        )


def git(*arguments: str) -> str:
    """Return what git says of this checkout. Exits where this is none."""
    command = ["git", "-c", f"safe.directory={SOURCE}", "-C", str(SOURCE), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"build_wheel.py: {done.stderr.strip()}; packages are built from a git checkout")
    return done.stdout


if __name__ == "__main__":
    main()
