"""Attaches to a running proxy: its address read, its knobs found, its meter chosen."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from agents.host.local_http import local_url
from agents.load.generator import LoadShape
from agents.speculation.messages import ProxyStats
from agents.target.side import Side
from agents.workloads.llama_cpp.caller import PromptDeck
from agents.workloads.llama_cpp.client import DecodingSignal, ProxyActuator, ProxyClient
from agents.workloads.llama_cpp.meter import (
    THROUGHPUT,
    DecodingMeter,
    PromptMeter,
    accepted_metrics,
)
from tuner.core import Clock, InvalidInput, Metric, Scope, TuningError

HINT = "write llama_cpp:http://127.0.0.1:8090, the address of `jouletune speculation proxy`"
LOAD_HINT = "write #callers:4,prompts:FILE.json,tokens:64"
LEAST_PROMPTS = 64
"""More than the slots of a server: each keeps the last prompt it had."""
LATENCIES = (
    *("latency_p50_ms", "latency_p99_ms", "latency_mean_ms"),
    *("inter_token_p50_ms", "inter_token_p99_ms"),
    *("time_to_first_token_p50_ms", "time_to_first_token_p99_ms"),
)


@dataclass(frozen=True, slots=True)
class PromptLoad:
    """The load that is asked for: so many callers, each for so many tokens after a prompt."""

    callers: int
    prompts: tuple[str, ...]
    tokens: int


def attach(spec: str, *, seed: int, state_dir: Path, clock: Clock) -> Side:
    """Attach to the proxy that `llama_cpp:http://127.0.0.1:PORT` names.

    Raises:
        InvalidInput: no such address, or a load that cannot be sent.
        DeviceLost, ActuationError: the proxy does not answer, or is none.
    """
    address, _, fragment = spec.removeprefix("llama_cpp:").partition("#")
    parts = local_url(address, HINT)
    if parts.path not in ("", "/"):
        raise InvalidInput(f"{address!r} is not just a host and a port", hint=HINT)
    load = prompt_load(fragment) if fragment else None
    client = ProxyClient(f"http://{parts.netloc}")
    try:
        return _attached(client, (parts.hostname or "", parts.port or 80), load, clock, seed)
    except TuningError:
        client.close()
        raise


def _attached(
    client: ProxyClient, address: tuple[str, int], load: PromptLoad | None, clock: Clock, seed: int
) -> Side:
    knobs, stats = client.knobs(), client.stats()
    space = knobs.space()
    actuator = ProxyActuator(client, space, knobs.version, per_request=knobs.per_request)
    meter: DecodingMeter | PromptMeter = DecodingMeter(client, clock)
    if load is not None:
        deck = PromptDeck(load.prompts, load.tokens)
        meter = PromptMeter(client, address, deck, LoadShape(load.callers), clock, seed)
    longest = max(int(value) for value in space.knob("speculation_length").values)
    return Side(
        name=knobs.name,
        kind="llama_cpp",
        board=client.url,
        version=knobs.version,
        space=space,
        metrics=(
            THROUGHPUT,
            *(Metric(name, scope=Scope.SERVICE) for name in (LATENCIES if load else ())),
            *accepted_metrics(longest),
            *([Metric("cpu_time_ms", scope=Scope.PROCESS)] if stats.cpu_s is not None else []),
        ),
        actuator=actuator,
        meter=meter,
        cannot=_cannot(stats),
        source=_source(load),
        signals=(DecodingSignal(client, actuator, askable=load is not None),),
    )


def prompt_load(fragment: str) -> PromptLoad:
    """Read `callers:4,prompts:FILE,tokens:64`; the file is a JSON list of texts. Raises InvalidInput."""
    options = dict(option.partition(":")[::2] for option in fragment.split(","))
    callers, tokens = options.pop("callers", "4"), options.pop("tokens", "64")
    file = unquote(options.pop("prompts", ""))
    numbers = [text for text in (callers, tokens) if text.isascii() and text.isdigit()]
    if options or not file or len(numbers) < 2 or min(map(int, numbers)) < 1:
        raise InvalidInput(f"cannot read what follows the #: {fragment!r}", hint=LOAD_HINT)
    try:
        prompts = json.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidInput(f"cannot read the prompts {file}: {error}") from None
    if not isinstance(prompts, list) or not all(isinstance(p, str) and p for p in prompts):
        raise InvalidInput(f"{file} is not a JSON list of texts")
    if len(set(prompts)) < LEAST_PROMPTS:
        raise InvalidInput(
            f"{file} has {len(set(prompts))} different prompts, and {LEAST_PROMPTS} are needed",
            hint="a server that sees a prompt again may replay its answer",
        )
    return PromptLoad(int(callers), tuple(prompts), int(tokens))


def _cannot(stats: ProxyStats) -> dict[str, str]:
    cannot = {}
    if stats.cpu_s is None:
        cannot["cpu_time_ms"] = "llama-server was not started by the proxy"
    if stats.metrics_missing:
        cannot["accepted_at_1"] = stats.metrics_missing
    return cannot


def _source(load: PromptLoad | None) -> str:
    if load is None:
        return "the figures of the speculation proxy"
    return f"our load generator, {LoadShape(load.callers)} for {load.tokens} tokens each"
