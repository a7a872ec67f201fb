"""The handling of failed tests by `.ci/run`: each runs once more, alone; see `.ci/again.py`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parents[1]
FLAKY = """
from pathlib import Path

def test_that_fails_once():
    seen = Path(__file__).with_suffix(".seen")
    first = not seen.exists()
    seen.touch()
    assert not first
"""
ALONE = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
PROJECT = "[tool.pytest.ini_options]\naddopts = ['-p', 'no:cacheprovider']\n"


class Project:
    """A folder with our conftest and again.py, and its own tests."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "tests").mkdir()
        (folder / ".ci").mkdir()
        (folder / "pyproject.toml").write_text(PROJECT)
        shutil.copy(TOP / "tests" / "conftest.py", folder / "tests")
        shutil.copy(TOP / ".ci" / "again.py", folder / ".ci")

    def test(self, **files: str) -> int:
        """Run these test files like a target of CI."""
        for name, text in files.items():
            (self.folder / "tests" / f"test_{name}.py").write_text(text)
        noted = {"JOULETUNE_FAILURES": str(self.folder / "build" / "failures" / "test.jsonl")}
        return self.run([sys.executable, "-m", "pytest", "-q", "tests"], noted)

    def again(self, *targets: str) -> int:
        return self.run([sys.executable, ".ci/again.py", *targets], {})

    def run(self, command: list[str], environ: dict[str, str]) -> int:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "JOULETUNE"))}
        return subprocess.run(
            command, cwd=self.folder, env=kept | environ | ALONE, check=False, capture_output=True
        ).returncode


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_a_test_that_passes_alone_is_listed_as_flaky_with_its_failure(project: Project) -> None:
    assert project.test(one=FLAKY) == 1
    assert project.again("test") == 0
    [listed] = json.loads((project.folder / "build" / "flaky.json").read_text())
    assert listed["test"] == "tests/test_one.py::test_that_fails_once"
    assert "assert not first" in listed["failure"]
    assert project.again("hunt", "2") == 0


def test_a_test_that_fails_twice_fails_the_run(project: Project) -> None:
    assert project.test(one=FLAKY, two="def test_never(): assert False\n") == 1
    assert project.again("test") == 1


def test_more_than_three_failures_are_not_flakes(project: Project) -> None:
    assert project.test(**{f"flaky_{number}": FLAKY for number in range(4)}) == 1
    assert project.again("test") == 1


@pytest.mark.parametrize("text", ["import nowhere\n", "import os\ndef test_it(): os._exit(3)\n"])
def test_an_end_without_a_failed_test_fails_the_run(project: Project, text: str) -> None:
    assert project.test(good=FLAKY.replace("not first", "True"), bad=text) != 0
    assert project.again("test") == 1


def test_a_target_that_failed_without_a_test_fails_the_run(project: Project) -> None:
    assert project.test(one=FLAKY) == 1
    assert project.again("test", "docs") == 1
