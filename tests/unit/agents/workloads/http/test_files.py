"""A knob in a file: written, applied by a restart, read back, and written again after a crash."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from http.server import ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType

import pytest

from agents.target.side import Side
from agents.workloads import open_workload
from tests.contracts.actuator import SettableContract
from tests.errors import raised
from tests.integration.spoken import Spoken, running
from tests.unit.agents.workloads.http.wall import Wall
from tuner.core import NO_ANSWER, ActuationError, ConfigError

FILE = """
name = "pool"
url = "{url}"

[[knob]]
name = "workers"
values = [0, 1, 2, 4]
default = 4
restart = true
[knob.write]
file = "{folder}/pool.json"
json = {{ pool = {{ workers = "{{value}}" }} }}
at = {{ 0 = {{}} }}

[[knob]]
name = "codec"
values = ["fast", "small"]
default = "fast"
write = {{ file = "{folder}/pool.env", text = "CODEC={{value}}\\n" }}

[restart]
command = {command}
ready = "/ready"
seconds = {seconds}

[load]
path = "/"
"""
NO_CHANGES: Mapping[str, str] = MappingProxyType({})


class Pool(ThreadingHTTPServer):
    """A service that reads its files when a command tells it to."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), PoolHandler)
        self.folder, self.starts, self.status = folder, 0, 200
        self.has_start_time = True
        self.same = False
        """Whether the command does not restart the process."""
        self.taken_up: list[str] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def restart(self) -> None:
        self.starts += not self.same
        self.taken_up = [(self.folder / name).read_text() for name in ("pool.json", "pool.env")]


class PoolHandler(Spoken):
    server: Pool

    def do_GET(self) -> None:
        if self.path == "/metrics" and self.server.has_start_time:
            name = "process_start_time_seconds"
            self.send(200, f"# TYPE {name} gauge\n{name} {self.server.starts}\n".encode())
        else:
            self.answer(self.server.status if self.path == "/ready" else 404, {})

    def do_POST(self) -> None:
        self.body()
        self.server.restart()
        self.answer(200, {})


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Pool]:
    (tmp_path / "pool.json").write_text('{"pool":{"workers":4}}')
    (tmp_path / "pool.env").write_text("CODEC=fast")
    with running(Pool(tmp_path)) as serving:
        yield serving


def script(pool: Pool, code: str = "") -> list[str]:
    code = code or (
        f"import urllib.request as r;r.urlopen(r.Request('{pool.url}/restart', b'', method='POST'))"
    )
    return [sys.executable, "-I", "-c", code]


def opened(
    pool: Pool, code: str = "", seconds: float = 60.0, changes: Mapping[str, str] = NO_CHANGES
) -> Side:
    text = FILE.format(
        url=pool.url,
        folder=pool.folder,
        command=json.dumps(script(pool, code)),
        seconds=seconds,
    )
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    file = pool.folder / "pool.toml"
    file.write_text(text)
    return open_workload(f"service:{file}", seed=0, state_dir=pool.folder, clock=Wall())


@pytest.fixture
def side(pool: Pool) -> Iterator[Side]:
    attached = opened(pool)
    yield attached
    attached.close()


class TestKnobs(SettableContract):
    pass


def test_files_that_change_together_take_one_restart(side: Side, pool: Pool) -> None:
    side.actuator.apply({"workers": 2, "codec": "small"})
    assert (pool.starts, json.loads(pool.taken_up[0])) == (1, {"pool": {"workers": 2}})
    assert pool.taken_up[1] == "CODEC=small\n"


def test_a_value_may_have_different_content(side: Side, pool: Pool) -> None:
    side.actuator.apply({"workers": 0})
    assert json.loads(pool.taken_up[0]) == {}
    assert side.actuator.read() == {"workers": 0, "codec": "fast"}


def test_json_in_another_layout_counts_as_equal(side: Side, pool: Pool) -> None:
    side.actuator.apply({"workers": 4, "codec": "fast"})
    assert pool.starts == 0


