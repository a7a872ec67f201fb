"""Speculation options of a build of llama-server: at its start, and in a request."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.core import InvalidInput

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
DRAFT = Dialect(
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
    for dialect in (SPEC, DRAFT):
        if re.search(rf"{dialect.length}(?![\w-])", help_text):
            return dialect
    raise InvalidInput(
        f"{program} --help lists neither {SPEC.length} nor {DRAFT.length}",
        hint="give the command of a llama-server that has speculative decoding",
    )


def owned(options: Sequence[str]) -> list[str]:
    """Return the options of an operator's command that only the proxy may set."""
    ours = {"--port", "--host", "--metrics", "--slots", "--no-slots", "-md", "--draft"}
    ours |= {"--draft-n", "--draft-min", "--draft-n-min", "--draft-p-min"}
    for dialect in (SPEC, DRAFT):
        words = [*dialect.off, *(w for method in dialect.methods.values() for w in method)]
        ours |= {dialect.draft, *(word for word in words if word[0] == "-")}
    return [option for option in options if option.partition("=")[0] in ours]
