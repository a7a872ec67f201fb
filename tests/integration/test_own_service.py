"""A user's own HTTP service, tuned by the page of examples alone; and refused entries of its file."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.integration.folder import Folder
from tests.plugins.examples import Example
from tests.plugins.servers import answers
from tests.processes import reserved_port, until

SHORT = ("--trials", "2", "--window", "2", "--foreign-share", "1")
"""The last of repeated options counts, so these shorten the page's study."""
BAD = """
name = "x"
url = "http://127.0.0.1:1"
[load]
path = "/"
"""


@contextmanager
def serving(folder: Folder) -> Iterator[Example]:
    """Start the page's service beside its file."""
    page, port = Example("FastAPI"), reserved_port()
    (folder.path / "app.py").write_text(page.block("python"))
    (folder.path / "pack.toml").write_text(page.file({":8000": f":{port}"}))
    serve = shlex.split(page.inline("uvicorn ").replace("8000", str(port)))
    with subprocess.Popen(
        [sys.executable, "-m", *serve, "--no-access-log"], cwd=folder.path
    ) as own:
        try:
            until(answers(f"http://127.0.0.1:{port}/config"), "the page's service does not answer")
            yield page
        finally:
            own.terminate()


@pytest.mark.slow
@pytest.mark.quiet
def test_the_page_followed_word_by_word_tunes_a_service_of_ones_own(folder: Folder) -> None:
    with serving(folder) as page:
        check, run, *_ = page.commands
        code, out, err = folder.ask(*check[1:])
        assert code == 0, out + err
        words = [word.replace("$PWD", str(folder.path)) for word in run[2:]]
        study = folder.run(*words, *SHORT)
    assert study["study"]["workload"] == "pack"
    assert study["limit_kept"] is True
    tried = {trial["setting"]["level"] for trial in study["trials"]}
    assert study["baseline"]["setting"] == {"level": 6} and len(tried) > 1
    assert {"pack_p50_ms", "pack_p99_ms", "cpu_time_ms"} <= study["baseline"]["metrics"].keys()
    assert study["study"]["constraints"] == ["pack_p99_ms <= 1.5x baseline"]


@pytest.mark.parametrize(
    ("more", "options", "says"),
    [
        ('trase = "/a.csv"', (), ": load: unknown key 'trase'; did you mean trace?"),
        ('trace = "/no.csv"', (), "bad.toml: load: cannot read the trace /no.csv"),
        ("", ("--load", "no.csv"), "no.csv: No such file or directory"),
        ("[restart]\ncommand = 'reboot'", (), "restart: command must be a list, not 'reboot'"),
        ("[process]\nunit = '*'", (), "process: '*' is not a systemd unit"),
        ("[[json]]\nname = 'a'\npath = '/'", (), "json 1 has no json"),
    ],
)
def test_an_invalid_file_gives_a_one_line_error_before_anything_starts(
    folder: Folder, more: str, options: tuple[str, ...], says: str
) -> None:
    file = folder.path / "bad.toml"
    file.write_text(BAD + more)
    spec = f"service:{file}"
    for words in (
        ("run", "--device", "cpu", "--workload", spec, *options),
        ("workload", "check", str(file), *options),
    ):
        code, out, err = folder.ask(*words)
        assert (code, out, err.count("\n")) == (2, "", 1), err
        assert says in err, err
    assert list(folder.path.iterdir()) == [file]


def test_a_trace_goes_with_a_service_only(folder: Folder) -> None:
    for words in (
        ("run", "--load", "a.csv"),
        ("workload", "check", "reference", "--load", "a.csv"),
    ):
        code, out, err = folder.ask(*words)
        assert (code, out) == (2, "")
        assert "--load goes with a service's file" in err
    assert not list(folder.path.iterdir())
