"""`jouletune run --command`: the flags of a program, written as a workload file for the agent."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from agents.workloads.command.config import load_command_config
from tuner import files
from tuner.cli.options import parted
from tuner.core import LARGEST, InvalidInput, Setting, Value
from tuner.typed_toml import to_toml

PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_.]*)\}")
NAME = "program-{}.toml"
"""The name has a digest of the content, so two runs in one folder write different files."""


@dataclass(frozen=True, slots=True)
class Program:
    """The command, and its knobs and metrics as typed."""

    command: str
    knobs: Sequence[str] = ()
    metrics: Sequence[str] = ()
    runs: int | None = None

    def text(self) -> str:
        """Return the content of the workload file. Raises InvalidInput."""
        try:
            words = shlex.split(self.command)
        except ValueError as error:
            raise InvalidInput(f"--command cannot be read: {error}", hint="close it") from None
        if not words:
            raise InvalidInput("--command has no program", hint='write "python train.py {batch}"')
        named = PLACEHOLDER.findall(self.command)
        if named and not self.knobs:
            raise InvalidInput(
                f"--command names {{{named[0]}}}, but no --knob gives its values",
                hint=f"add --knob {named[0]}=8,16,32; the first is the baseline",
            )
        return "\n".join(self._lines(words)) + "\n"

    def _lines(self, words: Sequence[str]) -> Iterator[str]:
        """Yield the lines of the workload file."""
        yield f"name = {to_toml(Path(words[0]).name)}"
        yield f"run = {to_toml(list(words))}"
        yield f"folder = {to_toml(str(Path.cwd()))}"
        if self.runs is not None:
            yield f"runs = {self.runs}"
        for knob in self.knobs:
            written, condition = parted(knob)
            name, values, default = listed_values(written)
            yield f"[[knob]]\nname = {to_toml(name)}\nvalues = {to_toml(values)}"
            yield f"default = {to_toml(default)}"
            if condition is not None:
                yield f"if = {to_toml(str(condition))}"
        for metric in self.metrics:
            name, _, better = metric.partition(":")
            yield f"[[metric]]\nname = {to_toml(name)}\njson = {to_toml(name)}"
            if better:
                yield f"better = {to_toml(better)}"


def write_program(program: Program, state_dir: Path) -> str:
    """Write a program's file into the state folder; return the workload's spec.

    Raises:
        InvalidInput: the command, a knob or a metric is invalid; no file is left then.
    """
    text = program.text()
    state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    file = state_dir.resolve() / NAME.format(digest)
    trial = file.with_suffix(".new")
    files.write(trial, text, 0o600)
    try:
        load_command_config(trial)
        trial.replace(file)
    except InvalidInput as error:
        message = re.sub(rf"{re.escape(str(trial))}(, line \d+)?:? ", "", error.message)
        raise InvalidInput(f"--command: {message}", hint=error.hint) from None
    finally:
        trial.unlink(missing_ok=True)
    return f"command:{file}"


def finished_command(workload: str, setting: Setting) -> str:
    """Return the command line of a command's workload with a setting's values; empty for another one."""
    kind, _, file = workload.partition(":")
    if kind != "command":
        return ""
    program = load_command_config(Path(file)).program(setting)
    return shlex.join(
        [*(f"{n}={value}" for n, value in program.environment.items()), *program.words]
    )


PLAIN = re.compile(r"(?!-0$)-?(0|[1-9][0-9]*)(\.0|\.[0-9]*[1-9])?([eE][+-]?[0-9]+)?")
"""A word that is a number; other words, such as `01`, `nan` or the version `3.10`, stay as written."""


def listed_values(text: str) -> tuple[str, list[Value], Value]:
    """Return the name, values and default of `batch=8,16,32` or `batch=8,16,32@16`.

    Raises InvalidInput.
    """
    name, _, rest = text.partition("=")
    listed, _, default = rest.partition("@")
    words = [word.strip() for word in listed.split(",")]
    if not name.strip() or not all(words):
        raise InvalidInput(
            f"--knob {text!r} has no name or no values",
            hint="write batch=8,16,32; the baseline is the first value, or the one after @: 8,16,32@16",
        )
    values = _values(words)
    if not default:
        return name.strip(), values, values[0]
    if default.strip() not in words:
        raise InvalidInput(
            f"--knob {text!r}: the baseline {default.strip()} is not among its values",
            hint="add it to the list",
        )
    return name.strip(), values, values[words.index(default.strip())]


def _values(words: Sequence[str]) -> list[Value]:
    """Return all words as integers, else as numbers up to `LARGEST`, else as texts; `01` stays a text."""
    if not all(PLAIN.fullmatch(word) and abs(float(word)) <= LARGEST for word in words):
        return list(words)
    return [int(word) if word.lstrip("-").isdigit() else float(word) for word in words]
