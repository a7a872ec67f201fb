"""Starts an engine's servers at a setting, each proved before it is used."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from agents.workloads.engine.child import LOG, EngineProcess, help_of
from agents.workloads.engine.llama import Draft, LlamaCpp
from agents.workloads.engine.openai import OpenAiEngine
from agents.workloads.engine.server import EngineServer
from tuner.core import InvalidInput, Setting, Value

START_S = 600.0
"""Time in s for a start: a model of many gigabytes is read from a disk."""
ALL = "--help=all"
"""vLLM's word for the help on every flag."""
ON, OFF = "on", "off"
NAME, VALUE = r"-[\w-]+", r"[ =](?:\{.*?\}|\[.*?\]|[A-Z<][^\s,]*)"
OPTIONS = re.compile(rf"\s*{NAME}(?:{VALUE})?(?:,\s*{NAME}(?:{VALUE})?)*")
"""The names of an option in a line of help, each with its value: `-tp N, --tensor-parallel-size N`."""


EngineStart = LlamaCpp | OpenAiEngine
"""The start options of an engine, and the proof that a server works.

`own` are the words of every start, `words` those for the knobs that are no plain flags, and `owned` tells
whether the proxy sets an option, by all of its names. Two servers fit `beside` each other unless each
reserves the device's memory. `prove` raises ActuationError or DeviceLost, and warms the server up.
"""


@dataclass(frozen=True, slots=True)
class ServerFlag:
    """A flag of the server as a knob: `ubatch_size` is its `--ubatch-size`; on and off may be `--no-…`.

    `listed` is the option as the build's help spells it; a `switch` has no value.
    """

    name: str
    values: tuple[Value, ...]
    default: Value
    listed: str = ""
    switch: bool = False

    @property
    def option(self) -> str:
        """The option on the command line."""
        return self.listed or f"--{self.name.replace('_', '-')}"

    def words(self, value: Value) -> tuple[str, ...]:
        """Return the words for a value."""
        if not self.switch:
            return self.option, str(value)
        return (self.option if value == ON else f"--no-{self.option[2:]}",)


@dataclass(frozen=True, slots=True)
class Launcher:
    """Start an operator's command at a setting of flags, and of the engine's other knobs."""

    command: tuple[str, ...]
    engine: EngineStart
    folder: Path
    flags: tuple[ServerFlag, ...] = ()

    @classmethod
    async def of(
        cls,
        command: Sequence[str],
        drafts: Mapping[str, Draft],
        folder: Path,
        flags: Sequence[ServerFlag] = (),
    ) -> Launcher:
        """Return the launcher of a command; with `drafts` it is llama-server's.

        Raises:
            InvalidInput: the command has options that the proxy sets, a draft cannot be used, or a flag is
                unknown.
        """
        if doubled := [w for w in command if w.partition("=")[0] in ("--port", "--host")]:
            raise InvalidInput(
                f"{' '.join(doubled)} is set by the proxy", hint="leave it out of the command"
            )
        for name, draft in drafts.items():
            if draft.file is not None and not draft.file.is_file():
                raise InvalidInput(f"the draft {name!r} does not exist: {draft.file}")
        folder.mkdir(parents=True, exist_ok=True)
        help_text = await help_of(command)
        if ALL in help_text:
            help_text = await help_of(command, ALL)
        engine: EngineStart
        if drafts:
            engine = LlamaCpp.of(command, drafts, help_text)
        else:
            engine, command = OpenAiEngine.of(command, [flag.name for flag in flags], help_text)
        flags = tuple(_as_listed(flag, command, help_text, engine) for flag in flags)
        return cls(tuple(command), engine, folder, flags)

    def command_at(self, setting: Setting) -> list[str]:
        """Return the command line of a setting, less the words of every start."""
        plain = [flag for flag in self.flags if not self.engine.owned([flag.option])]
        own = [word for flag in plain for word in flag.words(setting[flag.name])]
        return [*self.command, *self.engine.words(setting), *own]

    async def __call__(self, setting: Setting) -> EngineServer:
        """Start a server that is ready, and whose setting has effect.

        Raises:
            DeviceLost: it ends, or is not ready in time.
            ActuationError: it does not work at the setting.
        """
        log = self.folder / LOG
        process = await EngineProcess.start(self.command_at(setting), self.engine.own, log)
        server = EngineServer(process.url, setting, process)
        try:
            await server.wait_ready(START_S)
            await self.engine.prove(server)
        except BaseException:  # a cancelled start leaves no process
            await server.end()
            raise
        return server


def _as_listed(
    flag: ServerFlag, command: Sequence[str], help_text: str, engine: EngineStart
) -> ServerFlag:
    """Return a flag as the help spells it, and whether it has no value, only a `--no-` form.

    Raises:
        InvalidInput: a build lacks the flag or a value, or the command or the proxy sets it.
    """
    if flag.name in getattr(engine, "knobs", ()):
        # Beside a word the numbers are text, too: the word is what is wrong.
        if odd := [value for value in flag.values if not str(value).isdecimal()]:
            raise InvalidInput(f"{flag.name} cannot be {odd[0]}", hint="use whole numbers from 0")
        return flag
    rows = (OPTIONS.match(line) for line in help_text.splitlines())
    names = [(_dashed(re.findall(NAME, re.sub(VALUE, "", row[0]))), row[0]) for row in rows if row]
    same, row = next((one for one in names if flag.option in one[0]), (None, ""))
    if same is None:
        raise InvalidInput(
            f"{command[0]} --help does not list {flag.option}",
            hint="write the flag's long name with _ for -: ubatch_size=512,64",
        )
    choices = re.search(r"\{(.*?)\}", row)
    given = [word for word in command[1:] if {*_dashed([word.partition("=")[0]])} & {*same}]
    if given or engine.owned(same):
        by = f"in the command as {given[0]}" if given else "set by the proxy"
        raise InvalidInput(f"{flag.option} cannot be a knob: it is {by}", hint="leave one out")
    switch = f"--no-{flag.option[2:]}" in same
    listed = [ON, OFF] if switch else choices[1].split(",") if choices else None
    wrong = [str(value) for value in flag.values if listed and str(value) not in listed]
    if listed and wrong:
        raise InvalidInput(
            f"{flag.option} of {command[0]} cannot be {wrong[0]}", hint=f"use {', '.join(listed)}"
        )
    spelled = next(name for name in re.findall(NAME, row) if _dashed([name]) == [flag.option])
    return replace(flag, listed=spelled, switch=switch)


def _dashed(options: Sequence[str]) -> list[str]:
    """Return options with - for _, which vLLM takes for the same."""
    return [option.replace("_", "-") for option in options]
