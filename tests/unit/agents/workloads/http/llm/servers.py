"""Fakes of language-model servers: the parts by which they are recognised and measured.

Answers are written after each engine's source; docs/llm.md names the files. No engine but llama.cpp was
run to compare.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from typing import Any

from tests.integration.spoken import Spoken
from tests.unit.agents.workloads.http.llm.metric_texts import (
    LLAMA_METRICS,
    SGLANG_METRICS,
    TGI_METRICS,
    TOKENS,
    TRITON_METRICS,
    TRTLLM_METRICS,
    VLLM_METRICS,
    Shown,
    exposition,
)


@dataclass(frozen=True)
class Engine:
    """The answers of one engine: JSON by path, its metrics, and the library that writes the metrics."""

    answers: Mapping[str, Mapping[str, Any]]
    metrics: tuple[Shown, ...] = ()
    style: str = ""
    path: str = "/metrics"
    """The path of its Prometheus text; TensorRT-LLM has JSON at /metrics."""
    off: int = 404
    """The status of /metrics without the flag or port that enables it."""
    knobs: Mapping[str, Any] = field(default_factory=dict)
    """The answer at `/knobs` of our proxy in front of the engine, if any; its setting can be changed."""
    usage_last: bool = True
    """Whether a separate event after the last token has the number of tokens."""
    zero_usage: bool = False
    """Whether each earlier event has a number of tokens, too: 0."""


def _models(owner: str, *more: str) -> dict[str, Any]:
    listed = [{"id": name, "object": "model", "owned_by": owner} for name in ("small", *more)]
    return {"object": "list", "data": listed}


SHOWN: dict[str, Engine] = {
    "vllm": Engine(
        {"/version": {"version": "0.33.0"}, "/v1/models": _models("vllm")}, VLLM_METRICS, "python"
    ),
    "sglang": Engine(
        {
            "/server_info": {"version": "0.5.23", "model_path": "small", "tp_size": 1},
            "/v1/models": _models("sglang"),
        },
        SGLANG_METRICS,
        "processes",
    ),
    "trtllm": Engine(
        {"/version": {"version": "1.2.0"}, "/v1/models": _models("tensorrt_llm")},
        TRTLLM_METRICS,
        "processes",
        path="/prometheus/metrics",
    ),
    "llama.cpp": Engine(
        {
            "/props": {"total_slots": 4, "model_path": "small.gguf", "build_info": "b6000-abc"}
            | {"is_sleeping": False},
            "/v1/models": _models("llamacpp"),
        },
        LLAMA_METRICS,
        "plain",
        off=501,
        usage_last=False,
    ),
    "tgi": Engine(
        {
            "/info": {"model_id": "small", "version": "3.3.0", "max_concurrent_requests": 128},
            "/v1/models": {"object": "list", "data": [{"id": "small", "owned_by": "small"}]},
        },
        TGI_METRICS,
        "rust",
        usage_last=False,
    ),
    "ollama": Engine(
        {
            "/api/version": {"version": "0.12.3"},
            "/v1/models": _models("library"),
            "/api/ps": {"models": [{"name": "small", "size_vram": 1}]},
        },
        zero_usage=True,
    ),
    "triton": Engine(
        {"/v2": {"name": "triton", "version": "2.60.0", "extensions": ["statistics"]}},
        TRITON_METRICS,
        "cpp",
    ),
    "openai": Engine({"/v1/models": _models("somebody")}),
}


@dataclass
class ModelServer:
    """A running fake of an engine, and its faults.

    `renamed` replaces names of metrics. `models` are further models. Paths that begin with one of `keyed`
    need a key. `status` is the status of every other path, `posted` that of requests (0: the right one).
    `silent` has no /metrics. `broken` leaves out the usage. `empty` is the number of events without text
    that come first, each after `quiet_s` seconds. `reasoning` has its text in another field.
    """

    shown: Engine
    renamed: Mapping[str, str] = field(default_factory=dict)
    models: tuple[str, ...] = ()
    keyed: tuple[str, ...] = ()
    status: int = 0
    posted: int = 0
    silent: bool = False
    broken: bool = False
    empty: int = 0
    quiet_s: float = 0.0
    reasoning: bool = False
    port: int = 0
    answered: int = 0
    inside: int = 0
    started_s: float = 1.7e9
    bodies: list[dict[str, Any]] = field(default_factory=list)
    changes: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lock = threading.Lock()
        self.setting = dict(self.shown.knobs.get("setting", {}))
        self.http = ThreadingHTTPServer(("127.0.0.1", self.port), _handler(self))
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()

    def restart(self) -> None:
        """Begin all counters at 0, as a new process does."""
        self.answered, self.started_s = 0, self.started_s + 60.0

    def metrics(self) -> str:
        """Return the text of /metrics."""
        return exposition(
            self.shown.metrics,
            self.shown.style,
            self.answered,
            self.inside,
            self.started_s,
            self.renamed,
            self.models,
        )

    def listed(self, path: str) -> Mapping[str, Any]:
        """Return the JSON of a path."""
        answer = self.shown.answers[path]
        if path != "/v1/models" or not self.models:
            return answer
        return _models(answer["data"][0]["owned_by"], *self.models)


def _handler(server: ModelServer) -> type[Spoken]:
    class Handler(Spoken):
        def do_GET(self) -> None:
            if self.refused():
                return
            if self.path == server.shown.path and server.shown.style not in ("", "cpp"):
                if server.silent:
                    self.answer(
                        server.shown.off, {"error": {"message": "Start it with `--metrics`"}}
                    )
                    return
                self.send(200, server.metrics().encode())
            elif self.path == "/knobs" and server.shown.knobs:
                self.answer(200, {**server.shown.knobs, "setting": server.setting})
            elif self.path in server.shown.answers:
                self.answer(200, server.listed(self.path))
            else:
                self.answer(404, {"error": {"message": "not found"}})

        def refused(self) -> bool:
            """Refuse a request without its key, or all while the model is loaded."""
            keyed = bool(server.keyed) and self.path.startswith(server.keyed)
            status = 401 if keyed else server.status or (self.command == "POST" and server.posted)
            if status:
                # As SGLang and vLLM: a text, not an object.
                self.answer(status, {"error": "Unauthorized" if keyed else "Loading \ud83d"})
            return bool(status)

        def do_PUT(self) -> None:
            server.changes.append(json.loads(self.body()))
            server.setting |= server.changes[-1]
            self.answer(200, {"setting": server.setting})

        def do_POST(self) -> None:
            body = json.loads(self.body())
            if self.refused():
                return
            with server.lock:
                server.bodies.append(body)
                server.inside += 1
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for event in self.events():
                self.event(json.dumps(event))
            self.event("[DONE]")
            self.wfile.write(b"0\r\n\r\n")
            with server.lock:
                server.answered += 1
                server.inside -= 1

        def events(self) -> Iterator[dict[str, Any]]:
            usage = {"prompt_tokens": 3, "completion_tokens": TOKENS, "total_tokens": 3 + TOKENS}
            zero = {"usage": dict.fromkeys(usage, 0)} if server.shown.zero_usage else {}
            for _ in range(server.empty):
                yield {"choices": [{"text": "", "delta": {"role": "assistant"}}], **zero}
                time.sleep(server.quiet_s)
            for n in range(TOKENS):
                time.sleep(0.001)
                text = {"reasoning_content" if server.reasoning else "text": f" t{n}"}
                event = {"choices": [{**text, "finish_reason": None}], **zero}
                if n + 1 == TOKENS and not server.shown.usage_last and not server.broken:
                    event |= {"usage": usage, "timings": {"predicted_n": TOKENS}}
                yield event
            if server.shown.usage_last and not server.broken:
                yield {"choices": [], "usage": usage}

        def event(self, text: str) -> None:
            data = f"data: {text}\n\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.flush()

    return Handler
