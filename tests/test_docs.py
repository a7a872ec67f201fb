"""Every command in README.md and docs/ exists; cheap ones are run, page by page.

`pytest -v tests/test_docs.py` lists each command with its treatment.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from db import open_store
from tests.builders import device, setting, study
from tests.integration.stage import JOULETUNE
from tests.processes import run_to_end
from tuner.cli.app import USAGE_ERROR, app, below, main
from tuner.core import Phase, Plan, Safety, Study, Terms

TOP = Path(__file__).parents[1]
PAGES = [
    TOP / "README.md",
    TOP / "CONTRIBUTING.md",
    TOP / "deploy" / "README.md",
    *sorted((TOP / "docs").rglob("*.md")),
]
TUTORIAL = "docs/tutorial.md"
SIMULATED = "run --device simulated:"
"""Runs anywhere, and fast."""
ONLY_READ = {
    "observe": "measures this machine",
    "run": "measures this machine, or goes on with what was interrupted",
    "tuner serve": "serves until it is ended",
    "events --follow": "goes on until it is ended",
    "device list --watch": "goes on until it is ended",
    "notification": "needs a receiver",
    "agent serve": "serves until it is ended",
    "agent revert": "works on the host's own state folder",
    "actuator": "root's, on the host's own hardware",
    "workload check": "runs what a file of the host's describes",
    "workload proxy": "serves until it is ended",
    "speculation profile": "needs a llama-server, and measures for minutes",
    "diff": "reads a fleet file: the tests of tuner.service.declared apply the page's example",
    "apply": "reads a fleet file: the tests of tuner.service.declared apply the page's example",
    "fleet": "needs a tuner",
    "budget": "needs hosts that give their devices a floor",
    "study wait": "waits for a status that no agent brings about here",
    "finetune run": "stops and continues a program of the host's",
    "study create --device ID --plan-by": "needs a target that offers the signal",
    "study create --device A --choose workers": "needs a workload with these knobs",
    "study create --device cpu@$(hostname)": "needs the page's own service",
    "study create --device gpu0@a --policy pareto": "names a device of its own",
    "study approve STUDY --trial": "names a trial of its own",
}
"""Commands in blocks of pages that are not run, with the reason; all others are."""
MAY_SAY_NO = {
    "stop-all": "a device is offline",
    "device release": "the device is offline",
    "study setting": "the study holds no setting yet",
}
"""Commands that may exit with 1 although they have done their work."""
QUICKLY = ("--trials", "3", "--policy", "sobol")
"""Options added to a run, which would otherwise take a minute, mostly for the model."""

SPARE = "spare@host"
"""A device with its own study, so that commands on studies always find an active one."""
ADVISED = ("advised-1@host", "advised-2@host")
"""Devices of studies that wait for approval: one to approve, one to reject."""


def active(study: Study) -> bool:
    return study.active and study.proposed is None


def proposing(study: Study) -> bool:
    return study.proposed is not None


def tuned(study: Study) -> bool:
    return not {SPARE, *ADVISED} & {*study.devices}


FITS: Mapping[str, Callable[[Study], bool]] = {
    "study pause": active,
    "study resume": lambda study: study.phase is Phase.PAUSED,
    "study stop": active,
    "study approve": proposing,
    "study reject": proposing,
    "study delete": lambda study: not study.active,
    "constraint preview": active,
    "constraint set": active,
    "constraint clear": active,
}
"""The condition on the study of a command, of which the latest is taken; others use a tuned study."""

STATE = Path(".jouletune") / "jouletune.sqlite"
ASIDE = ("…", "--help", "--version")
FILLED = {"study": "STUDY"}
"""Arguments that a line with several commands may omit, as other lines write them."""
PLACES = {
    "--profile FILE.csv": "profile.csv",
    "--out FILE.csv": "out.csv",
    "--output FILE": "out",
    "backup FILE": "backup",
    "restore FILE": "backup",
    "--db URL": f"sqlite:///{STATE}",
}
"""Values in place of the reader's own, after an option."""
FILES = {
    "profile.csv": "model,threads,batch_size,latency_s\n"
    "inception,16,1,0.0323\ninception,8,1,0.0275\n"
    "inception,16,32,0.2100\ninception,8,16,0.1400\ninception,4,8,0.1200\n",
}

