"""The Debian packages, checked without building them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from build_deb import AGENT, PLACED, TUNER, clear, locked, script_text

from db import SCHEMA

DEPLOY = Path(__file__).parents[3] / "deploy"
NAMES = ("preinst", "postinst", "prerm", "postrm")
PURGED = {
    AGENT: ("var/lib/jouletune-agent/journal", "var/lib/jouletune-actuator/gpu.json",
            "etc/udev/rules.d/90-jouletune.rules", "etc/systemd/system/jouletune-agent.service.d/a",
            "etc/systemd/system/jouletune-actuator.service.d/cpu.conf",
            "etc/systemd/system/jouletune-metrics.timer.d/a"),
    TUNER: ("var/lib/jouletune-tuner/jouletune.sqlite", "etc/jouletune/token",
            "etc/jouletune/tuner.toml", "etc/systemd/system/jouletune-tuner.service.d/a"),
}  # fmt: skip
"""What a package's purge deletes: on a host with both, the other's files stay."""
SCRIPTS = [(package, script) for package in (AGENT, TUNER) for script in NAMES]


@pytest.fixture
def scripts(tmp_path: Path) -> list[str]:
    files = []
    for package, script in SCRIPTS:
        file = tmp_path / f"{package}.{script}"
        file.write_text(script_text(package, script, "1.2.3"))
        files.append(str(file))
    return files


def test_what_a_killed_build_left_is_removed_and_what_is_kept_stays(tmp_path: Path) -> None:
    for name in (
        "root-4711/usr",
        "root/tmp",
        "tmpab12/DEBIAN",
        "filled-bookworm-1",
        "wheels-3.11-2",
    ):
        (tmp_path / name).mkdir(parents=True)
    clear(tmp_path)
    assert sorted(f.name for f in tmp_path.iterdir()) == ["filled-bookworm-1", "wheels-3.11-2"]


def test_every_unit_configuration_and_rule_is_in_a_package() -> None:
    patterns = ("*.service", "*.timer", "*.toml", "*.rules", "*.conf", "*.sysusers", "*.tmpfiles")
    files = {file.name for pattern in patterns for file in DEPLOY.glob(pattern)}
    placed = [name for files in PLACED.values() for name in files]
    assert files <= {*placed}
    assert len(placed) == len({*placed})
    assert "tuner" not in " ".join(PLACED[AGENT])


def test_scripts_are_plain_shell(scripts: list[str]) -> None:
    for file in scripts:
        done = subprocess.run(["dash", "-n", file], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


@pytest.mark.skipif(
    shutil.which("shellcheck") is None, reason="no shellcheck here: apt install shellcheck"
)
def test_shellcheck_finds_nothing(scripts: list[str]) -> None:
    done = subprocess.run(["shellcheck", *scripts], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_both_packages_refuse_a_newer_database_before_they_unpack() -> None:
    for package in (AGENT, TUNER):
        text = script_text(package, "preinst", "1.2.3")
        assert f"readonly SCHEMA={SCHEMA} " in text and "1.2.3 reads up to" in text
        assert text.rstrip().endswith("esac") and "    refuse_newer_database\n" in text
    assert "@" not in text.replace('"$@"', "")


@pytest.mark.parametrize("package", PURGED)
def test_only_purging_deletes_and_it_lists_what(package: str, tmp_path: Path) -> None:
    script = script_text(package, "postrm", "1.2.3")
    script = re.sub(r"(?<![\w}])/(?=(etc|var|usr|opt|run)/)", f"{tmp_path}/", script)
    for name in (*PURGED[AGENT], *PURGED[TUNER], "bin/getent"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("#!/bin/false\n")
    (tmp_path / "bin/getent").chmod(0o755)
    environ = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "DPKG_MAINTSCRIPT_PACKAGE": package}
    run = ("sh", "-c", script, package)
    before = files(tmp_path)
    subprocess.run([*run, "remove"], env=environ, check=True)
    assert files(tmp_path) == before
    listed = re.findall(
        r"  (/\S+)$", subprocess.check_output([*run, "purge"], env=environ, text=True), re.M
    )
    assert before - files(tmp_path) == {*PURGED[package]}
    assert all(
        any((tmp_path / name).is_relative_to(path) for path in listed) for name in PURGED[package]
    )


def files(top: Path) -> set[str]:
    return {str(file.relative_to(top)) for file in top.rglob("*") if file.is_file()}


def test_a_lock_is_narrowed_to_one_python() -> None:
    for_310, for_311 = locked("agent", "3.10"), locked("agent", "3.11")
    assert "tomli==" in for_310 and "tomli==" not in for_311
    for text in (for_310, for_311):
        assert " ; " not in text and "colorama" not in text
        assert all(entry.count("--hash=sha256:") for entry in re.split(r"\n(?=\w)", text))
    assert "\ntorch==" in locked("tuner", "3.11") and "\ntorch==" not in locked("tuner", "3.13")
