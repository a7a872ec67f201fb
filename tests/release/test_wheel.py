"""Sdist and wheel: built once, installed into an empty environment, tested without the checkout."""

from __future__ import annotations

import json
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.processes import run_to_end
from tests.release import smoke

SOURCE = Path(__file__).parents[2]
FROZEN = SOURCE / "tests/frozen/0.2.0/sqlite.sql"
PACKAGES = ("agents", "db", "policies", "tuner")


def run(*command: str | Path, cwd: Path = SOURCE) -> str:
    done = run_to_end(command, cwd=cwd, timeout=500)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def environment(folder: Path, wheel: Path) -> Path:
    """Install a wheel into an empty environment, and return its folder of commands.

    Its dependencies come from the environment of the tests, without `.pth` files, so that the checkout
    is not found. `make release-check` installs the dependencies for real.
    """
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    python = folder / "bin" / "python"
    own = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps")
    run(*pip, "--no-index", wheel)
    Path(own, "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python.parent


@pytest.mark.slow
def test_the_wheel_does_everything_without_the_checkout(tmp_path: Path) -> None:
    built = tmp_path / "built"
    run(sys.executable, "deploy/build_wheel.py", built)
    (wheel,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
    listed = run("git", "ls-files", "-co", "--exclude-standard", *PACKAGES).splitlines()
    ours = {name for name in listed if (SOURCE / name).is_file()} | {"tuner/commit.txt"}
    packed = {
        n
        for n in zipfile.ZipFile(wheel).namelist()
        if n.startswith(tuple(f"{p}/" for p in PACKAGES))
    }
    assert packed == ours
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert ours | {"deploy/install.sh", "constraints.txt", "LICENSE", "CHANGELOG.md"} <= inside
    assert not [name for name in inside if name.startswith(("tests", "docs"))]

    binaries = environment(tmp_path / "environment", wheel)
    commit = zipfile.ZipFile(wheel).read("tuner/commit.txt").decode().strip()
    script = Path(smoke.__file__)
    told = run(sys.executable, script, binaries, tmp_path / "work", FROZEN, commit, cwd=tmp_path)
    assert "pages" in json.loads(told.splitlines()[-1])
