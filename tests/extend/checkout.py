"""A copy of the product for an addition, and the files that the addition had to change."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from shutil import copytree, ignore_patterns

import tuner
from tests.processes import run_to_end

HERE = Path(tuner.__file__).parents[1]


class Checkout:
    """A copy of some packages; the others, and the tests, are those of the checkout."""

    def __init__(self, folder: Path, *packages: str) -> None:
        self.folder = folder
        for package in packages:
            copytree(HERE / package, folder / package, ignore=ignore_patterns("__pycache__"))
        self._before = self._texts()

    def add(self, path: str, text: str) -> None:
        """Write a new file."""
        assert path not in self._before, f"{path} is no addition"
        (self.folder / path).parent.mkdir(exist_ok=True)
        (self.folder / path).write_text(text)

    def insert(self, path: str, before: str, text: str) -> None:
        """Insert a text before one that occurs once in an existing file."""
        whole = (self.folder / path).read_text()
        assert whole.count(before) == 1, f"{path} has {before!r} {whole.count(before)} times"
        (self.folder / path).write_text(whole.replace(before, text + before))

    @property
    def added(self) -> list[str]:
        """The added files."""
        return sorted(self._texts().keys() - self._before.keys())

    @property
    def changed(self) -> list[str]:
        """The existing files that were changed."""
        now = self._texts()
        return sorted(path for path, text in self._before.items() if now.get(path) != text)

    def python(self, program: str, *arguments: str) -> str:
        """Return the output of a program that imports modules from this copy first."""
        done = run_to_end(
            [sys.executable, "-c", program, *arguments],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": f"{self.folder}{os.pathsep}{HERE}"},
            timeout=60.0,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _texts(self) -> dict[str, bytes]:
        return {
            str(path.relative_to(self.folder)): path.read_bytes()
            for path in self.folder.rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }
