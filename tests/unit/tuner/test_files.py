"""Files that are whole or not there, and folders for one process."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.errors import raised
from tests.fakes import failing
from tuner import files
from tuner.core import Conflict, StoreError


def test_a_full_disk_leaves_the_old_content_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.json"
    files.write(path, "old")
    monkeypatch.setattr(os, "fsync", failing(errno.ENOSPC))
    with raised(StoreError, "run.json"):
        files.write(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_unfinished_writes_of_another_process_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "token"
    write = (
        "import pathlib, sys; from tuner import files\n"
        "files.write(pathlib.Path(sys.argv[1]), sys.argv[2] * 99999)"
    )
    writers = [subprocess.Popen([sys.executable, "-c", write, str(path), it]) for it in "abcd"]
    assert [writer.wait() for writer in writers] == [0, 0, 0, 0]
    assert path.read_text() in {it * 99999 for it in "abcd"}
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_is_private_from_its_first_moment(tmp_path: Path) -> None:
    files.write(tmp_path / "token", "secret", 0o600)
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600


def test_a_folder_belongs_to_one_process_at_a_time(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    with files.lock(folder, "run", 0o700):
        assert folder.stat().st_mode & 0o777 == 0o700
        with raised(Conflict, "state"):
            files.lock(folder, "run").__enter__()
    with files.lock(folder, "run"):
        pass


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        raised(StoreError, "--state-dir"),
        files.lock(tmp_path / "file" / "state", "agent"),
    ):
        pass
