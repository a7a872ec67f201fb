"""Assisted generation of Hugging Face transformers, to be set and measured in the process that runs it.

For a program of your own that calls `model.generate`: copy this file, since it needs
nothing but Python's standard library. It speaks the HTTP contract of docs/workloads.md on loopback, and
Prometheus text at `/metrics`.

The draft's length is `assistant_model.generation_config.num_assistant_tokens`, with the schedule `constant`
and no confidence threshold, for else transformers changes it by itself (generation/candidate_generator.py
of 5.23). Steps are counted by a stopping criterion, which `generate` calls after each of them: tokens that
came beyond the target's own were accepted. Drafted tokens are counted by the assistant's forward passes.

    assisted = AssistedGeneration(assistant_model, lengths=(0, 1, 2, 3, 5, 8))

    def answer():  # one prompt of your own choice
        inputs = tokenizer(next(prompts), return_tensors="pt")
        arguments = assisted.arguments(inputs.input_ids.shape[-1])
        model.generate(**inputs, **arguments, max_new_tokens=64)

    AssistedServer(assisted, answer, version="Qwen3-8B with Qwen3-0.6B", port=8200).serve_forever()
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from os import getpid
from typing import Any

LENGTHS = (0, 1, 2, 3, 5, 8)
KNOB = "speculation_length"
LONGEST_BODY = 65536


class AssistedGeneration:
    """The draft length in force, and what was drafted and accepted since the start.

    `lengths` are the values to try, 0 for no drafts; `default` is the one to compare with.
    """

    def __init__(
        self,
        assistant_model: Any,  # noqa: ANN401  A transformers.PreTrainedModel.
        lengths: Sequence[int] = LENGTHS,
        default: int = 0,
    ) -> None:
        if default not in lengths or min(lengths) < 0 or len(set(lengths)) < len(lengths):
            raise ValueError(
                f"{default} must be one of the lengths {list(lengths)}, each once, from 0"
            )
        self.lengths, self.default, self.length = tuple(lengths), default, default
        self.tokens = self.steps = self.drafted = 0
        self.accepted_by_position = [0] * max(lengths)
        self._assistant = assistant_model
        self._assistant.generation_config.num_assistant_tokens_schedule = "constant"
        self._assistant.generation_config.assistant_confidence_threshold = 0.0
        self._assistant.register_forward_hook(self._draft)

    def arguments(self, prompt_tokens: int) -> dict[str, Any]:
        """Return what to give `model.generate`, for a prompt of so many tokens and one sequence."""
        counter = _StepCounter(self, prompt_tokens)
        if self.length == 0:
            return {"stopping_criteria": [counter]}
        self._assistant.generation_config.num_assistant_tokens = self.length
        return {"assistant_model": self._assistant, "stopping_criteria": [counter]}

    def step(self, tokens: int) -> None:
        """Count a step of the target that gave so many tokens."""
        self.tokens += tokens
        if self.length == 0:
            return
        self.steps += 1
        for position in range(min(tokens - 1, len(self.accepted_by_position))):
            self.accepted_by_position[position] += 1

    def _draft(self, *_: object) -> None:
        self.drafted += 1


class _StepCounter:
    """A stopping criterion that never stops: it sees the sequence after each step."""

    def __init__(self, counts: AssistedGeneration, tokens: int) -> None:
        self._counts, self._tokens = counts, tokens

    def __call__(self, input_ids: Any, scores: object, **_: object) -> Any:  # noqa: ANN401
        now = int(input_ids.shape[-1])
        self._counts.step(now - self._tokens)
        self._tokens = now
        last = input_ids[:, -1]
        return last != last  # False for each sequence, as a tensor on its device


class AssistedServer(ThreadingHTTPServer):
    """The contract's routes on loopback; `answer` generates for one prompt of its own choice.

    One answer at a time is generated, and a length is set between two of them. `version` names what runs:
    another one makes former measurements void. `serve_forever` serves.
    """

    daemon_threads = True

    def __init__(
        self,
        assisted: AssistedGeneration,
        answer: Callable[[], object],
        *,
        version: str,
        name: str = "transformers",
        port: int = 0,
    ) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.assisted, self.answer, self.name, self.version = assisted, answer, name, version
        self.lock = threading.Lock()
        self.items = self.failed = 0
        self.incarnation, self.started_s = secrets.token_hex(4), time.time()

    def infer(self) -> str:
        """Generate once, and return what went wrong: empty if nothing."""
        with self.lock:
            try:
                self.answer()
            except Exception as error:  # noqa: BLE001  It is the program's own, and told to the caller.
                self.failed += 1
                return f"{type(error).__name__}: {error}"
            self.items += 1
            return ""

    def put(self, asked: object) -> str:
        """Set the length, and return what is wrong with it: empty if nothing."""
        lengths = self.assisted.lengths
        if not isinstance(asked, dict) or not set(asked) <= {KNOB}:
            return f"the only knob is {KNOB}"
        length = asked.get(KNOB, self.assisted.length)
        if isinstance(length, bool) or length not in lengths:
            return f"{KNOB} cannot be {length!r}: choose one of {list(lengths)}"
        with self.lock:
            self.assisted.length = length
        return ""

    def knobs(self) -> dict[str, Any]:
        """Return what can be set, and what is in force."""
        assisted = self.assisted
        about = {
            "name": KNOB,
            "values": assisted.lengths,
            "default": assisted.default,
            "role": KNOB,
        }
        setting = {KNOB: assisted.length}
        return {"name": self.name, "version": self.version, "knobs": [about], "setting": setting}

    def stats(self) -> dict[str, Any]:
        """Return totals."""
        totals = {"cpu_s": time.process_time(), "items": self.items, "failed": self.failed}
        return {**totals, "pids": [getpid()], "incarnation": self.incarnation}

    def metrics(self) -> str:
        """Return the same as Prometheus text, and what was drafted and accepted."""
        assisted = self.assisted
        by_position = assisted.accepted_by_position
        counters: dict[str, float] = {
            "process_cpu_seconds_total": time.process_time(),
            "assisted_failures_total": self.failed,
            "assisted_tokens_total": assisted.tokens,
            "assisted_steps_total": assisted.steps,
            "assisted_draft_tokens_total": assisted.drafted,
            "assisted_accepted_tokens_total": sum(by_position),
        }
        lines = ["# TYPE process_start_time_seconds gauge"]
        lines.append(f"process_start_time_seconds {self.started_s}")
        for name, value in counters.items():
            lines += [f"# TYPE {name} counter", f"{name} {value}"]
        name = "assisted_accepted_at_position_total"
        lines.append(f"# TYPE {name} counter")
        lines += [f'{name}{{position="{i}"}} {count}' for i, count in enumerate(by_position)]
        return "\n".join([*lines, ""])


class _Handler(BaseHTTPRequestHandler):
    server: AssistedServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        if self.path == "/metrics":
            self._send(200, self.server.metrics(), "text/plain; version=0.0.4")
        elif self.path in ("/knobs", "/stats"):
            document = self.server.knobs() if self.path == "/knobs" else self.server.stats()
            self._send(200, json.dumps(document))
        else:
            self._refuse(404, "not_found", f"there is no {self.path}")

    def do_POST(self) -> None:
        self._body()
        if self.path != "/infer":
            return self._refuse(404, "not_found", f"there is no {self.path}")
        wrong = self.server.infer()
        return self._refuse(503, "failed", wrong) if wrong else self._send(200, '{"label": 0}')

    def do_PUT(self) -> None:
        body = self._body()
        if self.path != "/knobs":
            return self._refuse(404, "not_found", f"there is no {self.path}")
        try:
            wrong = self.server.put(json.loads(body))
        except ValueError as error:
            return self._refuse(400, "malformed_json", f"the body is not JSON: {error}")
        if wrong:
            return self._refuse(422, "invalid_input", wrong)
        return self._send(200, json.dumps({"setting": self.server.knobs()["setting"]}))

    def log_message(self, *_: object) -> None:
        """Say nothing: the program's output is its own."""

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length", "0")
        size = int(length) if length.isascii() and length.isdigit() else 0
        if size > LONGEST_BODY:
            self.close_connection = True
            return b""
        return self.rfile.read(size)

    def _refuse(self, status: int, code: str, message: str) -> None:
        self._send(status, json.dumps({"error": {"code": code, "message": message}}))

    def _send(self, status: int, text: str, kind: str = "application/json") -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
