"""Requests of a generated load: their arrivals, and the lengths of prompts and answers."""

from __future__ import annotations

import csv
import json
import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.core import InvalidInput

BODIES = 512
"""Different requests; they are sent in turn, and a server's prefix cache cannot hold their prompts."""
WORDS = tuple("abcdefghijklmnopqrstuvwxyz")
"""Single letters after a space, which common tokenizers encode as one token each."""
KEYS = ("rate", "callers", "trace", "prompt", "output", "model")
FORM = "write rate=2,prompt=64-512,output=32-128, callers=4,prompt=256,output=64 or trace=FILE.csv"
COLUMNS = ("prompt_tokens", "output_tokens")
NEEDS = f"it needs the columns arrival_s, {', '.join(COLUMNS)}, in whole tokens"


@dataclass(frozen=True, slots=True)
class Lengths:
    """A range of lengths in tokens, uniform in the logarithm."""

    low: int
    high: int

    @classmethod
    def parse(cls, key: str, text: str) -> Lengths:
        """Return `64` or `64-512`. Raises InvalidInput."""
        match = re.fullmatch(r"(\d{1,7})(?:-(\d{1,7}))?", text, re.ASCII)
        low, high = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if not 0 < low <= high:
            raise InvalidInput(f"--generate-load: {key} cannot be {text!r}", hint=FORM)
        return cls(low, high)

    def draw(self, rng: random.Random) -> int:
        """Return one length."""
        return round(math.exp(rng.uniform(math.log(self.low), math.log(self.high))))


@dataclass(frozen=True, slots=True)
class RequestedLoad:
    """The load of `--generate-load`: a rate of arrivals, a number of callers, or a trace.

    `model` is needed if a server has several models.
    """

    rate_per_s: float | None = None
    callers: int | None = None
    trace: Path | None = None
    prompt: Lengths = Lengths(64, 512)
    output: Lengths = Lengths(32, 128)
    model: str = ""

    @classmethod
    def parse(cls, text: str) -> RequestedLoad:
        """Return the load that a text names. Raises InvalidInput."""
        given: dict[str, str] = {}
        for part in text.split(","):
            key, _, value = (word.strip() for word in part.partition("="))
            if key not in KEYS or not value:
                raise InvalidInput(f"--generate-load cannot read {part.strip()!r}", hint=FORM)
            if key in given:
                raise InvalidInput(f"--generate-load has {key} twice", hint=FORM)
            given[key] = value
        shape = [key for key in ("rate", "callers", "trace") if key in given]
        if len(shape) != 1 or ("trace" in given and given.keys() - {"trace", "model"}):
            raise InvalidInput("--generate-load needs a rate, callers or a trace alone", hint=FORM)
        lengths = {k: Lengths.parse(k, given[k]) for k in ("prompt", "output") if k in given}
        try:
            rate = float(given["rate"]) if "rate" in given else None
            callers = int(given["callers"]) if "callers" in given else None
        except ValueError:
            raise InvalidInput(
                f"--generate-load: {shape[0]} cannot be {given[shape[0]]!r}", hint=FORM
            ) from None
        if not all(one is None or 0 < one < math.inf for one in (rate, callers)):
            raise InvalidInput(f"--generate-load: {shape[0]} must be positive", hint=FORM)
        trace = Path(given["trace"]).absolute() if "trace" in given else None
        return cls(rate, callers, trace, model=given.get("model", ""), **lengths)

    def lengths(self, seed: int) -> Iterator[tuple[int, int]]:
        """Yield the tokens of prompt and answer of each body.

        Raises:
            InvalidInput: the trace cannot be read, or lacks the columns.
        """
        if self.trace is not None:
            yield from _of_trace(self.trace)
            return
        rng = random.Random(seed)
        for _ in range(BODIES):
            yield self.prompt.draw(rng), self.output.draw(rng)

    def bodies(self, model: str, request: Mapping[str, object], seed: int) -> str:
        """Return one JSON body per line. Raises InvalidInput."""
        rng, lines = random.Random(seed), []
        for prompt, output in self.lengths(seed):
            body = {
                "model": model,
                "prompt": " ".join(rng.choices(WORDS, k=prompt)),
                "max_tokens": output,
                "temperature": 0,
                "stream": True,
                "stream_options": {"include_usage": True},
                **request,
            }
            lines.append(json.dumps(body))
        return "\n".join([*lines, ""])


def _of_trace(file: Path) -> Sequence[tuple[int, int]]:
    """Return the lengths of a trace's first requests. Raises InvalidInput."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as text:
            rows = [
                tuple(int(row[column]) for column in COLUMNS)
                for row, _ in zip(csv.DictReader(text), range(BODIES), strict=False)
            ]
    except (OSError, KeyError, ValueError, TypeError, csv.Error) as error:
        raise InvalidInput(
            f"the trace {file} has no lengths: {type(error).__name__}: {error}",
            hint=NEEDS,
        ) from None
    if not rows or any(min(row) < 1 for row in rows):
        raise InvalidInput(f"the trace {file} has no request, or one without tokens", hint=NEEDS)
    return [(row[0], row[1]) for row in rows]
