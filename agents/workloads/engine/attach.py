"""Attaches to a running proxy: parses its address, reads its knobs, and chooses its meter."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import unquote

from agents.host.http.local_http import local_url
from agents.host.processes.ownership import WorkloadIdentity
from agents.load.generator import LoadShape
from agents.load.window import WindowMeter
from agents.speculation.client import (
    INSIDE,
    SIGNAL,
    ProxySignal,
    SpeculationActuator,
    SpeculationClient,
)
from agents.speculation.meter import (
    THROUGHPUT,
    DecodingWindow,
    PromptDeck,
    PromptMeter,
    accepted_metrics,
)
from agents.target.side import Side
from tuner.core import Clock, InvalidInput, Meter, Metric, Scope, TuningError

HINT = "write llama_cpp:http://127.0.0.1:8090, the address of `jouletune workload proxy`"
LOAD_HINT = "write #callers:4,prompts:FILE.json,tokens:64"
LEAST_PROMPTS = 64
"""More prompts than a server has slots, as each slot keeps its last prompt."""
LATENCIES = (
    *("latency_mean_ms", "latency_p50_ms", "latency_p99_ms"),
    *("inter_token_p50_ms", "inter_token_p99_ms"),
    *("time_to_first_token_p50_ms", "time_to_first_token_p99_ms"),
)


@dataclass(frozen=True, slots=True)
class PromptLoad:
    """The load to send: the number of callers, and the tokens that each requests per prompt."""

    callers: int
    prompts: tuple[str, ...]
    tokens: int


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
        return _attached(client, load, (parts.hostname or "", parts.port or 80), clock, seed)
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
        prompts = json.loads(Path(file).read_text(encoding="utf-8-sig"))
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


def _attached(
    client: SpeculationClient,
    load: PromptLoad | None,
    address: tuple[str, int],
    clock: Clock,
    seed: int,
) -> Side:
    """Return the side of a running proxy, measured under the given load or the traffic that arrives."""
    knobs, stats, model = client.knobs(), client.stats(), client.model()
    if model and load is None:
        raise InvalidInput(
            f"{knobs.name} reports no tokens with its answers, so its own traffic is not measured here",
            hint=f"{LOAD_HINT}; or `jouletune run --llm {client.url}`",
        )
    space, length = knobs.space(), knobs.length
    actuator = SpeculationActuator(client, space, knobs.version, per_request=knobs.per_request)
    meter: Meter = WindowMeter(partial(DecodingWindow, client, clock))
    if load is not None:
        deck = PromptDeck(load.prompts, load.tokens, model)
        meter = PromptMeter(client, address, deck, LoadShape(load.callers), clock, seed)
    return Side(
        name=knobs.name,
        kind="llama_cpp",
        board=client.url,
        version=knobs.version,
        space=space,
        metrics=(
            THROUGHPUT,
            *(Metric(name, scope=Scope.SERVICE) for name in (LATENCIES if load else ())),
            *accepted_metrics(max(int(value) for value in space.knob(length).values)),
            Metric("cpu_time_ms", scope=Scope.PROCESS),
        ),
        actuator=actuator,
        meter=meter,
        cannot={"accepted_at_1": stats.metrics_missing} if stats.metrics_missing else {},
        source=f"our load generator, {LoadShape(load.callers)} for {load.tokens} tokens each"
        if load
        else "the statistics of the proxy",
        signals=tuple(
            ProxySignal(client, actuator, name, askable=load is not None)
            for name in ((SIGNAL,) if load else (SIGNAL, INSIDE))
        ),
        identity=WorkloadIdentity(processes=lambda: client.stats().pids, port=address[1]),
    )
