"""llama-server with drafts: its start, and the proof by its drafts that a length has effect."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, Field, ValidationError

from agents.host.http.local_http import local_url
from agents.workloads.engine.dialect import REQUEST_LENGTH, Dialect, Draft, dialect_of, owned
from agents.workloads.engine.figures import Timings, timings_of
from agents.workloads.engine.server import EngineServer
from tuner.core import ActuationError, InvalidInput, Setting, TuningError, first_fault

LENGTH, DRAFT = "speculation_length", "draft"
PROBE_TOKENS = 40
PROBE_S = 120.0
IS_IT = "is it a llama-server?"


class Props(BaseModel):
    """The answer of `GET /props`."""

    total_slots: int = Field(ge=1)
    model_path: str = ""
    build_info: str = ""


@dataclass(frozen=True, slots=True)
class LlamaCpp:
    """The start options of llama-server with drafts, which are methods and models by name.

    A second one fits beside the first.
    """

    dialect: Dialect
    drafts: Mapping[str, Draft]
    own: tuple[str, ...] = ("--metrics", "--slots")
    beside: bool = True

    @classmethod
    def of(cls, command: Sequence[str], drafts: Mapping[str, Draft], help_text: str) -> LlamaCpp:
        """Return the options of a command's build.

        Raises:
            InvalidInput: the command has options that the proxy sets, is not a llama-server with
                speculation, a draft's file is missing, or its method is not supported.
        """
        if doubled := owned(command[1:]):
            raise InvalidInput(
                f"{' '.join(doubled)} is set by the proxy", hint="leave it out of the command"
            )
        dialect = dialect_of(help_text, command[0])
        methods = dialect.methods_in(help_text)
        for name, draft in drafts.items():
            if draft.method not in methods:
                raise InvalidInput(
                    f"draft {name!r}: {command[0]} cannot set the length of {draft.method!r}",
                    hint=f"use one of {', '.join(methods)}",
                )
        return cls(dialect, dict(drafts))

    def words(self, setting: Setting) -> Sequence[str]:
        """Return the options for a setting's draft and its length."""
        return self.dialect.options(int(setting[LENGTH]), self.drafts[str(setting[DRAFT])])

    def owned(self, names: Sequence[str]) -> bool:
        """Return whether the proxy sets an option, given all of its names."""
        return bool(owned(names))

    async def prove(self, server: EngineServer) -> None:
        """Raise ActuationError unless a test request shows the server's length."""
        length, draft = int(server.setting[LENGTH]), str(server.setting[DRAFT])
        shown = await probe(server)
        if has_length(shown, length, self.dialect, always=self.drafts[draft].always):
            return
        assert server.process is not None
        raise ActuationError(
            f"llama-server was started at length {length} with the draft {draft!r}, but "
            f"drafted {shown.drafted} tokens in {shown.passes} passes",
            hint=f"check that the models share a vocabulary; see its log {server.process.log}",
        )


async def props_of(server: EngineServer) -> Props:
    """Return a server's model, build and number of slots. Raises ActuationError, DeviceLost."""
    response = await server.ask("GET", "/props")
    try:
        return Props.model_validate_json(response.content)
    except ValidationError as error:
        raise ActuationError(
            f"the response of {server.url}/props is not llama-server's: {first_fault(error)}",
            hint=IS_IT,
        ) from None


async def probe(server: EngineServer, length: int | None = None) -> Timings:
    """Generate a few tokens and return their timings; a `length` is sent with the request.

    No two prompts are alike: some builds replay their output for the same prompt. Raises ActuationError,
    DeviceLost.
    """
    body = {
        "prompt": f"# {secrets.token_hex(16)}\ndef ",
        "n_predict": PROBE_TOKENS,
        "temperature": 0,
        "ignore_eos": True,
        "stream": False,
    }
    if length is not None:
        body[REQUEST_LENGTH] = length
    response = await server.ask("POST", "/completion", body, PROBE_S)
    try:
        timings = timings_of(response.json()["timings"])
    except (ValueError, LookupError, TypeError):
        timings = None
    if timings is None:
        raise ActuationError(f"the response of {server.url}/completion has no timings", hint=IS_IT)
    return timings


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


async def follows_requests(server: EngineServer, longest: int) -> bool:
    """Return whether a running server uses the length of a request, as its answers show.

    Raises:
        InvalidInput: it does not speculate at all.
        ActuationError, DeviceLost: it does not answer.
    """
    without, off = await probe(server), await probe(server, 0)
    one, most = await probe(server, 1), await probe(server, longest)
    if not any(shown.drafted for shown in (without, off, one, most)):
        raise InvalidInput(
            f"llama-server at {server.url} drafts no tokens at any requested length",
            hint="start it with a draft model of the same vocabulary, and with --draft-p-min 0",
        )
    if off.drafted or not one.drafted or one.drafted > one.passes:
        return False
    return longest == 1 or most.drafted * one.passes > one.drafted * most.passes


async def attached(url: str, longest: int) -> EngineServer:
    """Attach to a running server of another program; requests must be able to set its length.

    Raises:
        InvalidInput: it does not speculate, or ignores the length of a request.
        ActuationError, DeviceLost: it does not answer, or is not a llama-server.
    """
    parts = local_url(url, "write http://127.0.0.1:8080")
    server = EngineServer(f"http://{parts.netloc}", {LENGTH: longest, DRAFT: ""})
    try:
        await props_of(server)
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
