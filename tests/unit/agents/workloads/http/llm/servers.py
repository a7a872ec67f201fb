"""Servers of language models as far as they are recognised and measured; nothing is computed.

Answers and metrics are written after each engine's source; docs/llm.md names the files. No engine but
llama.cpp was run to compare.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from typing import Any

from tests.integration.spoken import Spoken

TOKENS = 8
"""Output tokens of each answer."""


@dataclass(frozen=True)
class Shown:
    """What one engine answers: JSON by path, its histograms, counters and gauges."""

    answers: Mapping[str, Mapping[str, Any]]
    histograms: tuple[str, ...] = ()
    tokens: str = ""
    running: str = ""
    knobs: Mapping[str, Any] = field(default_factory=dict)
    """The answer of our proxy at `/knobs`, where one is in front; its setting can be changed."""
    usage_last: bool = True
    """Whether the number of tokens comes in an event of its own, after the last token."""


def _models(owner: str) -> dict[str, Any]:
    return {"object": "list", "data": [{"id": "small", "object": "model", "owned_by": owner}]}


SHOWN: dict[str, Shown] = {
    "vllm": Shown(
        {"/version": {"version": "0.11.0"}, "/v1/models": _models("vllm")},
        (
            "vllm:e2e_request_latency_seconds",
            "vllm:time_to_first_token_seconds",
            "vllm:request_time_per_output_token_seconds",
        ),
        "vllm:generation_tokens_total",
        "vllm:num_requests_running",
    ),
    "sglang": Shown(
        {
            "/get_server_info": {"version": "0.5.3", "model_path": "small", "tp_size": 1},
            "/v1/models": _models("sglang"),
        },
        (
            "sglang:e2e_request_latency_seconds",
            "sglang:time_to_first_token_seconds",
            "sglang:inter_token_latency_seconds",
        ),
        "sglang:generation_tokens_total",
        "sglang:num_running_reqs",
    ),
    "llama.cpp": Shown(
        {
            "/props": {"total_slots": 4, "model_path": "small.gguf", "build_info": "b6000-abc"}
            | {"is_sleeping": False},
            "/v1/models": _models("llamacpp"),
        },
        (),
        "llamacpp:tokens_predicted_total",
        "llamacpp:requests_processing",
        usage_last=False,
    ),
    "tgi": Shown(
        {
            "/info": {"model_id": "small", "version": "3.3.0", "max_concurrent_requests": 128},
            "/v1/models": {"object": "list", "data": [{"id": "small", "owned_by": "small"}]},
        },
        ("tgi_request_duration", "tgi_request_mean_time_per_token_duration"),
        "tgi_request_generated_tokens_sum",
        "tgi_batch_current_size",
    ),
    "ollama": Shown(
        {
            "/api/version": {"version": "0.12.3"},
            "/v1/models": _models("library"),
            "/api/ps": {"models": [{"name": "small", "size_vram": 1}]},
        }
    ),
    "triton": Shown(
        {"/v2": {"name": "triton", "version": "2.60.0", "extensions": ["statistics"]}},
        ("nv_inference_first_response_histogram_ms",),
    ),
    "openai": Shown({"/v1/models": _models("somebody")}),
}


@dataclass
class ModelServer:
    """One running stand-in; `renamed` replaces names of metrics, `broken` leaves out the usage."""

    shown: Shown
    renamed: Mapping[str, str] = field(default_factory=dict)
    broken: bool = False
    answered: int = 0
    inside: int = 0
    bodies: list[dict[str, Any]] = field(default_factory=list)
    changes: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lock = threading.Lock()
        self.setting = dict(self.shown.knobs.get("setting", {}))
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()

    def metrics(self) -> str:
        lines: list[str] = []
        for name in self.shown.histograms:
            named = self.renamed.get(name, name)
            lines += [f"# TYPE {named} histogram"]
            lines += [f'{named}_bucket{{le="{le}"}} {self.answered}' for le in ("0.1", "+Inf")]
        for name, kind, value in (
            (self.shown.tokens, "counter", self.answered * TOKENS),
            (self.shown.running, "gauge", self.inside),
        ):
            # TGI counts tokens in a histogram alone.
            lines += [f"# TYPE {name} {kind}"] if name and not name.endswith("_sum") else []
            lines += [f"{name} {value}"] if name else []
        return "\n".join([*lines, ""])


def _handler(server: ModelServer) -> type[Spoken]:
    class Handler(Spoken):
        def do_GET(self) -> None:
            if self.path == "/metrics" and server.shown.tokens:
                text = server.metrics().encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)
            elif self.path == "/knobs" and server.shown.knobs:
                self.answer(200, {**server.shown.knobs, "setting": server.setting})
            elif self.path in server.shown.answers:
                self.answer(200, server.shown.answers[self.path])
            else:
                self.answer(404, {"error": {"message": "not found"}})

        def do_PUT(self) -> None:
            server.changes.append(json.loads(self.body()))
            server.setting |= server.changes[-1]
            self.answer(200, {"setting": server.setting})

        def do_POST(self) -> None:
            body = json.loads(self.body())
            with server.lock:
                server.bodies.append(body)
                server.inside += 1
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            usage = {"prompt_tokens": 3, "completion_tokens": TOKENS, "total_tokens": 3 + TOKENS}
            for n in range(TOKENS):
                time.sleep(0.001)
                event: dict[str, Any] = {"choices": [{"text": f" t{n}", "finish_reason": None}]}
                if n + 1 == TOKENS and not server.shown.usage_last and not server.broken:
                    event |= {"usage": usage, "timings": {"predicted_n": TOKENS}}
                self.event(json.dumps(event))
            if server.shown.usage_last and not server.broken:
                self.event(json.dumps({"choices": [], "usage": usage}))
            self.event("[DONE]")
            self.wfile.write(b"0\r\n\r\n")
            with server.lock:
                server.answered += 1
                server.inside -= 1

        def event(self, text: str) -> None:
            data = f"data: {text}\n\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.flush()

    return Handler
