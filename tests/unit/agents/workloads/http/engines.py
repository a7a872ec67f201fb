"""Fakes of serving engines that speculate: the files that they read at their start, and their metrics.

`Vllm` follows vLLM 0.26 (docs/features/speculative_decoding/dynamic_speculative_decoding.md,
docs/design/metrics.md; vllm/v1/spec_decode/metrics.py), `Sglang` follows SGLang 0.5.13
(docs/advanced_features/adaptive_speculative_decoding; srt/observability/metrics_collector.py). Nothing
decodes: each answer increases the counters as an engine would, with a share of the drafts accepted.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Sequence
from http.server import ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

from tests.integration.spoken import Spoken

ACCEPTED = (0.8, 0.6, 0.4, 0.2, 0.1)
"""The share of steps that accept the token at each position."""
DRAFT = "draft.json"
STEPS = 20
"""The steps of each answer: every count is a whole number."""


class Engine(ThreadingHTTPServer):
    """One engine; `restart` starts it again with the present text of its file."""

    daemon_threads = True

    def __init__(self, file: Path) -> None:
        super().__init__(("127.0.0.1", 0), EngineHandler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.file = file
        self.starts, self.running = 0, 0
        self.prompts: list[str] = []
        self.step_ms, self.crowd_ms = 0.1, 0.0
        """Milliseconds of a pass, and of each token in it. `running` counts the open answers."""
        self.accepted: Sequence[float] = ACCEPTED
        self.collapse = 1.0
        """The factor of a step's time once its table has changed from drafting to length 0: in vLLM's
        issue 49548 232 tokens/s fell to between 24 and 157."""
        self.drafted = False
        self.deaf = self.broken = False
        """Whether a restart ignores the file; whether the engine does not answer after a restart."""
        self.draft: dict[str, Any] = {}
        """The drafting method in its own file."""
        self.table: dict[int, int] = {}
        self.counts: dict[str, float] = {}
        self.lock = threading.Lock()
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def restart(self) -> None:
        self.starts += 1
        self.counts = dict.fromkeys(self.counts, 0.0)
        self.drafted = False
        if not self.deaf:
            self.table = self.read_table(json.loads(self.file.read_text()))
            own = self.file.with_name(DRAFT)
            self.draft = json.loads(own.read_text()) if own.exists() else {}

    def read_table(self, config: Any) -> dict[int, int]:  # noqa: ANN401
        """Return the length from each number of requests on."""
        raise NotImplementedError

    def length(self, batch: int) -> int:
        return next(k for first, k in sorted(self.table.items(), reverse=True) if batch >= first)

    def answer(self, prompt: str) -> None:
        with self.lock:
            self.running += self.crowd_ms > 0.0
            batch = max(1, self.running)
            length = self.length(batch)
            self.drafted |= length > 0
            slower = self.collapse if self.drafted and not length else 1.0
        step_ms = slower * (self.step_ms + self.crowd_ms * batch * (length + 1))
        time.sleep(STEPS * step_ms / 1000.0)
        with self.lock:
            self.running -= self.crowd_ms > 0.0
            self.prompts.append(prompt)
            self.count(length, [round(STEPS * share) for share in self.accepted[:length]])

    def count(self, length: int, accepted: list[int]) -> None:
        raise NotImplementedError

    def metrics(self) -> str:
        raise NotImplementedError

    def add(self, name: str, value: float) -> None:
        self.counts[name] = self.counts.get(name, 0.0) + value

    def told(self, kinds: dict[str, str]) -> list[str]:
        lines = []
        for name, kind in kinds.items():
            series = [one for one in self.counts if one.partition("{")[0] == name] or [name]
            lines += [f"# TYPE {name} {kind}", *(f"{s} {self.counts.get(s, 0.0)}" for s in series)]
        return lines

    def histogram(self, name: str, edge: str) -> list[str]:
        n = self.counts.get(name, 0.0)
        buckets = [f'{name}_bucket{{le="{le}",model_name="m"}} {n}' for le in (edge, "+Inf")]
        return [f"# TYPE {name} histogram", *buckets]

    def handle_error(self, request: object, client_address: object) -> None:
        """Log nothing: an aborted load resets its connections."""

    def close(self) -> None:
        self.shutdown()
        self.server_close()


class EngineHandler(Spoken):
    server: Engine
    answers: ClassVar[tuple[str, ...]] = ("/v1/completions",)

    def do_POST(self) -> None:
        body = self.body()
        if self.path == "/restart":
            self.server.restart()
        else:
            assert self.path in self.answers, self.path
            self.server.answer(json.loads(body)["prompt"])
        self.answer(200, {})

    def do_GET(self) -> None:
        engine = self.server
        if engine.broken:
            self.answer(503, {})
        elif self.path == "/metrics":
            with engine.lock:
                text = engine.metrics().encode()
            self.send(200, text)
        elif self.path == "/server_info":
            steps = engine.length(max(1, engine.running))
            method = engine.draft.get("speculative-algorithm")
            told = {"internal_states": [{"speculative_num_steps": steps}]}
            self.answer(200, {**told, "speculative_algorithm": method})
        else:
            assert self.path == "/health", self.path
            self.answer(200, {})


class Vllm(Engine):
    """vLLM's API server."""

    PREFIX = "vllm:spec_decode_num_"

    def read_table(self, config: Any) -> dict[int, int]:  # noqa: ANN401
        spec = config["speculative-config"]
        rows = spec["num_speculative_tokens_per_batch_size"]
        assert rows[0][0] == 1 and all(a[1] + 1 == b[0] for a, b in pairwise(rows))
        return {first: min(k, spec["num_speculative_tokens"]) for first, _, k in rows}

    def count(self, length: int, accepted: list[int]) -> None:
        self.add('vllm:generation_tokens_total{engine="0"}', STEPS + sum(accepted))
        self.add("vllm:e2e_request_latency_seconds", 1)
        self.add("vllm:inter_token_latency_seconds", STEPS)
        if length:
            self.add(f'{self.PREFIX}drafts_total{{engine="0"}}', STEPS)
            self.add(f'{self.PREFIX}draft_tokens_total{{engine="0"}}', STEPS * length)
            self.add(f'{self.PREFIX}accepted_tokens_total{{engine="0"}}', sum(accepted))
        for position, count in enumerate(accepted):
            name = f'{self.PREFIX}accepted_tokens_per_pos_total{{engine="0",position="{position}"}}'
            self.add(name, count)

    def metrics(self) -> str:
        counters = ("drafts", "draft_tokens", "accepted_tokens", "accepted_tokens_per_pos")
        names = [f"{self.PREFIX}{one}_total" for one in counters]
        return "\n".join(
            [
                "# TYPE process_start_time_seconds gauge",
                f"process_start_time_seconds {1.7e9 + self.starts}",
                "# TYPE process_cpu_seconds_total counter",
                "process_cpu_seconds_total 3.0",
                "# TYPE vllm:num_requests_running gauge",
                f'vllm:num_requests_running{{engine="0"}} {self.running}',
                *self.told(dict.fromkeys(["vllm:generation_tokens_total", *names], "counter")),
                *self.histogram("vllm:e2e_request_latency_seconds", "0.3"),
                *self.histogram("vllm:inter_token_latency_seconds", "0.01"),
                "",
            ]
        )


