"""Completion in real shells, each on its own terminal, with typed input."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.unit.tuner.cli import worlds
from tuner.cli.app import main
from tuner.cli.completing import index_file

SHELLS = {
    "bash": ["--norc", "--noprofile", "-i"],
    "zsh": ["-f", "-i"],
}
TOP = Path(__file__).parents[5]
SETUP = {
    "bash": "source ./script",
    "zsh": "autoload -Uz compinit && compinit -u -d ./dump && source ./script",
}
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


class Terminal:
    """A shell on a pseudo-terminal."""

    def __init__(self, shell: str, folder: Path) -> None:
        self._end, other = pty.openpty()
        bin = folder / "bin"
        bin.mkdir()
        (bin / "jouletune").write_text(
            f"#!/bin/sh\nPYTHONPATH={TOP} exec {sys.executable} -c "
            "'import sys; from tuner.cli.app import main; sys.exit(main())' \"$@\"\n"
        )
        (bin / "jouletune").chmod(0o755)
        environment = {
            "PATH": f"{bin}:/usr/bin:/bin", "HOME": str(folder), "TERM": "dumb", "PS1": "> ",
            "XDG_CACHE_HOME": str(folder / "cache"),
        }  # fmt: skip
        self.shell = subprocess.Popen(
            [str(shutil.which(shell)), *SHELLS[shell]], cwd=folder, env=environment,
            stdin=other, stdout=other, stderr=other, start_new_session=True,
        )  # fmt: skip
        os.close(other)
        self.seen = ""

    def types(self, text: str) -> None:
        os.write(self._end, text.encode())

    def shows(self, pattern: str, within_s: float = 120.0) -> str:
        """Wait for a pattern on the terminal; return the text up to it."""
        deadline = time.monotonic() + within_s
        while not (match := re.search(pattern, self.seen)):
            assert time.monotonic() < deadline, f"no {pattern!r} in {self.seen!r}"
            if select.select([self._end], [], [], 0.5)[0]:
                self.seen += os.read(self._end, 4096).decode(errors="replace")
        text, self.seen = self.seen[: match.end()], self.seen[match.end() :]
        return text

    def close(self) -> None:
        self.shell.kill()
        self.shell.wait()
        os.close(self._end)


@pytest.mark.parametrize("shell", [*SHELLS])
def test_the_tab_key_completes_commands_options_choices_and_ids(
    shell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    study = worlds.database(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert main(["completion", shell]) == 0
    assert index_file(tmp_path / "cache" / "jouletune").exists()
    (tmp_path / "script").write_text(capsys.readouterr().out)
    terminal = Terminal(shell, tmp_path)
    try:
        terminal.types(
            f"{SETUP[shell]}; export JOULETUNE_DB=sqlite:///{worlds.FILE}; echo re''ady\n"
        )
        terminal.shows("ready")
        for typed, completed in (
            ("jouletune stud", "jouletune study "),
            ("jouletune study sho", "jouletune study show "),
            (f"jouletune study show {study[:5]}", f"jouletune study show {study}"),
            ("jouletune history --ver", "jouletune history --verdict "),
            ("jouletune study create --policy polythrottle-", "--policy polythrottle-two-phase"),
            ("jouletune study create --device si", "jouletune study create --device sim"),
            ("jouletune study create --objective ene", "--objective energy_j"),
        ):
            terminal.types(f"{typed}\t")
            text = terminal.shows(re.escape(completed))
            assert "rror" not in text and "Traceback" not in text
            terminal.types("\x15\n")  # clears the line
        terminal.types("jouletune study show nosuch\t; echo af''ter\n")
        assert "rror: " not in terminal.shows("after").partition("echo")[0]
    finally:
        terminal.close()
