"""Options of speculation in a build of llama-server: at its start, and in a request."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tuner.core import InvalidInput


@dataclass(frozen=True, slots=True)
class Dialect:
    """The start options of a family of builds; read from its own `--help`, never from a version's name.

    `plain_between` where every speculative step is followed by a plain one of a single token.
    """

    name: str
    off: tuple[str, ...]
    on: tuple[str, ...]
    draft: str
    length: str
    plain_between: bool = False

    def options(self, length: int, draft: str) -> list[str]:
        """Return the options for a draft length; 0 is off, and then no draft is loaded."""
        if length == 0:
            return list(self.off)
        return [*self.on, self.draft, draft, self.length, str(length)]


SPEC = Dialect(
    name="--spec-draft-n-max",
    off=("--spec-type", "none"),
    on=("--spec-type", "draft-simple", "--spec-draft-n-min", "0", "--spec-draft-p-min", "0"),
    draft="--spec-draft-model",
    length="--spec-draft-n-max",
)
"""As in the llama.cpp of llama-cpp-python 0.3.36 (tools/server/README.md)."""
DRAFT = Dialect(
    name="--draft-max",
    off=(),
    # Its own least probability, 0.8 or 0.75, would cut most drafts short of the length asked for.
    on=("--draft-min", "0", "--draft-p-min", "0"),
    draft="--model-draft",
    length="--draft-max",
    plain_between=True,
)
"""As in that of 0.3.16. Its loop decodes one token of every slot together, then verifies the slots' drafts
one slot after another (tools/server/server.cpp, `update_slots`)."""

REQUEST_LENGTH = "speculative.n_max"
"""The field of a request that sets its length, in builds that support it."""


def dialect_of(help_text: str, program: str) -> Dialect:
    """Return what a build's `--help` shows that it understands. Raises InvalidInput."""
    for dialect in (SPEC, DRAFT):
        if re.search(rf"{dialect.length}(?![\w-])", help_text):
            return dialect
    raise InvalidInput(
        f"{program} --help lists neither {SPEC.length} nor {DRAFT.length}",
        hint="give the command of a llama-server that has speculative decoding",
    )


def owned(options: Sequence[str]) -> list[str]:
    """Return those options of an operator's command that we set ourselves."""
    ours = {"--port", "--host", "--metrics", "--slots", "--no-slots", "-md", "--draft"}
    ours |= {"--draft-n", "--draft-min", "--draft-n-min", "--draft-p-min"}
    for dialect in (SPEC, DRAFT):
        ours |= {
            o for o in (*dialect.off, *dialect.on, dialect.draft, dialect.length) if o[0] == "-"
        }
    return [option for option in options if option.partition("=")[0] in ours]
