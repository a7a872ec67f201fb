"""Attaches to a running proxy: parses its address, reads its knobs, and chooses its meter."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import unquote

from agents.host.http.local_http import local_url
from agents.speculation.attach import PromptLoad, attached
from agents.speculation.client import SpeculationClient
from agents.target.side import Side
from tuner.core import Clock, InvalidInput, TuningError

HINT = "write llama_cpp:http://127.0.0.1:8090, the address of `jouletune workload proxy`"
LOAD_HINT = "write #callers:4,prompts:FILE.json,tokens:64"
LEAST_PROMPTS = 64
"""More prompts than a server has slots, as each slot keeps its last prompt."""


def attach(spec: str, *, seed: int, state_dir: Path, clock: Clock) -> Side:
    """Attach to the proxy of `llama_cpp:http://127.0.0.1:PORT`.

    Raises:
        InvalidInput: no such address, or a load that cannot be sent.
        DeviceLost, ActuationError: the proxy does not answer, or another program does.
    """
    address, _, fragment = spec.removeprefix("llama_cpp:").partition("#")
    parts = local_url(address, HINT)
    if parts.path not in ("", "/"):
        raise InvalidInput(f"{address!r} is not just a host and a port", hint=HINT)
    load = prompt_load(fragment) if fragment else None
    client = SpeculationClient(f"http://{parts.netloc}")
    try:
        return attached(client, "llama_cpp", load, clock, seed)
    except TuningError:
        client.close()
        raise


def prompt_load(fragment: str) -> PromptLoad:
    """Read `callers:4,prompts:FILE,tokens:64`; the file is a JSON list of texts. Raises InvalidInput."""
    options = dict(option.partition(":")[::2] for option in fragment.split(","))
    callers, tokens = options.pop("callers", "4"), options.pop("tokens", "64")
    file = unquote(options.pop("prompts", ""))
    numbers = [text for text in (callers, tokens) if text.isascii() and text.isdigit()]
    if options or not file or len(numbers) < 2 or min(map(int, numbers)) < 1:
        raise InvalidInput(f"cannot read the part after the #: {fragment!r}", hint=LOAD_HINT)
    try:
        prompts = json.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidInput(f"cannot read the prompts {file}: {error}") from None
    if not isinstance(prompts, list) or not all(isinstance(p, str) and p for p in prompts):
        raise InvalidInput(f"{file} is not a JSON list of texts")
    if len(set(prompts)) < LEAST_PROMPTS:
        raise InvalidInput(
            f"{file} has {len(set(prompts))} different prompts, and {LEAST_PROMPTS} are needed",
            hint="add prompts: a server may answer a repeated prompt from its cache",
        )
    return PromptLoad(int(callers), tuple(prompts), int(tokens))
