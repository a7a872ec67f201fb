"""The text of /metrics as each engine's library writes it, label by label.

Sources: docs/llm.md has the files with their releases or commits; the orders of lines are those of
prometheus_client 0.26, metrics-exporter-prometheus, prometheus-cpp and llama.cpp's server-task.cpp.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

TOKENS = 8
"""Output tokens of each answer."""
LATENCY_S, TTFT_S, TPOT_S = 0.35, 0.03, 0.012
"""The fixed seconds that each request adds to a histogram."""


@dataclass(frozen=True)
class Shown:
    """One metric of an engine: each request adds `value` to it `times` over.

    `labels` are in the engine's order; `buckets` make it a histogram.
    """

    name: str
    about: str
    value: float = 0.0
    times: int = 1
    labels: str = ""
    buckets: tuple[float, ...] = ()
    gauge: bool = False

    @property
    def kind(self) -> str:
        return "gauge" if self.gauge else "histogram" if self.buckets else "counter"


VLLM_LABELS = 'engine="0",model_name="small"'
SGLANG_LABELS = 'engine_type="unified",model_name="small"'
STREAMING = 'engine_type="unified",is_streaming="true",model_name="small"'
VLLM_REQUEST = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
)  # fmt: skip
VLLM_TTFT = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
VLLM_TOKEN = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0,
)  # fmt: skip
SGLANG_TTFT = (
    0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0, 200.0,
    400.0,
)  # fmt: skip
SGLANG_E2E = (*SGLANG_TTFT, 600.0, 1200.0, 1800.0, 2400.0)
SGLANG_TOKEN = (
    0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.08, 0.1, 0.2, 0.4,
    0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0,
)  # fmt: skip
TGI_DURATION = tuple(0.0001 * 1.5**n for n in range(1, 36))
TGI_TOKENS = tuple(20.48 * n for n in range(1, 101))
TRITON_LABELS = 'model="small",version="1"'
VLLM_METRICS = (
    Shown(
        "vllm:e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.",
        LATENCY_S, labels=VLLM_LABELS, buckets=VLLM_REQUEST,
    ),
    Shown(
        "vllm:time_to_first_token_seconds", "Histogram of time to first token in seconds.",
        TTFT_S, labels=VLLM_LABELS, buckets=VLLM_TTFT,
    ),
    Shown(
        "vllm:request_time_per_output_token_seconds",
        "Histogram of time_per_output_token_seconds per request.",
        TPOT_S, labels=VLLM_LABELS, buckets=VLLM_TOKEN,
    ),
    Shown(
        "vllm:generation_tokens_total", "Number of generation tokens processed.",
        1.0, TOKENS, VLLM_LABELS,
    ),
    Shown(
        "vllm:num_requests_running", "Number of requests in model execution batches.",
        labels=VLLM_LABELS, gauge=True,
    ),
)  # fmt: skip
"""Of vLLM 0.11 to 0.33, which also has a histogram named like a total."""
SGLANG_METRICS = (
    Shown(
        "sglang:e2e_request_latency_seconds", "Histogram of End-to-end request latency in seconds",
        LATENCY_S, labels=STREAMING, buckets=SGLANG_E2E,
    ),
    Shown(
        "sglang:time_to_first_token_seconds", "Histogram of time to first token in seconds.",
        TTFT_S, labels=STREAMING, buckets=SGLANG_TTFT,
    ),
    Shown(
        "sglang:inter_token_latency_seconds", "Histogram of inter-token latency in seconds.",
        TPOT_S, TOKENS - 1, SGLANG_LABELS, SGLANG_TOKEN,
    ),
    Shown(
        "sglang:generation_tokens_total", "Number of generation tokens processed.",
        1.0, TOKENS, STREAMING,
    ),
    Shown(
        "sglang:num_running_reqs", "The number of running requests.",
        labels='engine_type="unified",model_name="small",moe_ep_rank="0",pp_rank="0",tp_rank="0"',
        gauge=True,
    ),
)  # fmt: skip
TRTLLM_METRICS = tuple(
    replace(
        one,
        name=one.name.replace("vllm:", "trtllm_").replace("_request_time_per", "_time_per"),
        labels='engine_type="trtllm",model_name="small"',
    )
    for one in VLLM_METRICS
)
"""Written after vLLM's; its request_time_per_output_token_seconds has a shorter name."""
TGI_METRICS = (
    Shown("tgi_request_duration", "Request duration", LATENCY_S, buckets=TGI_DURATION),
    Shown(
        "tgi_request_mean_time_per_token_duration", "Mean time per token per request",
        LATENCY_S / TOKENS, buckets=TGI_DURATION,
    ),
    Shown(
        "tgi_request_generated_tokens", "Generated tokens per request",
        float(TOKENS), buckets=TGI_TOKENS,
    ),
    Shown("tgi_batch_current_size", "Current batch size", gauge=True),
)  # fmt: skip
LLAMA_METRICS = (
    Shown("llamacpp:tokens_predicted_total", "Number of generation tokens processed", 1.0, TOKENS),
    Shown("llamacpp:requests_processing", "Number of requests processing", gauge=True),
)
TRITON_METRICS = (
    Shown(
        "nv_inference_first_response_histogram_ms",
        "Duration from request to first response in milliseconds",
        1000.0 * TTFT_S, labels=TRITON_LABELS, buckets=(100.0, 500.0, 2000.0, 5000.0),
    ),
)  # fmt: skip


