"""The reported release, commit, schema and protocol, and the checks of a release's version."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

from db import SCHEMA
from tests.packages import install, site
from tuner import release
from tuner.cli import app
from tuner.errors import ConfigError
from tuner.wire import PROTOCOL

__all__ = ["site"]

SOURCE = Path(__file__).parents[3]


def test_it_prints_release_commit_schema_and_protocol(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = tmp_path / "commit.txt"
    noted.write_text("0123456789ab\n")
    monkeypatch.setattr(release, "COMMIT", noted)
    assert app.main(["--version"]) == 0
    details = f"commit 0123456789ab, database schema {SCHEMA}, wire protocol {PROTOCOL}"
    assert capsys.readouterr().out == f"jouletune {version('jouletune')} ({details})\n"


def test_a_checkout_reports_its_commit() -> None:
    if not (SOURCE / ".git").exists():
        pytest.skip("this is no checkout")
    command = ["git", "-C", str(SOURCE), "rev-parse", "HEAD"]
    head = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert head.startswith(release.commit().removesuffix("-dirty"))
    assert release.commit()


def test_another_distribution_with_a_package_of_our_name_stops_the_start(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    release.check_names()
    install(site, "robots", "", "")
    (site / "robots-1.0.dist-info" / "top_level.txt").write_text("agents\n")
    with pytest.raises(ConfigError, match="`agents`"):
        release.check_names()
    for command in (["agent", "serve"], ["tuner", "serve"], ["run"]):
        assert app.main([*command, "--json"]) == 2
        problem = json.loads(capsys.readouterr().err)
        assert "`agents`" in problem["message"] and "robots" in problem["message"]
        assert "a separate environment" in problem["hint"]


def test_a_commit_tagged_with_another_version_is_not_built(tmp_path: Path) -> None:
    code = (
        "import build_wheel as b; v = b.released(); b.refuse_other_tags(v, ['nightly', 'v' + v]); "
        "b.refuse_other_tags(v, []); print('fits'); b.refuse_other_tags(v, ['v99.0'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=SOURCE / "deploy",
    )
    assert done.stdout == "fits\n" and done.returncode == 1
    assert "tagged v99.0" in done.stderr


def test_the_changelog_keeps_the_form_and_has_the_version() -> None:
    lines = (SOURCE / "CHANGELOG.md").read_text().splitlines()
    releases = [line.split(" - ")[0][4:-1] for line in lines if line.startswith("## ")]
    project = tomllib.loads((SOURCE / "pyproject.toml").read_text())["project"]
    assert releases[0] == "Unreleased"
    assert releases[1:] == sorted(releases[1:], reverse=True) and project["version"] in releases
    kinds = {line[4:] for line in lines if line.startswith("### ")}
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert "Private :: Do Not Upload" in project["classifiers"]


def test_the_pods_run_the_images_of_this_version() -> None:
    project = tomllib.loads((SOURCE / "pyproject.toml").read_text())["project"]
    files = (SOURCE / "deploy/kubernetes").glob("*/kustomization.yaml")
    tags = [tag for file in files for tag in re.findall(r'newTag: "(.*)"', file.read_text())]
    assert tags == [project["version"]] * 3
