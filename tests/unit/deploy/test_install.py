"""install.sh, checked without installing anything."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import run_to_end

DEPLOY = Path(__file__).parents[3] / "deploy"
INSTALL = DEPLOY / "install.sh"
PLACES = ("/opt/jouletune", "/etc/jouletune", "/usr/local/bin/jouletune")

not_installed = pytest.mark.skipif(
    any(Path(place).exists() for place in PLACES), reason="jouletune is installed on this machine"
)


def install(*options: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return run_to_end(
        ["bash", str(INSTALL), *options], env={**os.environ, **environ}, stdin=subprocess.DEVNULL
    )


@pytest.fixture
def jetpack_6(tmp_path: Path) -> str:
    """Return a PATH with a python3 of version 3.10, as on Ubuntu 22.04."""
    python = tmp_path / "python3"
    code = "import sys; sys.version_info = (3, 10, 12); exec(sys.argv[1])"
    python.write_text(f"#!/bin/sh\nexec {sys.executable} -c '{code}' \"$2\"\n")
    python.chmod(0o755)
    return f"{tmp_path}:{os.environ['PATH']}"


@not_installed
def test_on_jetpack_6_the_agent_has_separate_version_constraints(jetpack_6: str) -> None:
    done = install("--dry-run", "--agent-only", "--jetson", PATH=jetpack_6)
    assert done.returncode == 0, done.stderr
    assert "constraints-310.txt" in done.stdout and "constraints.txt" not in done.stdout
    assert "constraints.txt" in install("--dry-run", "--agent-only").stdout


@not_installed
def test_on_jetpack_6_there_is_no_tuner(jetpack_6: str) -> None:
    done = install("--dry-run", PATH=jetpack_6)
    assert done.returncode != 0
    assert "3.11" in done.stderr and "--agent-only" in done.stderr


@not_installed
def test_a_dry_run_lists_all_and_changes_nothing() -> None:
    done = install("--dry-run")
    assert done.returncode == 0, done.stderr
    for placed in sorted(DEPLOY.glob("jouletune*")) + sorted(DEPLOY.glob("*.toml")):
        assert f"{placed} " in done.stdout
    assert "[tuner" in done.stdout.replace("\\", "")
    assert not any(Path(place).exists() for place in PLACES)


@not_installed
def test_an_agents_host_gets_neither_tuner_nor_token() -> None:
    told = install("--dry-run", "--agent-only").stdout
    assert "jouletune-actuator.service" in told
    assert "jouletune-tuner.service" not in told
    assert "[tuner" not in told.replace("\\", "")
    assert "token_urlsafe" not in told


@not_installed
def test_removing_names_every_place_that_installing_fills() -> None:
    installing, removing = install("--dry-run").stdout, install("--dry-run", "--purge").stdout
    for place in (*PLACES, "/etc/sysusers.d/jouletune.conf", "/etc/tmpfiles.d/jouletune.conf"):
        assert place in installing
        assert place in removing
    for state in ("tuner", "agent", "actuator"):
        assert f"/var/lib/jouletune-{state}" in removing
        assert f"/etc/systemd/system/jouletune-{state}.service.d" in removing


@not_installed
def test_a_board_gets_the_drop_ins_that_its_files_need_and_other_hosts_none() -> None:
    plain, both = (
        install("--dry-run").stdout,
        install("--dry-run", "--cpu", "--drm", "--jetson", "--unit").stdout,
    )
    for file in (
        "actuator-cpu.conf",
        "actuator-drm.conf",
        "drm-files.conf",
        "actuator-jetson.conf",
        "actuator-unit.conf",
        "powercap.rules",
    ):
        assert file in both
        assert file not in plain
    assert "/etc/udev/rules.d/90-jouletune.rules" in both
    assert "/etc/udev/rules.d/90-jouletune.rules" in install("--dry-run", "--purge").stdout


def test_an_unknown_option_does_nothing() -> None:
    for options in (["--everything"], ["--yes"]):
        done = install(*options)
        assert done.returncode == 2
        assert "usage:" in done.stderr


def test_uninstalling_keeps_data_and_prints_its_place() -> None:
    told = install("--dry-run", "--uninstall").stdout
    (kept,) = (line for line in told.splitlines() if line.startswith("removed;"))
    for place in ("/etc/jouletune", "/var/lib/jouletune-tuner", "/var/lib/jouletune-agent"):
        assert place in kept
        assert f" {place} " not in told.replace(kept, "").replace("\n", " ")
    assert "userdel" not in told and "+ rm -rf /opt/jouletune" in told


@pytest.mark.parametrize("option", ["--uninstall", "--purge"])
def test_removing_without_a_terminal_needs_a_yes(option: str) -> None:
    done = install(option)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "nothing is changed" in done.stderr and "--yes" in done.stderr


@not_installed
def test_every_step_is_a_line() -> None:
    for options in ([], ["--purge"]):
        told = install("--dry-run", *options).stdout.splitlines()
        assert len([line for line in told if line.startswith("[")]) >= 3


@pytest.mark.skipif(
    shutil.which("shellcheck") is None, reason="no shellcheck here: apt install shellcheck"
)
def test_shellcheck_finds_nothing() -> None:
    scripts = [str(INSTALL), *map(str, DEPLOY.parent.glob("tests/systemd/*.sh"))]
    done = run_to_end(["shellcheck", *scripts])
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("code", [0, 1])
def test_a_long_step_has_a_live_line_on_a_terminal_alone(code: int) -> None:
    functions = INSTALL.read_text().removesuffix('main "$@"\n')
    script = f"{functions}\nlive packages '1 to 10 min' sh -c 'cat; exit {code}'"
    ours, theirs = pty.openpty()
    done = subprocess.Popen(["bash", "-c", script], stdin=subprocess.PIPE, stdout=theirs)
    os.close(theirs)
    assert os.read(ours, 1000).startswith(b"\rpackages: 0 s so far, usually 1 to 10 min")
    done.communicate()  # ends cat
    os.close(ours)
    assert done.returncode == code
    quiet = subprocess.run(["bash", "-c", script], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           check=False)  # fmt: skip
    assert (quiet.returncode, quiet.stdout) == (code, b"")
