"""A stand-in for llama-server, started as a process in its place.

It speaks the API in the shapes recorded from the llama.cpp of llama-cpp-python 0.3.36 and 0.3.16
(`--build`): start options, `/health`, `/props`, `/completion` (whole and streamed, with timings) and
`/metrics`. Of its drafted tokens it accepts 0, 1, … up to the length, in turn, or with `--rate` each
token at that rate. N-grams are drafted only after a prompt whose last line occurred before. A drafted
token takes an eighth of a step, plus `--crowd-ms` for each request that decodes beyond `--crowd-from`.
A model file whose text differs from the draft's has another vocabulary. `POST /stand-in` breaks it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

HELP = {
    "0.3.36": "-t, --threads N   number of threads\n--spec-draft-n-max N\n"
    "--spec-type none,draft-simple,ngram-simple\n"
    "--draft, --draft-n, --draft-max N   the argument has been removed\n",
    "0.3.16": "--draft-max, --draft, --draft-n N   number of tokens to draft (default: 16)\n",
    "0.2.0": "-m, --model FNAME\n",
}


class State:
    """Its counters and its faults."""

    def __init__(self, options: argparse.Namespace, length: int) -> None:
        self.options = options
        self.length = length
        self.lock = threading.Lock()
        self.gate = threading.Semaphore(options.parallel)
        self.metrics = True
        self.accepts = True
        self.decoding = 0
        self.reset()

    def reset(self) -> None:
        self.steps = self.accepted = self.tokens = 0
        self.by_position = [0] * self.length

    def text(self) -> str:
        lines = [f"llamacpp:tokens_predicted_total {self.tokens}"]
        if self.options.build == "0.3.36":
            lines += [
                "# TYPE llamacpp:spec_decode_num_drafts_total counter",
                f"llamacpp:spec_decode_num_drafts_total {self.steps}",
                "# TYPE llamacpp:spec_decode_num_accepted_tokens_total counter",
                f"llamacpp:spec_decode_num_accepted_tokens_total {self.accepted}",
                "# TYPE llamacpp:spec_decode_num_accepted_tokens_per_pos_total counter",
            ]
            name = "llamacpp:spec_decode_num_accepted_tokens_per_pos_total"
            lines += [f'{name}{{position="{i}"}} {n}' for i, n in enumerate(self.by_position)]
        return "\n".join([*lines, ""])


def accepted_of(draft: int, length: int, turn: int, rate: float) -> int:
    """Return the number of a draft's tokens accepted in a turn."""
    if not rate:
        return min(draft, turn % (length + 1))
    evenly = (turn * 0.618034) % 1.0
    return min(draft, int(math.log(1.0 - evenly) / math.log(rate)))


