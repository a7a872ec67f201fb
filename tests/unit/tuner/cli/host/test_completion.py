"""Completion in real shells, each on its own terminal, with typed input."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import HTTPServer
from pathlib import Path
from socketserver import StreamRequestHandler, TCPServer

import pytest

from tests.integration.spoken import Spoken, running
from tests.unit.tuner.cli import worlds
from tuner.cli.app import main
from tuner.cli.host.completion import Ids, cache_folder, candidates, index_file, read_index

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


INDEX = {
    "": {"below": ["study", "history"], "options": {"--version": None}},
    "study": {"below": ["show", "create"], "options": {}},
    "study show": {"arguments": ["studies"], "options": {"--db": "", "--json": None}},
    "study create": {"options": {"--safety": ["strict", "off"], "--device": "devices", "-o": ""}},
    "history": {"options": {"--db": "", "--study": "studies"}},
    "constraint set": {"arguments": ["studies", "metrics"], "many": True, "options": {}},
}
STUDIES = ["3f2a91c0", "77aa0000"]


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("", ["study", "history"]),
        ("st", ["study"]),
        ("study ", ["show", "create"]),
        ("study show ", STUDIES),
        ("study show 3", STUDIES[:1]),
        ("study show --db sqlite:///x 7", STUDIES[1:]),
        ("study show --db=sqlite:///x --json ", STUDIES),
        ("study show 3f2a91c0 ", []),
        ("study show --", ["--db", "--json"]),
        ("study show --db ", []),
        ("study create --safety s", ["strict"]),
        ("history --study 7", STUDIES[1:]),
        ("nonsense ", []),
    ],
)
def test_the_allowed_transitions_are_listed(typed: str, offered: list[str]) -> None:
    def values(kind: str, _: object) -> list[str]:
        return STUDIES if kind == "studies" else []

    assert candidates(typed.split(" "), INDEX, values) == offered


def test_a_command_line_names_the_source_of_its_ids() -> None:
    places = list[object]()

    def values(_: str, place: object) -> list[str]:
        places.append(place)
        return []

    candidates(["study", "show", "--db", "sqlite:///x", ""], INDEX, values)
    assert places == [{"--db": "sqlite:///x"}]


def test_without_an_index_commands_are_offered(tmp_path: Path) -> None:
    index = read_index(tmp_path)
    assert {"study", "run", "status"} <= set(candidates([""], index, lambda *_: []))
    assert "show" in candidates(["study", "sh"], index, lambda *_: [])
    (tmp_path / "completion-x.json").write_text("[broken")
    assert candidates(["study", "show", "--"], index, lambda *_: []) == []


def test_ids_come_from_the_database_of_the_command_the_environment_or_the_last_run(
    tmp_path: Path,
) -> None:
    made = worlds.database(tmp_path)
    url = f"sqlite:///{tmp_path / worlds.FILE}"
    run = tmp_path / "run.json"
    ids = Ids(tmp_path, {}, run)
    assert ids("studies", {"--db": url}) == [made]
    assert ids("devices", {"--db": url}) == ["sim"]
    assert ids("metrics", {"--db": url})[0] == "energy_j"
    assert ids("studies", {}) == []
    run.write_text(json.dumps({"db": url}))
    assert ids("studies", {}) == [made]
    assert Ids(tmp_path, {"JOULETUNE_DB": url}, tmp_path / "none")("devices", {}) == ["sim"]


@pytest.mark.parametrize("url", ["sqlite:///none", "postgresql://u@h/d", "sqlite:///run", "x"])
def test_a_database_without_ids_is_not_an_error(tmp_path: Path, url: str) -> None:
    (tmp_path / "run").write_text("no database")
    ids = Ids(tmp_path, {}, tmp_path / "none")
    assert ids("studies", {"--db": url.replace("///", f"///{tmp_path}/")}) == []


def test_an_unreadable_device_is_not_an_error(tmp_path: Path) -> None:
    worlds.database(tmp_path)
    with closing(sqlite3.connect(tmp_path / worlds.FILE)) as db, db:
        db.execute("UPDATE devices SET description = '{}'")
    ids = Ids(tmp_path, {}, tmp_path / "none")
    assert ids("metrics", {"--db": f"sqlite:///{tmp_path / worlds.FILE}"}) == []


def test_a_server_without_http_is_not_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.cli.host.completion.FETCH_S", 20.0)

    class Chatter(StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"220 mail ready\r\n")

    with TCPServer(("127.0.0.1", 0), Chatter) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        assert Ids(tmp_path, {}, tmp_path / "none")("studies", {"--tuner": url}) == []
        thread.join()


def test_an_unwritable_folder_is_not_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").write_text("no folder")
    monkeypatch.setattr("tuner.cli.host.completion.FETCH_S", 20.0)
    ids = Ids(tmp_path / "cache", {}, tmp_path / "none")
    with tuner([], [{"id": "new"}]) as url:
        assert ids("studies", {"--tuner": url}) == ["new"]
    assert "show" in candidates(["study", "sh"], read_index(tmp_path / "cache"), lambda *_: [])
    assert cache_folder({}) == Path("/.cache/jouletune")


@contextmanager
def tuner(paths: list[str], rows: object) -> Iterator[str]:
    class Handler(Spoken):
        protocol_version = "HTTP/1.0"

        def do_GET(self) -> None:
            paths.append(self.path)
            self.answer(200, rows)

    with running(HTTPServer(("127.0.0.1", 0), Handler)) as server:
        yield f"http://127.0.0.1:{server.server_address[1]}"


def test_ids_of_a_tuner_are_kept_for_a_while_and_used_when_it_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.cli.host.completion.FETCH_S", 20.0)
    ids, paths = Ids(tmp_path / "cache", {}, tmp_path / "none"), list[str]()
    with tuner(paths, [{"id": "old"}, {"id": "new"}]) as url:
        assert ids("studies", {"--tuner": url}) == ["new", "old"]
        assert ids("studies", {"--tuner": url}) == ["new", "old"]
        assert paths == ["/v1/studies"]
    monkeypatch.setattr("tuner.cli.host.completion.FRESH_S", 0.0)
    assert ids("studies", {"--tuner": url}) == ["new", "old"], "it is away"
    assert ids("devices", {"--tuner": url}) == []
    assert ids("studies", {"--tuner": "file:///etc/passwd"}) == []


def test_a_tuner_that_answers_byte_by_byte_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.cli.host.completion.FETCH_S", 0.2)
    returned = threading.Event()

    class Slow(StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"HTTP/1.0 200 OK\r\nX: ")
            while not returned.wait(0.01):
                self.wfile.write(b"x")

    with TCPServer(("127.0.0.1", 0), Slow) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        assert Ids(tmp_path, {}, tmp_path / "none")("studies", {"--tuner": url}) == []
        returned.set()
        thread.join()
