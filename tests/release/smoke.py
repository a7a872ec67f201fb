"""Tries an installed jouletune: `PYTHON smoke.py BIN FOLDER FROZEN.sql [COMMIT]`; prints seconds a step.

It uses only the standard library, so that it runs with any environment's Python, in any root. BIN is
the environment's folder of commands. It exits with 1 at the first failed step, and names it.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from contextlib import closing
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any

LIMIT = "latency_p99_ms <= 1.2x baseline"
DEADLINE_S = 300.0
FILES = """
import importlib.resources as r
import agents, db, policies, tuner
assert (r.files("db") / "alembic.ini").is_file()
print(*{p.__file__ for p in (agents, db, policies, tuner)})
"""


class Failed(Exception):
    """A step failed."""


class Trial:
    """One environment, one working folder, and the processes there."""

    def __init__(self, binaries: Path, folder: Path, frozen: Path, commit: str) -> None:
        self.binaries, self.folder, self.frozen, self.commit = binaries, folder, frozen, commit
        self.started: list[subprocess.Popen[bytes]] = []
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "JOULETUNE"))}
        self.environ = {**kept, "OPENBLAS_NUM_THREADS": "1"}

    def call(self, *command: str, code: int = 0) -> str:
        """Run a command of the environment to its end, and return its output."""
        program, *arguments = command
        done = subprocess.run(
            [str(self.binaries / program), *arguments],
            cwd=self.folder, env=self.environ, capture_output=True, text=True, check=False,
            timeout=DEADLINE_S,
        )  # fmt: skip
        if done.returncode != code:
            output = f"{done.stdout[-2000:]}{done.stderr[-2000:]}"
            raise Failed(f"{' '.join(command)} ended with {done.returncode}, not {code}: {output}")
        return done.stdout if code == 0 else done.stderr

    def start(self, name: str, *command: str) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [str(self.binaries / "jouletune"), *command],
                cwd=self.folder, env=self.environ, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        self.started.append(process)

    def until(self, done: Callable[[], Any], why: str) -> Any:  # noqa: ANN401
        end = time.monotonic() + DEADLINE_S
        while time.monotonic() < end:
            if found := done():
                return found
            time.sleep(0.2)
        logs = [file.read_text()[-1500:] for file in self.folder.glob("*.log")]
        raise Failed(f"{why}: not within {DEADLINE_S:g} s: {logs}")

    def stop(self) -> None:
        for process in self.started:
            process.send_signal(signal.SIGTERM)
        for process in self.started:
            process.wait(60)

    def version(self) -> None:
        """It tells what it is, and all of it lies in the environment."""
        told = self.call("jouletune", "--version")
        if f"(commit {self.commit or 'unknown'}, database schema " not in told:
            raise Failed(f"the commit {self.commit} is not in {told!r}")
        files = self.call("python", "-c", FILES).split()
        prefix = self.call("python", "-c", "import sys; print(sys.prefix)").strip()
        if strangers := [file for file in files if not file.startswith(prefix)]:
            raise Failed(f"not of {prefix}: {strangers}")

    def main_job(self) -> None:
        """A device is tuned with the model, in one command."""
        terms = ("--constraint", LIMIT, "--trials", "6", "--window", "1", "--seed", "0")
        command = ("run", "--device", "simulated:a100", *terms, "--foreign-share", "1", "--json")
        told = json.loads(self.call("jouletune", *command))
        if not told:
            raise Failed("the run tells nothing")

    def report(self) -> None:
        """The run's report as one page, with its charts in it."""
        page = self.folder / "report.html"
        self.call("jouletune", "report", "--format", "html", "--output", str(page))
        if "<svg" not in page.read_text():
            raise Failed("the report has no picture")

    def migrations(self) -> None:
        """What 0.2.0 left is brought up to date; what a newer release left is refused."""
        file = self.folder / "frozen.sqlite"
        with closing(sqlite3.connect(file)) as database:
            database.executescript(self.frozen.read_text())
        listed = json.loads(
            self.call("jouletune", "study", "list", "--db", f"sqlite:///{file}", "--json")
        )
        with closing(sqlite3.connect(file)) as database, database:
            (schema,) = database.execute("SELECT version_num FROM alembic_version").fetchone()
            if not listed or f"schema {schema}," not in self.call("jouletune", "--version"):
                raise Failed(f"{len(listed)} studies, schema {schema}")
            database.execute("UPDATE alembic_version SET version_num = '9999'")
        said = self.call("jouletune", "study", "list", "--db", f"sqlite:///{file}", code=2)
        if "written by a newer jouletune (schema 9999" not in said or said.count("\n") != 1:
            raise Failed(f"a newer database is not refused in one line: {said!r}")

    def of_a_checkout(self) -> None:
        """What only a checkout has is refused by the name of its package."""
        for spec in ("replay:table.csv#one", "simulated:h100-llm@3"):
            said = self.call("jouletune", "run", "--device", spec, code=2)
            if "jouletune_bench" not in said:
                raise Failed(f"{spec} is refused without a way on: {said!r}")

    def study(self) -> None:
        """A tuner and an agent as processes of their own come to hold what they found."""
        port, token = self.folder / "port", self.folder / "token"
        files = ("--port-file", str(port), "--token-file", str(token))
        self.start(
            "tuner", "tuner", "serve", "--port", "0", "--db", "sqlite:///served.sqlite", *files
        )
        number = self.until(lambda: port.exists() and port.read_text().strip(), "no tuner")
        self.url = f"http://127.0.0.1:{number}"
        desk = ("--tuner", self.url, "--token-file", str(token))
        state = ("--state-dir", "agent", "--foreign-share", "1")
        self.start("agent", "agent", "serve", "--device", "simulated:a100", *desk, *state)
        listed = ("jouletune", "device", "list", "--json", *desk)
        device = self.until(lambda: json.loads(self.call(*listed)), "no device")[0]["device"]["id"]
        terms = ("--constraint", LIMIT, "--trials", "4", "--window", "1", "--policy", "sobol")
        create = ("study", "create", "--device", device, *terms, "--json", *desk)
        study = json.loads(self.call("jouletune", *create))["id"]
        show = ("jouletune", "study", "show", study, "--json", *desk)
        self.until(lambda: json.loads(self.call(*show))["study"]["phase"] == "holding", "no hold")

    def pages(self) -> None:
        """The pages come with their style, their script and the charts' library."""
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
        token = (self.folder / "token").read_text().strip()
        form = urllib.parse.urlencode({"token": token, "next": "/"}).encode()
        request = urllib.request.Request(f"{self.url}/login", form, {"Origin": self.url})
        if "simulated" not in browser.open(request, timeout=60).read().decode():
            raise Failed("the fleet's page does not name the device")
        for path in ("/studies", "/history", "/about", "/assets/app.css", "/assets/plotly.min.js"):
            if not browser.open(f"{self.url}{path}", timeout=60).read():
                raise Failed(f"{path} is empty")


def main(arguments: list[str]) -> int:
    """Take every step in turn."""
    binaries, folder, frozen = (Path(text).absolute() for text in arguments[:3])
    folder.mkdir(parents=True, exist_ok=True)
    trial = Trial(binaries, folder, frozen, "".join(arguments[3:4]))
    seconds: dict[str, float] = {}
    steps = (
        trial.version,
        trial.main_job,
        trial.report,
        trial.of_a_checkout,
        trial.migrations,
        trial.study,
        trial.pages,
    )
    try:
        for step in steps:
            began = time.monotonic()
            try:
                step()
            except (Failed, OSError, subprocess.TimeoutExpired, urllib.error.URLError) as error:
                sys.stderr.write(f"{step.__name__}: {error}\n")
                return 1
            seconds[step.__name__] = round(time.monotonic() - began, 1)
    finally:
        trial.stop()
    print(json.dumps(seconds))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