def handler_of(state: State) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            if self.path == "/health":
                self.answer({"status": "ok"})
            elif self.path == "/props":
                self.answer(
                    {"total_slots": state.options.parallel, "model_path": state.options.model}
                )
            elif self.path == "/metrics" and state.metrics:
                self.send(200, state.text().encode(), "text/plain; version=0.0.4")
            elif self.path.startswith("/echo"):
                self.answer({"path": self.path, "headers": [*self.headers.items()]})
            else:
                self.answer({"error": {"code": 501, "message": "not supported"}}, 501)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            if self.path == "/stand-in":
                self.break_it(json.loads(body))
                return
            if self.path != "/completion":
                self.send(200, body, "application/octet-stream")
                return
            try:
                request = json.loads(body)
            except ValueError:
                self.answer({"error": {"code": 400, "message": "not JSON"}}, 400)
                return
            with state.gate:
                state.decoding += 1
                try:
                    self.complete(request)
                finally:
                    state.decoding -= 1

        def break_it(self, request: dict[str, Any]) -> None:
            if request.get("die"):
                os._exit(1)
            state.metrics = request.get("metrics", state.metrics)
            state.accepts = request.get("accepts", state.accepts)
            self.answer({})

        def complete(self, request: dict[str, Any]) -> None:
            length = state.length
            if "ngram-simple" in getattr(state.options, "spec_type", ""):
                lines = str(request.get("prompt")).split("\n")
                length = length if lines[-1] in lines[:-1] else 0
            if state.options.build == "0.3.16":
                length = min(64, request.get("speculative.n_max", length)) if length else 0
            requested = request.get("n_predict", 16)
            if request.get("stream"):
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
            made, drafted, accepted, turn, began = 1, 0, 0, 0, time.monotonic()
            self.event(request, made, 1)
            while made < requested:
                time.sleep(state.options.step_ms / 1000.0)
                draft = min(length, requested - made - 1)
                if turn % 2 and state.options.build == "0.3.16":
                    draft = 0  # every second pass is plain
                crowd = max(0, state.decoding - state.options.crowd_from)
                drafting_ms = state.options.step_ms / 8 + state.options.crowd_ms * crowd
                time.sleep(draft * drafting_ms / 1000.0)
                taken = accepted_of(draft, length, turn, state.options.rate) if state.accepts else 0
                turn += 1
                with state.lock:
                    if draft:
                        state.steps += 1
                        state.accepted += taken
                        for i in range(min(taken, len(state.by_position))):
                            state.by_position[i] += 1
                drafted, accepted = drafted + draft, accepted + taken
                made += taken + 1
                self.event(request, made, taken + 1)
            with state.lock:
                state.tokens += made
            timings = {
                "prompt_n": 3,
                "predicted_n": made,
                "predicted_ms": 1000.0 * (time.monotonic() - began),
            }
            if drafted:
                timings |= {"draft_n": drafted, "draft_n_accepted": accepted}
            text = "".join(f"{i} " for i in range(made))
            last = {"stop": True, "tokens_predicted": made, "length": length, "timings": timings}
            last["threads"] = state.options.threads
            if request.get("stream"):
                self.chunk(b"data: " + json.dumps({"content": "", **last}).encode() + b"\n\n")
                self.chunk(b"")
            else:
                self.answer({"content": text, **last, "prompt": request.get("prompt")})

        def event(self, request: dict[str, Any], made: int, fresh: int) -> None:
            if request.get("stream"):
                text = "".join(f"{i} " for i in range(made - fresh, made))
                event = {"content": text, "stop": False, "tokens_predicted": made}
                self.chunk(b"data: " + json.dumps(event).encode() + b"\n\n")

        def chunk(self, data: bytes) -> None:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

        def answer(self, value: object, status: int = 200) -> None:
            self.send(status, json.dumps(value).encode(), "application/json")

        def send(self, status: int, content: bytes, kind: str) -> None:
            with suppress(ConnectionError):
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore a caller that closed its connection."""


def main() -> None:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--build", default="0.3.36")
    parser.add_argument("--step-ms", type=float, default=0.0)
    parser.add_argument("--crowd-ms", type=float, default=0.0)
    parser.add_argument("--crowd-from", type=int, default=0)
    parser.add_argument("--rate", type=float, default=0.0)
    parser.add_argument("--start-s", type=float, default=0.0)
    parser.add_argument("-m", "--model", default="")
    parser.add_argument("-np", "--parallel", type=int, default=4)
    parser.add_argument("--help", action="store_true")
    parser.add_argument("--port", type=int)
    parser.add_argument("--host")
    parser.add_argument("--metrics", action="store_true")
    parser.add_argument("--slots", action="store_true")
    parser.add_argument("-t", "--threads", type=int, default=2)
    if "0.3.16" in sys.argv:
        parser.add_argument("--model-draft", default="")
        parser.add_argument("--draft-max", type=int, default=16)
        parser.add_argument("--draft-min")
        parser.add_argument("--draft-p-min")
    else:
        parser.add_argument("--spec-type", default="none")
        parser.add_argument("--spec-draft-model", dest="model_draft", default="")
        parser.add_argument("--spec-draft-n-max", dest="draft_max", type=int, default=3)
        parser.add_argument("--spec-draft-n-min")
        parser.add_argument("--spec-draft-p-min")
        parser.add_argument("--spec-ngram-simple-size-n", type=int, default=12)
        parser.add_argument("--spec-ngram-simple-size-m", type=int, default=48)
    options = parser.parse_args()
    if options.help:
        print(HELP[options.build])
        return
    if options.model and "unreadable" in Path(options.model).read_text():
        print("error: failed to load the model")
        raise SystemExit(1)
    length = options.draft_max if options.model_draft else 0
    if getattr(options, "spec_type", "") == "ngram-simple":
        m, n = options.spec_ngram_simple_size_m, options.spec_ngram_simple_size_n
        length = m if m >= n else 0
    elif length and Path(options.model).read_text() != Path(options.model_draft).read_text():
        print("draft model vocab type must match target model to use speculation")
        length = 0
    time.sleep(options.start_s)
    Server((options.host, options.port), handler_of(State(options, length))).serve_forever()


if __name__ == "__main__":
    main()
