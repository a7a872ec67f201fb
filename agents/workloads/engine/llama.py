"""llama-server with drafts: a build's options, its start, and the proof that a length has effect."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, Field, ValidationError

from agents.workloads.engine.figures import Timings, timings_of
from agents.workloads.engine.server import EngineServer
from tuner.core import ActuationError, InvalidInput, Setting, first_fault

LENGTH, DRAFT = "speculation_length", "draft"
PROBE_TOKENS = 40
PROBE_S = 120.0
IS_IT = "is it a llama-server?"
BY_MODEL = "draft-simple"
LOOKUP = 12
"""Default n-gram length of `ngram-simple`; it drafts nothing shorter."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A drafting method, and the file of its draft model if it has one."""

    method: str = BY_MODEL
    file: Path | None = None

    @property
    def has_model(self) -> bool:
        """Whether a model in its own file drafts; `draft-mtp` has its heads in the target's file."""
        return self.method.startswith("draft-") and self.method != "draft-mtp"

    @property
    def always(self) -> bool:
        """Whether each step drafts the whole length; n-grams draft only repeated text."""
        return not self.method.startswith("ngram-")


@dataclass(frozen=True, slots=True)
class Dialect:
    """The start options of a family of builds; detected from `--help`, never from a version's name.

    `methods` has the options of each method whose length can be set. `kind` is the option that
    names the method, empty if there is only one. `plain_between` is set if every speculative step
    is followed by a plain one of a single token.
    """

    off: tuple[str, ...]
    methods: Mapping[str, tuple[str, ...]]
    draft: str
    length: str
    kind: str = ""
    plain_between: bool = False

    def options(self, length: int, draft: Draft) -> list[str]:
        """Return the options for a draft length; 0 is off, and then no draft is loaded."""
        if length == 0:
            return list(self.off)
        kind = [self.kind, draft.method] if self.kind else []
        model = [] if draft.file is None else [self.draft, str(draft.file)]
        own = [
            word.format(length=length, lookup=min(LOOKUP, length))
            for word in self.methods[draft.method]
        ]
        return [*kind, *model, *own]

    def methods_in(self, help_text: str) -> list[str]:
        """Return the methods of a build whose length can be set."""
        if not self.kind:
            return list(self.methods)
        listed = re.search(rf"{self.kind}\s+\[?([\w,|-]+)", help_text)
        words = re.split(r"[,|]", listed[1]) if listed else []
        return [method for method in self.methods if method in words]


_MODEL = ("--spec-draft-n-min", "0", "--spec-draft-p-min", "0", "--spec-draft-n-max", "{length}")
SPEC = Dialect(
    off=("--spec-type", "none"),
    methods={
        BY_MODEL: _MODEL,
        "draft-eagle3": _MODEL,
        "draft-mtp": _MODEL,
        "draft-dflash": _MODEL,
        "draft-dspark": _MODEL,
        "ngram-simple": (
            "--spec-ngram-simple-size-n", "{lookup}", "--spec-ngram-simple-size-m", "{length}"
        ),
        "ngram-map-k": ("--spec-ngram-map-k-size-m", "{length}"),
        "ngram-map-k4v": ("--spec-ngram-map-k4v-size-m", "{length}"),
        "ngram-mod": ("--spec-ngram-mod-n-min", "0", "--spec-ngram-mod-n-max", "{length}"),
    },
    draft="--spec-draft-model",
    length="--spec-draft-n-max",
    kind="--spec-type",
)  # fmt: skip
"""As in the llama.cpp of llama-cpp-python 0.3.36 (tools/server/README.md, common/speculative.cpp). The
length of `ngram-cache` is fixed there."""
DRAFT_MAX = Dialect(
    off=(),
    # The default least probability, 0.8 or 0.75, would make most drafts shorter than the requested
    # length.
    methods={BY_MODEL: ("--draft-min", "0", "--draft-p-min", "0", "--draft-max", "{length}")},
    draft="--model-draft",
    length="--draft-max",
    plain_between=True,
)
"""As in llama.cpp 0.3.16.

Its loop decodes one token of every slot together, then verifies the slots' drafts one slot after
another (tools/server/server.cpp, `update_slots`).
"""

REQUEST_LENGTH = "speculative.n_max"
"""The field that sets the draft length of one request, in builds that support it."""


def dialect_of(help_text: str, program: str) -> Dialect:
    """Return the dialect of a build's `--help`. Raises InvalidInput."""
    for dialect in (SPEC, DRAFT_MAX):
        if re.search(rf"{dialect.length}(?![\w-])", help_text):
            return dialect
    raise InvalidInput(
        f"{program} --help lists neither {SPEC.length} nor {DRAFT_MAX.length}",
        hint="give the command of a llama-server that has speculative decoding",
    )


def owned(options: Sequence[str]) -> list[str]:
    """Return the options of an operator's command that only the proxy may set."""
    ours = {"--port", "--host", "--metrics", "--slots", "--no-slots", "-md", "--draft"}
    ours |= {"--draft-n", "--draft-min", "--draft-n-min", "--draft-p-min"}
    for dialect in (SPEC, DRAFT_MAX):
        words = [*dialect.off, *(w for method in dialect.methods.values() for w in method)]
        ours |= {dialect.draft, *(word for word in words if word[0] == "-")}
    return [option for option in options if option.partition("=")[0] in ours]


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