def test_a_failed_command_is_reported_with_its_output_and_repeated(pool: Pool) -> None:
    side = opened(pool, "import sys; print('no such unit'); sys.exit(5)")
    with raised(ActuationError, "with code 5"):
        side.actuator.apply({"workers": 2})
    with raised(ActuationError, "pool.json"):
        side.actuator.read()
    side.close()
    again = opened(pool)
    again.actuator.apply({"workers": 2})
    assert (pool.starts, again.actuator.read()["workers"]) == (1, 2)
    again.close()


@pytest.mark.parametrize(
    ("status", "same", "why"),
    [(503, False, "refused GET /ready with HTTP 503"), (200, True, "has not restarted")],
)
def test_a_service_that_does_not_come_up_anew_in_time_is_an_error(
    pool: Pool, status: int, same: bool, why: str
) -> None:
    side = opened(pool, seconds=2.0)
    pool.status, pool.same = status, same
    with raised(ActuationError, why, "2") as failed:
        side.actuator.apply({"workers": 2})
    assert (NO_ANSWER in failed.value.message) is not same, "its values are at fault"
    side.close()


def test_a_reload_does_not_have_to_restart_the_service(side: Side, pool: Pool) -> None:
    pool.same = True
    side.actuator.apply({"codec": "small"})
    assert pool.taken_up[1] == "CODEC=small\n"


def test_a_command_that_hangs_or_is_not_there_is_an_error(pool: Pool) -> None:
    side = opened(pool, "import time; time.sleep(60)", seconds=0.2)
    with raised(ActuationError, "did not end"):
        side.actuator.apply({"workers": 2})
    side.close()
    side = opened(pool, changes={json.dumps(sys.executable): '"/no/such/command"'})
    with raised(ActuationError, "/no/such/command"):
        side.actuator.apply({"workers": 1})
    side.close()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, r"there is no .*pool.json; .*\"workers\": 4"),
        ("{", "does not contain a value of workers"),
        ('{"pool": {"workers": 3}}', "does not contain a value of workers"),
    ],
)
def test_a_file_written_by_others_is_reported_and_can_be_overwritten(
    pool: Pool, content: str | None, why: str
) -> None:
    file = pool.folder / "pool.json"
    file.unlink() if content is None else file.write_text(content)
    side = opened(pool)
    with pytest.raises(ActuationError, match=why) as caught:
        side.actuator.read()
    assert caught.value.hint
    side.actuator.apply({"workers": 4})
    assert side.actuator.read()["workers"] == 4
    side.close()


def test_a_folder_that_cannot_be_written_is_an_error(side: Side, pool: Pool) -> None:
    (pool.folder / "pool.json.pending").mkdir()
    (pool.folder / "pool.json").unlink()
    (pool.folder / "pool.json").mkdir()
    with raised(ActuationError, "pool.json"):
        side.actuator.apply({"workers": 2})


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("[restart]\ncommand", "[restart]\n#", "restart needs a command"),
        ('ready = "/ready"', 'ready = "ready"', "path cannot be 'ready'"),
        ('{ pool = { workers = "{value}" } }', "{}", 'json of write has no "{value}"'),
        ("CODEC={value}", "CODEC=fast", 'a text needs "{value}"'),
        ('text = "', 'json = 3, text = "', "needs either json or text"),
        ("pool.env", "pool.json", "two knobs are written to one file"),
        (
            'default = "fast"\n',
            'default = "fast"\nset = {path="/{value}"}\n',
            "a set, a write or a unit",
        ),
    ],
)
def test_an_invalid_entry_about_files_is_refused(pool: Pool, old: str, new: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        opened(pool, changes={old: new})


def test_a_knob_in_a_file_needs_a_command(pool: Pool) -> None:
    gone = ("[restart]", "command", "ready", "seconds")
    with raised(ConfigError, "workers"):
        opened(pool, changes={key: f"# {key}" for key in gone})


def test_a_command_is_words_and_never_a_shells_line(pool: Pool) -> None:
    with pytest.raises(ConfigError, match="command must be a list"):
        opened(pool, changes={json.dumps(script(pool)): '"systemctl restart pool"'})
    with raised(ConfigError, "command"):
        opened(pool, changes={json.dumps(script(pool)): "[]"})
