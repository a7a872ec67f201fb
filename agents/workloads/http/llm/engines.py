"""Engines that serve language models: the marks that identify each, and the names of its metrics.

Names are those of each engine's source, with its release or commit (docs/llm.md); only llama.cpp was run
to compare. Of several names of one metric the newest comes first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

IGNORE_END: Mapping[str, object] = MappingProxyType({"ignore_eos": True})


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmEngine:
    """One engine.

    An answer of one of `probes` that is a JSON object with all of `keys` identifies the engine; with an
    `owner`, the list of models must also name that owner. `histograms` are the names by metric
    (`latency`, `ttft`, `tpot`); `tokens` counts output tokens, `running` is the gauge of requests that
    are decoded. `watch` is the reason why the traffic of an engine without histograms cannot be
    measured; `enable` is the step that makes a server show its metrics. A `lazy` engine shows a metric
    only after the first request. `queue` is the
    histogram of the time before a request is scheduled, `ratios` are pairs of counters; both explain a
    latency, and are left out if a server does not show them.
    """

    name: str
    title: str
    version: str
    probes: tuple[str, ...]
    keys: frozenset[str]
    owner: str = ""
    version_key: str = "version"
    metrics: str = "/metrics"
    unit: str = "s"
    histograms: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    queue: str = ""
    ratios: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    tokens: str = ""
    running: str = ""
    watch: str = ""
    enable: str = ""
    lazy: bool = False
    completions: str = "/v1/completions"
    request: Mapping[str, object] = field(default_factory=dict)
    unloaded: tuple[str, str] = ("", "")
    """The path and key of a flag that the model has left memory, or of the list of models in memory."""
    unload_delay: str = ""
    """Its flag for the idle time in s before the unload, as a knob of our proxy."""


VLLM = LlmEngine(
    name="vllm",
    title="vLLM",
    version="0.33",
    probes=("/version",),
    keys=frozenset({"version"}),
    owner="vllm",
    histograms={
        "latency": ("vllm:e2e_request_latency_seconds",),
        "ttft": ("vllm:time_to_first_token_seconds",),
        "tpot": (
            "vllm:request_time_per_output_token_seconds",
            "vllm:time_per_output_token_seconds",
        ),
    },
    queue="vllm:request_queue_time_seconds",
    ratios={
        "prefix_cache_hit_share": (
            "vllm:prefix_cache_hits_total",
            "vllm:prefix_cache_queries_total",
        ),
        "preemptions_per_request": ("vllm:num_preemptions_total", "vllm:request_success_total"),
    },
    tokens="vllm:generation_tokens_total",
    running="vllm:num_requests_running",
    enable="start it without --disable-log-stats",
    request=IGNORE_END,
)
SGLANG = LlmEngine(
    name="sglang",
    title="SGLang",
    version="0.5.23",
    probes=("/server_info", "/get_server_info"),
    keys=frozenset({"model_path", "version"}),
    histograms={
        "latency": ("sglang:e2e_request_latency_seconds",),
        "ttft": ("sglang:time_to_first_token_seconds",),
        "tpot": ("sglang:inter_token_latency_seconds", "sglang:time_per_output_token_seconds"),
    },
    tokens="sglang:generation_tokens_total",
    running="sglang:num_running_reqs",
    enable="start it with --enable-metrics",
    lazy=True,
    request=IGNORE_END,
)
TRTLLM = LlmEngine(
    name="trtllm",
    title="TensorRT-LLM",
    version="1.2",
    probes=("/version",),
    keys=frozenset({"version"}),
    owner="tensorrt_llm",
    metrics="/prometheus/metrics",
    histograms={
        "latency": ("trtllm_e2e_request_latency_seconds",),
        "ttft": ("trtllm_time_to_first_token_seconds",),
        "tpot": ("trtllm_time_per_output_token_seconds",),
    },
    queue="trtllm_request_queue_time_seconds",
    tokens="trtllm_generation_tokens_total",
    running="trtllm_num_requests_running",
    enable="start it with return_perf_metrics: true in its --config",
    lazy=True,
    request=IGNORE_END,
)
LLAMA_CPP = LlmEngine(
    name="llama.cpp",
    title="llama.cpp",
    version="b6000",
    probes=("/props",),
    keys=frozenset({"total_slots"}),
    version_key="build_info",
    tokens="llamacpp:tokens_predicted_total",
    running="llamacpp:requests_processing",
    watch="llama-server has no histogram of latencies",
    enable="start it with --metrics",
    request=IGNORE_END,
    unloaded=("/props", "is_sleeping"),
    unload_delay="sleep_idle_seconds",
)
TGI = LlmEngine(
    name="tgi",
    title="TGI",
    version="3.3",
    probes=("/info",),
    keys=frozenset({"model_id", "max_concurrent_requests"}),
    histograms={"latency": ("tgi_request_duration",)},
    tokens="tgi_request_generated_tokens_sum",
    running="tgi_batch_current_size",
    lazy=True,
)
OLLAMA = LlmEngine(
    name="ollama",
    title="Ollama",
    version="0.12",
    probes=("/api/version",),
    keys=frozenset({"version"}),
    metrics="",
    watch="Ollama has no metrics",
    unloaded=("/api/ps", "models"),
)
TRITON = LlmEngine(
    name="triton",
    title="Triton",
    version="2.60",
    probes=("/v2",),
    keys=frozenset({"name", "extensions"}),
    metrics="http://127.0.0.1:8002/metrics",
    unit="ms",
    histograms={"latency": ("nv_inference_first_response_histogram_ms",)},
    enable="start it with --metrics-config histogram_latencies=true; only decoupled models have it",
    completions="",
)
OPENAI = LlmEngine(
    name="openai",
    title="an OpenAI-compatible server",
    version="",
    probes=("/v1/models",),
    keys=frozenset({"data"}),
    metrics="",
    watch="jouletune has no names of its metrics",
)
ENGINES = (SGLANG, LLAMA_CPP, TGI, OLLAMA, TRITON, VLLM, TRTLLM, OPENAI)
"""In the order of the checks: engines with the most specific marks first."""
