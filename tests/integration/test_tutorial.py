"""docs/tutorial.md, step by step: every command of the page, on the fake GPU, with real processes."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.actuation import answers
from tests.integration.stage import JOULETUNE
from tests.nvml.fake import FakeNvml
from tests.nvml.fixtures import library
from tests.processes import reserved_port, until

__all__ = ["library"]

TOP = Path(__file__).parents[2]
PAGE = TOP / "docs" / "tutorial.md"
STEP = re.compile(
    r"^```toml\n# (?P<file>\S+)\n(?P<text>.*?)^```$|^    (?P<line>(?:jouletune|export|make) [^\n]+)$",
    re.M | re.S,
)
BUSY = "foreign_share = 1.0\n"
"""Tests share the cores with other programs; no window is discarded for that."""
SHORT = ("--trials", "3", "--window", "2")
ORIGINAL = (0.0, 400.0)
DEADLINE_S = 240.0


def steps() -> list[re.Match[str]]:
    """Return the files and commands of the page, in order."""
    return list(STEP.finditer(PAGE.read_text()))


@dataclass
class Reader:
    """Follows the page in a separate folder."""

    folder: Path
    gpu: FakeNvml
    port: int = field(default_factory=reserved_port)
    environ: dict[str, str] = field(default_factory=dict)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    outputs: dict[str, str] = field(default_factory=dict)
    holds_baseline: bool = False

    def here(self, text: str) -> str:
        """Return a text with this reader's folders and port in place of the page's."""
        text = text.replace("/tmp/jouletune", str(self.folder)).replace("8790", str(self.port))
        return text.replace("/tmp/gpu/state", str(self.gpu.state)).replace(
            "/tmp/gpu",
            str(self.gpu.library.parent),
        )

    def write(self, name: str, text: str) -> None:
        first = BUSY if name == "agent.toml" else ""
        (self.folder / name).write_text(first + self.here(text))

    def export(self, line: str) -> None:
        for word in shlex.split(self.here(line))[1:]:
            name, _, value = word.partition("=")
            if name != "PATH":
                self.environ[name] = value

    def command(self, line: str) -> list[str]:
        words = shlex.split(self.here(line))[1:]
        if words[:2] == ["tuner", "serve"]:
            words += ["--port", str(self.port)]
        if words[:2] == ["study", "create"]:
            words += SHORT
        real = {
            "ID": lambda: str(self.listed("devices")[0]["device"]["id"]),
            "STUDY": lambda: str(self.study["id"]),
        }
        return [*JOULETUNE, *(real[word]() if word in real else word for word in words)]

    def serve(self, line: str) -> None:
        log = (self.folder / "serve.log").open("ab")
        with log:
            self.processes.append(
                subprocess.Popen(
                    self.command(line), cwd=self.folder, env=self.all, stdout=log, stderr=log
                )
            )
        if " actuator " in line:
            until(lambda: answers(self.folder / "actuator.sock"), self.log, DEADLINE_S)
        elif " tuner " in line:
            until(self.ready, self.log, DEADLINE_S)
        else:
            until(lambda: bool(self.listed("devices")), self.log, DEADLINE_S)

    def ready(self) -> bool:
        with suppress(httpx2.TransportError):
            return httpx2.get(f"http://127.0.0.1:{self.port}/v1/ready").is_success
        return False

    def run(self, line: str) -> None:
        if "study show" in line:
            until(lambda: self.study["phase"] == "holding", self.log, DEADLINE_S)
        code, output = self.ask(*self.command(line)[len(JOULETUNE) :])
        assert code == 0 and output, f"{line}: {code}\n{output}"
        self.outputs[line.removeprefix("jouletune ")] = output
        if "study show" in line:
            plan, baseline = self.study["plan"], self.study["baseline"]["setting"]
            self.holds_baseline = plan["rows"][0]["setting"] == baseline

    def ask(self, *words: str) -> tuple[int, str]:
        done = subprocess.run(
            [*JOULETUNE, *words],
            cwd=self.folder,
            env=self.all,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        return done.returncode, done.stdout

    def listed(self, kind: str) -> list[dict[str, Any]]:
        """Return the devices or studies of the tuner."""
        token = (self.folder / "token").read_text().strip()
        url, headers = (
            f"http://127.0.0.1:{self.port}/v1/{kind}",
            {"Authorization": f"Bearer {token}"},
        )
        return list(httpx2.get(url, headers=headers).raise_for_status().json())

    @property
    def study(self) -> dict[str, Any]:
        (study,) = self.listed("studies")
        return study

    @property
    def all(self) -> dict[str, str]:
        return {**os.environ, **self.environ, "PYTHONPATH": str(TOP)}

    @property
    def set_to(self) -> tuple[float, float]:
        return self.gpu.get("lock_max"), self.gpu.get("limit_w")

    def log(self) -> str:
        return (self.folder / "serve.log").read_text()[-3000:]

    def end(self) -> None:
        """Stop agent, tuner and actuator, in this order, as Ctrl-C does."""
        for process in (self.processes[i] for i in (2, 1, 0) if i < len(self.processes)):
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGINT)
            process.wait(30.0)


@pytest.fixture
def reader(library: Path, tmp_path: Path) -> Iterator[Reader]:
    opened = Reader(tmp_path, FakeNvml(library, tmp_path / "nvml.state", manual=False))
    yield opened
    opened.end()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_step_of_the_tutorial_leads_to_a_held_setting_and_back(reader: Reader) -> None:
    for step in steps():
        line = step["line"] or ""
        if step["file"]:
            reader.write(step["file"], step["text"])
        elif line.startswith("export "):
            reader.export(line)
        elif " serve " in line:
            reader.serve(line)
        elif not line.startswith("make "):
            reader.run(line)
            if "study show" in line:
                assert "phase       holding" in reader.outputs["study show STUDY"]
            if "stop-all --why" in line or "study stop" in line:
                until(lambda: reader.set_to == ORIGINAL, reader.log, DEADLINE_S)
    assert "gpu.clock_mhz" in reader.outputs["device list"]
    # Three short windows on a busy machine may prove no saving; the baseline is held then.
    assert ("\nsaving " in reader.outputs["study show STUDY"]) is not reader.holds_baseline
    assert len(reader.processes) == 3


def test_the_tutorial_has_its_files_and_starts_its_processes_in_order() -> None:
    served = [step["line"].split()[1] for step in steps() if " serve " in (step["line"] or "")]
    assert served == ["actuator", "tuner", "agent"]
    assert [step["file"] for step in steps() if step["file"]] == ["actuator.toml", "agent.toml"]
