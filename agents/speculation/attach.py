"""Builds the side of a speculative decoder: reads its knobs and chooses its meter."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from agents.host.processes.ownership import WorkloadIdentity
from agents.load.generator import LoadShape
from agents.speculation.caller import PromptDeck
from agents.speculation.client import DecodingSignal, SpeculationActuator, SpeculationClient
from agents.speculation.messages import SpeculationStats
from agents.speculation.meter import THROUGHPUT, DecodingMeter, PromptMeter, accepted_metrics
from agents.target.side import Side
from tuner.core import Clock, Metric, Scope

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


def attached(
    client: SpeculationClient,
    kind: str,
    load: PromptLoad | None,
    clock: Clock,
    seed: int,
) -> Side:
    """Return the side of a running proxy, measured under the given load or the traffic that arrives.

    Raises:
        InvalidInput: the load cannot be sent.
        ActuationError, DeviceLost: the proxy does not answer as documented.
    """
    url = urlsplit(client.url)
    address = (url.hostname or "", url.port or 80)
    knobs, stats = client.knobs(), client.stats()
    space = knobs.space()
    actuator = SpeculationActuator(client, space, knobs.version, per_request=knobs.per_request)
    meter: DecodingMeter | PromptMeter = DecodingMeter(client, clock)
    if load is not None:
        deck = PromptDeck(load.prompts, load.tokens)
        meter = PromptMeter(client, address, deck, LoadShape(load.callers), clock, seed)
    longest = max(int(value) for value in space.knob("speculation_length").values)
    return Side(
        name=knobs.name,
        kind=kind,
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
        identity=WorkloadIdentity(processes=lambda: client.stats().pids, port=address[1]),
    )


def _cannot(stats: SpeculationStats) -> dict[str, str]:
    """Return the missing metrics with the reasons."""
    cannot = {}
    if stats.cpu_s is None:
        cannot["cpu_time_ms"] = "llama-server was not started by the proxy"
    if stats.metrics_missing:
        cannot["accepted_at_1"] = stats.metrics_missing
    return cannot


def _source(load: PromptLoad | None) -> str:
    """Return the origin of the metrics as text."""
    if load is None:
        return "the statistics of the proxy"
    return f"our load generator, {LoadShape(load.callers)} for {load.tokens} tokens each"
