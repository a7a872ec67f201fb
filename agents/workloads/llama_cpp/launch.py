"""Starts llama-servers at a length, and proves by their drafts that the length has effect."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agents.host.http.local_http import local_url
from agents.workloads.llama_cpp.child import LlamaProcess, help_of
from agents.workloads.llama_cpp.dialect import REQUEST_LENGTH, Dialect, Draft, dialect_of, owned
from agents.workloads.llama_cpp.figures import Timings
from agents.workloads.llama_cpp.server import LlamaServer, ServerSetting
from tuner.core import ActuationError, InvalidInput, TuningError, Value

START_S = 600.0
"""Time in s for a start: a model of many gigabytes is read from a disk."""
LOG = "llama-server.log"


@dataclass(frozen=True, slots=True)
class ServerFlag:
    """A flag of the server as a knob: `ubatch_size` is its `--ubatch-size`."""

    name: str
    values: tuple[Value, ...]
    default: Value

    @property
    def option(self) -> str:
        """The option on the command line."""
        return f"--{self.name.replace('_', '-')}"


@dataclass(frozen=True, slots=True)
class Launcher:
    """Start an operator's command with the options for speculation, and with flags.

    `drafts` are methods and models by name.
    """

    command: tuple[str, ...]
    dialect: Dialect
    drafts: Mapping[str, Draft]
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
        """Return the launcher of a command.

        Raises:
            InvalidInput: the command has options that the proxy sets, is not a llama-server with
                speculation, a draft's file is missing or its method is not supported, or a flag is
                unknown.
        """
        if doubled := owned(command[1:]):
            raise InvalidInput(
                f"{' '.join(doubled)} is set by the proxy", hint="leave it out of the command"
            )
        for name, draft in drafts.items():
            if draft.file is not None and not draft.file.is_file():
                raise InvalidInput(f"the draft {name!r} does not exist: {draft.file}")
        folder.mkdir(parents=True, exist_ok=True)
        help_text = await help_of(command)
        dialect = dialect_of(help_text, command[0])
        methods = dialect.methods_in(help_text)
        for name, draft in drafts.items():
            if draft.method not in methods:
                raise InvalidInput(
                    f"draft {name!r}: {command[0]} cannot set the length of {draft.method!r}",
                    hint=f"use one of {', '.join(methods)}",
                )
        for flag in flags:
            _check_flag(flag, command, help_text)
        return cls(tuple(command), dialect, dict(drafts), folder, tuple(flags))

    async def __call__(self, setting: ServerSetting) -> LlamaServer:
        """Start a server that is ready, and whose length has effect.

        Raises:
            DeviceLost: it ends, or is not ready in time.
            ActuationError: it does not draft as requested.
        """
        draft = self.drafts[setting.draft]
        log = self.folder / LOG
        options = [*self.dialect.options(setting.length, draft), *setting.flags]
        process = await LlamaProcess.start(self.command, options, log)
        server = LlamaServer(process.url, setting, process)
        try:
            await server.wait_ready(START_S)
            await self._prove(server)
        except BaseException:  # a cancelled start leaves no process
            await server.end()
            raise
        return server

    async def _prove(self, server: LlamaServer) -> None:
        """Raise ActuationError unless a test request shows the server's length."""
        setting = server.setting
        shown = await server.probe()
        always = self.drafts[setting.draft].always
        if has_length(shown, setting.length, self.dialect, always=always):
            return
        assert server.process is not None
        raise ActuationError(
            f"llama-server was started at length {setting.length} with the draft {setting.draft!r}, but "
            f"drafted {shown.drafted} tokens in {shown.passes} passes",
            hint=f"check that the models share a vocabulary; see its log {server.process.log}",
        )


def _check_flag(flag: ServerFlag, command: Sequence[str], help_text: str) -> None:
    """Raise InvalidInput unless a build has a flag that the command and the proxy leave free."""
    listed = (re.match(r"\s*(-[\w-]+(?:,\s*-[\w-]+)*)", line) for line in help_text.splitlines())
    names = [re.split(r",\s*", match[1]) for match in listed if match]
    same = next((group for group in names if flag.option in group), None)
    if same is None:
        raise InvalidInput(
            f"{command[0]} --help does not list {flag.option}",
            hint="write the flag's long name with _ for -: ubatch_size=512,64",
        )
    given = [word for word in command[1:] if word.partition("=")[0] in same]
    if given or owned(same):
        by = f"in the command as {given[0]}" if given else "set by the proxy"
        raise InvalidInput(f"{flag.option} cannot be a knob: it is {by}", hint="leave one out")


def has_length(shown: Timings, length: int, dialect: Dialect, *, always: bool = True) -> bool:
    """Return whether an answer's timings fit a length.

    The last drafts of an answer are cut to its remaining tokens, and in some builds every second
    pass drafts nothing. So a mean above half of the length suffices: our choice. With a method that does
    not `always` draft, only a mean above the length is wrong.
    """
    if not always:
        return shown.drafted <= length * shown.passes
    if length == 0 or shown.drafted == 0:
        return length == shown.drafted == 0
    drafting = (shown.passes + 1) // 2 if dialect.plain_between else shown.passes
    return length * drafting / 2.0 < shown.drafted <= length * max(1, drafting)


async def follows_requests(server: LlamaServer, longest: int) -> bool:
    """Return whether a running server uses the length of a request, as its answers show.

    Raises:
        InvalidInput: it does not speculate at all.
        ActuationError, DeviceLost: it does not answer.
    """
    without, off = await server.probe(), await server.probe(0)
    one, most = await server.probe(1), await server.probe(longest)
    if not any(shown.drafted for shown in (without, off, one, most)):
        raise InvalidInput(
            f"llama-server at {server.url} drafts no tokens at any requested length",
            hint="start it with a draft model of the same vocabulary, and with --draft-p-min 0",
        )
    if off.drafted or not one.drafted or one.drafted > one.passes:
        return False
    return longest == 1 or most.drafted * one.passes > one.drafted * most.passes


async def attached(url: str, longest: int) -> LlamaServer:
    """Attach to a running server of another program; requests must be able to set its length.

    Raises:
        InvalidInput: it does not speculate, or ignores the length of a request.
        ActuationError, DeviceLost: it does not answer, or is not a llama-server.
    """
    parts = local_url(url, "write http://127.0.0.1:8080")
    server = LlamaServer(f"http://{parts.netloc}", ServerSetting(longest, ""))
    try:
        await server.props()
        if not await follows_requests(server, longest):
            raise InvalidInput(
                f"llama-server at {url} ignores {REQUEST_LENGTH}: it "
                "drafts the same number of tokens at any requested length",
                hint="give its command after --, so the proxy can restart it with another length",
            )
    except TuningError:
        await server.end()
        raise
    return server