class Sglang(Engine):
    """SGLang's server, which counts an answer at its end."""

    def read_table(self, config: Any) -> dict[int, int]:  # noqa: ANN401
        slots = {int(k): v["candidate_steps"] for k, v in config.items() if k.isdigit()}
        assert all(len(steps) == 1 for steps in slots.values()), "else it would choose by itself"
        return {first: steps[0] for first, steps in slots.items()}

    def count(self, length: int, accepted: list[int]) -> None:
        self.add('sglang:generation_tokens_total{model_name="m"}', 1 + STEPS + sum(accepted))
        self.add('sglang:num_requests_total{model_name="m"}', 1)
        self.add("sglang:e2e_request_latency_seconds", 1)
        if length:
            self.add('sglang:spec_verify_calls_total{model_name="m"}', STEPS)

    def metrics(self) -> str:
        names = ("generation_tokens", "num_requests", "spec_verify_calls")
        kinds = dict.fromkeys([f"sglang:{name}_total" for name in names], "counter")
        return "\n".join(
            [
                "# TYPE sglang:num_running_reqs gauge",
                f'sglang:num_running_reqs{{model_name="m",tp_rank="0"}} {self.running}',
                *self.told(kinds),
                *self.histogram("sglang:e2e_request_latency_seconds", "0.4"),
                "",
            ]
        )


def restart_command(url: str) -> list[str]:
    """Return a command that restarts an engine: a real process, without a shell."""
    code = f"import urllib.request as r; r.urlopen(r.Request('{url}/restart', b'', method='POST'))"
    return [sys.executable, "-I", "-c", code]