START = r"(?:\$ |sudo |runuser .+ -- )*(?P<text>(?:jouletune|make|pytest) .+)"
LINE = re.compile(rf"^\s*{START}$")
INLINE = re.compile(rf"(?<!`)`{START.replace('.+', '[^`]+')}`(?!`)")
COMMENT = re.compile(r"\s+#\s.*$")
OPTIONAL = re.compile(r"\[([^\]]*)\]")


@dataclass(frozen=True)
class Command:
    """One reading of a line or a piece of a page; `whole` if it is in a block, for copying."""

    page: str
    words: tuple[str, ...]
    whole: bool

    @property
    def text(self) -> str:
        return shlex.join(self.words)

    @property
    def said(self) -> str:
        return " ".join(self.words[1:])

    @property
    def fate(self) -> str:
        """The treatment of the command: `run`, or `read` with the reason."""
        if self.words[0] != "jouletune":
            return "read: it must exist"
        if self.page == TUTORIAL:
            return "run: tests/integration/test_tutorial.py"
        if not self.whole:
            return "read: named in a sentence, or cut short"
        if SIMULATED in self.said:
            return "run"
        for what, why in ONLY_READ.items():
            if self.said.startswith(what):
                return f"read: {why}"
        return "run"

    def __str__(self) -> str:
        return f"{self.page}: {self.text} ({self.fate})"


def commands(page: Path) -> list[Command]:
    """Return the commands of a page in order, with every alternative separately."""
    name = str(page.relative_to(TOP))
    found: list[Command] = []
    fenced = False
    for line in page.read_text().replace("\\\n", " ").splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
            continue
        block = LINE.match(line) if fenced or line.startswith("    ") else None
        if block is not None:
            text = COMMENT.sub("", block["text"])
            found += [Command(name, w, "…" not in w) for w in readings(text)]
        elif not fenced:
            for inline in INLINE.finditer(line):
                found += [Command(name, w, False) for w in readings(inline["text"])]
    return found


def readings(text: str) -> Iterator[tuple[str, ...]]:
    """Yield the readings of a line: `a [b]` is `a` and `a b`; `x a | b` is `x a` and `x b`."""
    optional = OPTIONAL.search(text)
    if optional is not None:
        before, after = text[: optional.start()], text[optional.end() :]
        yield from readings(before + after)
        yield from readings(before + optional[1] + after)
        return
    first, *others = (tuple(shlex.split(part)) for part in text.split(" | "))
    first = tuple(
        word for i, word in enumerate(first) if ">" not in {w[:1] for w in first[: i + 1]}
    )
    yield first
    for other in others:
        yield first[: -len(other)] + other


EVERY = [command for page in PAGES for command in commands(page)]
"""Every command of every page."""


def of(program: str) -> list[Command]:
    return [command for command in dict.fromkeys(EVERY) if command.words[0] == program]


@cache
def command_line() -> Any:  # noqa: ANN401 - typer tells no type
    return typer.main.get_command(app)


def lacks(arguments: Sequence[str]) -> str:
    """Parse a command by the command line's own parser without running it; return what is missing.

    That is the name of the first required parameter without a value; empty if there is none.
    Raises the parser's errors.
    """
    command = command_line()
    path, given = ["jouletune"], [word for word in arguments if word not in ASIDE]
    while given and hasattr(command, "commands"):
        name = given.pop(0)
        command = below(command, name)
        assert command is not None, f"`{' '.join(path)}` has no command {name!r}"
        path.append(name)
    if hasattr(command, "commands"):
        return "the command"
    try:
        command.make_context(" ".join(path), given)
    except USAGE_ERROR as error:
        if type(error).__name__ != "MissingParameter":
            raise
        return str(error.param.name)  # type: ignore[attr-defined]
    return ""


@pytest.mark.parametrize("command", of("jouletune"), ids=str)
def test_the_command_line_accepts_every_documented_command(command: Command) -> None:
    missing = lacks(command.words[1:])
    assert not missing or not command.whole or missing in FILLED, f"{command} lacks {missing}"