def exposition(
    metrics: tuple[Shown, ...],
    style: str,
    answered: int,
    inside: int = 0,
    started_s: float = 1.7e9,
    renamed: Mapping[str, str] = MappingProxyType({}),
    models: tuple[str, ...] = (),
) -> str:
    """Return the text of metrics after some requests to the first model.

    `style` is the library that writes: Python's client (`python`), the same over several processes
    (`processes`), Rust's exporter (`rust`), C++'s (`cpp`), llama.cpp's own (`plain`). `processes` and
    `rust` show a metric only after its first observation.
    """
    lines: list[str] = []
    if style == "python":
        lines += ["# TYPE process_start_time_seconds gauge"]
        lines += [f"process_start_time_seconds {started_s}"]
        lines += [
            "# HELP vllm:iteration_tokens_total Histogram of number of tokens per engine_step."
        ]
        lines += ["# TYPE vllm:iteration_tokens_total histogram"]
        lines += [
            f'vllm:iteration_tokens_total_bucket{{{VLLM_LABELS},le="+Inf"}} {float(answered)}'
        ]
    for one in metrics:
        if not (answered or inside) and style in ("processes", "rust"):
            continue
        named = renamed.get(one.name, renamed.get(f"{one.name}_sum", one.name).removesuffix("_sum"))
        lines += [f"# HELP {named} {one.about}", f"# TYPE {named} {one.kind}"]
        for model in ("small", *models):
            count = answered if model == "small" else 0
            labels = one.labels.replace('"small"', f'"{model}"')
            shown = float(inside) if one.gauge else one.value * count * one.times
            if one.buckets:
                lines += _histogram(style, named, labels, one, count * one.times)
            else:
                written = f"{shown:g}" if style in ("plain", "rust") else shown
                lines += [f"{named}{_braces(labels)} {written}"]
        if style == "python" and not one.gauge:
            created = f"{named.removesuffix('_total')}_created"
            lines += [f"# HELP {created} {one.about}", f"# TYPE {created} gauge"]
            lines += [f"{created}{_braces(one.labels)} {started_s}"]
        lines += [""] if style == "rust" else []
    return "\n".join([*lines, ""])


def _braces(labels: str) -> str:
    return f"{{{labels}}}" if labels else ""


def _histogram(style: str, name: str, labels: str, one: Shown, count: int) -> Iterator[str]:
    """Yield the lines of a histogram in the order, and with the numbers, of its library."""
    comma = f"{labels}," if labels else ""
    number = (lambda value: f"{value:g}") if style in ("rust", "cpp") else float
    ends = [f"{name}_sum{_braces(labels)} {number(one.value * count)}"]
    ends += [f"{name}_count{_braces(labels)} {number(count)}"]
    buckets = [
        f'{name}_bucket{{{comma}le="{number(edge)}"}} {number(count if one.value <= edge else 0)}'
        for edge in one.buckets
    ]
    buckets += [f'{name}_bucket{{{comma}le="+Inf"}} {number(count)}']
    if style == "python":
        yield from (*buckets, *reversed(ends))
    elif style == "processes":
        yield from (ends[0], *buckets, ends[1])
    elif style == "cpp":
        yield from (*reversed(ends), *buckets)
    else:
        yield from (*buckets, *ends)
