"""What a release needs: a tag that fits, a changelog in its form, and images of its version."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

CHECKOUT = Path(__file__).parents[3]


def test_a_commit_tagged_with_another_version_is_not_built() -> None:
    code = (
        "import build_wheel as b; v = b.released(); b.refuse_other_tags(v, ['nightly', 'v' + v]); "
        "b.refuse_other_tags(v, []); print('fits'); b.refuse_other_tags(v, ['v99.0'])"
    )
    python = (sys.executable, "-c", code)
    done = subprocess.run(python, capture_output=True, text=True, cwd=CHECKOUT / "deploy")
    assert done.stdout == "fits\n" and done.returncode == 1
    assert "tagged v99.0" in done.stderr


def test_the_changelog_keeps_the_form_and_has_the_version() -> None:
    lines = (CHECKOUT / "CHANGELOG.md").read_text().splitlines()
    releases = [line.split(" - ")[0][4:-1] for line in lines if line.startswith("## ")]
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    assert releases[0] == "Unreleased"
    assert releases[1:] == sorted(releases[1:], reverse=True) and project["version"] in releases
    kinds = {line[4:] for line in lines if line.startswith("### ")}
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert "Private :: Do Not Upload" in project["classifiers"]


def test_the_pods_run_the_images_of_this_version() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    files = (CHECKOUT / "deploy/kubernetes").glob("*/kustomization.yaml")
    tags = [tag for file in files for tag in re.findall(r'newTag: "(.*)"', file.read_text())]
    assert tags == [project["version"]] * 3