@pytest.mark.parametrize("command", of("make"), ids=str)
def test_a_documented_target_is_in_the_makefile(command: Command) -> None:
    makefile = (TOP / "Makefile").read_text()
    targets = set(re.findall(r"^([\w-]+):", makefile, re.MULTILINE))
    variables = set(
        re.findall(r"(?:^|\$\((?:or|if) \$\()(\w+)(?: \??:?=|\))", makefile, re.MULTILINE)
    )
    for word in command.words[1:]:
        name, assigned, _ = word.partition("=")
        assert name in (variables if assigned else targets)


RUNS = [command for command in EVERY if command.whole and command.fate == "run"]
FIRST = next(command for command in RUNS if SIMULATED in command.said)
"""The first command of the pages, whose studies all other commands use."""


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder one hour after the first run, without any contact of an agent since."""
    folder = tmp_path_factory.mktemp("first")
    started(folder, FIRST)
    with closing(sqlite3.connect(folder / STATE)) as file, file:
        file.execute("UPDATE devices SET seen_at = datetime(seen_at, '-1 hour')")
    store = open_store(f"sqlite:///{folder / STATE}", create=False)
    store.devices.put(device(SPARE))
    store.studies.add(study(Phase.BASELINE, devices=(SPARE,), policy="sobol"), "ann", "")
    for number, name in enumerate(ADVISED):
        store.devices.put(device(name))
        asked = study(
            Phase.PROPOSED,
            devices=(name,),
            id=f"asked-{number}",
            terms=Terms(safety=Safety.ADVISE),
            plan=Plan.single(setting(600)),
        )
        store.studies.add(asked, "ann", "")
    store.close()
    return folder


@pytest.fixture
def folder(first: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = Path(shutil.copytree(first, tmp_path / "page"))
    for name, text in FILES.items():
        (made / name).write_text(text)
    for name in os.environ.keys() - elsewhere().keys():
        monkeypatch.delenv(name)
    monkeypatch.chdir(made)
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n" * 10))
    return made


@pytest.mark.slow
@pytest.mark.parametrize("page", dict.fromkeys(command.page for command in RUNS))
def test_the_commands_of_a_page_run_in_its_order(
    page: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in RUNS:
        if command.page != page or command.words == FIRST.words:
            continue
        if command.words[1] == "run":
            started(folder, command)
            continue
        arguments = filled(command.words[1:])
        code = main(arguments)
        out, err = capsys.readouterr()
        allowed = {0, 1} if any(command.said.startswith(may) for may in MAY_SAY_NO) else {0}
        assert code in allowed, f"{command} as {shlex.join(arguments)}: {code}\n{out}\n{err}"
        assert out or err, f"{command} says nothing"


def elsewhere() -> dict[str, str]:
    """Return the environment without variables that name a tuner or database of this machine."""
    return {name: value for name, value in os.environ.items() if not name.startswith("JOULETUNE_")}


def started(folder: Path, command: Command) -> None:
    """Run a study as on the page, with few trials; if sobol refuses a part, with the page's policy."""
    quickly = QUICKLY[:2] if "strict" in command.words else QUICKLY
    done = run_to_end(
        [*JOULETUNE, *command.words[1:], *quickly],
        cwd=folder,
        env={**elsewhere(), "PYTHONPATH": str(TOP)},
        stdin=subprocess.DEVNULL,
        timeout=300,
    )
    assert done.returncode == 0, f"{command}: {done.stderr}"


def filled(arguments: Sequence[str]) -> list[str]:
    """Return arguments with real values in place of the reader's placeholders."""
    given = list(arguments)
    missing = lacks(given)
    if missing:
        given.append(FILLED[missing])
    store = open_store(f"sqlite:///{STATE}", create=False)
    devices = [device.id for device in store.devices.list() if device.id not in (SPARE, *ADVISED)]
    fits = FITS.get(" ".join(given[:2]), tuned)
    studies = [study.id for study in store.studies.list() if fits(study)]
    store.close()
    real = {"NAME": "ann", "ID": devices[-1] if devices else "ID", "STUDY": studies[-1]}
    return [
        PLACES.get(f"{option} {word}") or real.get(word, word)
        for option, word in zip(["", *given], given, strict=False)
    ]
