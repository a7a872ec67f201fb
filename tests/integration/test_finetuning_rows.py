"""The setting of the inference alone, and the baseline beside a fine-tuning job: real processes."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from agents.finetuning.programs import BESIDE, ProgramsSignal
from tests.integration.spoken import Spoken
from tests.integration.stage import JOULETUNE, stage
from tests.processes import until

SERVICE = """
name = "served"
url = "{url}"
version = "1"
finetuning_lock = "{lock}"

[[knob]]
name = "clock"
values = [400, 600, 800, 1000]
default = 1000
set = {{ path = "/clock", json = "{{value}}" }}
read = {{ path = "/clock", json = "clock" }}

[latency]
histogram = "request_seconds"

[[ratio]]
name = "cost"
counter = "cost_total"
per = "requests_total"
"""
LIMIT = "latency_p99_ms <= 45"
RATE_PER_S = 400.0
ALONE_MS, BESIDE_TIMES = 20.0, 1.6
"""What a request takes at the highest clock, and how many times as long beside the job."""
EDGES_MS = tuple(range(5, 105, 5))
JOB = """
import json, time
steps = 0
while True:
    steps += 1
    print(json.dumps({"steps": steps}), flush=True)
    time.sleep(0.01)
"""


class Inference(ThreadingHTTPServer):
    """A service with a steady load, whose requests take longer at a low clock and beside a job."""

    daemon_threads = True

    def __init__(self, lock: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.programs = ProgramsSignal(lock)
        self.clock, self.cost, self.began = 1000, 0.0, time.monotonic()
        self.counts = dict.fromkeys(EDGES_MS, 0.0)
        self.lock = threading.Lock()
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def metrics(self) -> str:
        with self.lock:
            now = time.monotonic()
            requests, self.began = RATE_PER_S * (now - self.began), now
            beside = self.programs.read().present == BESIDE
            took_ms = ALONE_MS * 1000.0 / self.clock * (BESIDE_TIMES if beside else 1.0)
            edge = next(edge for edge in EDGES_MS if took_ms <= edge)
            self.counts[edge] += requests
            self.cost += self.clock * requests
            total, below, lines = sum(self.counts.values()), 0.0, []
            for edge, count in self.counts.items():
                below += count
                lines.append(f'request_seconds_bucket{{le="{edge / 1000.0}"}} {below}')
        return "\n".join(
            [
                "# TYPE request_seconds histogram",
                *lines,
                f'request_seconds_bucket{{le="+Inf"}} {total}',
                f"request_seconds_count {total}",
                f"request_seconds_sum {total}",
                "# TYPE cost_total counter",
                f"cost_total {self.cost}",
                "# TYPE requests_total counter",
                f"requests_total {total}",
                "",
            ]
        )


class Handler(Spoken):
    server: Inference

    def do_GET(self) -> None:
        if self.path == "/clock":
            return self.answer(200, {"clock": self.server.clock})
        text = self.server.metrics().encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
        return None

    def do_PUT(self) -> None:
        wanted = int(json.loads(self.body()))
        self.server.metrics()  # what came until now took as long as before
        self.server.clock = wanted
        self.answer(200, {})


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.promise(
    "the process that paces fine-tuning is killed",
    "the setting of the inference alone is held again",
)
def test_a_job_brings_the_baseline_and_the_setting_returns_when_it_is_killed(
    tmp_path: Path,
) -> None:
    lock = tmp_path / "finetuning.lock"
    service = Inference(lock)
    file = tmp_path / "service.toml"
    file.write_text(SERVICE.format(url=service.url, lock=lock))
    with stage(tmp_path) as scene:
        scene.start_tuner()
        scene.start_agent("cpu", f"service:{file}")
        study = scene.create(
            policy="polythrottle",
            objective="minimize cost",
            constraints=[LIMIT],
            terms={"plan_by": "programs", "trials": 16, "window_s": 1.5, "max_window_s": 3.0},
        )
        scene.await_phase(study, "holding", deadline_s=200.0)
        until(lambda: service.clock == 600, lambda: f"alone at {service.clock}")
        options = ["--workload", f"service:{file}", "--constraint", LIMIT]
        job = [sys.executable, "-c", JOB]
        scene.spawn("job", [*JOULETUNE, "finetune", "run", *options, "--", *job])

        until(lambda: service.clock == 1000, lambda: f"{service.clock}; {scene.log('job')}", 60.0)
        searched = len(scene.trials(study))
        os.kill(scene.processes["job"].pid, signal.SIGKILL)
        until(lambda: service.clock == 600, lambda: f"{service.clock} after the job", 60.0)
        assert service.programs.read().present == 1.0
        assert len(scene.trials(study)) == searched, "nothing is searched again"
    service.shutdown()
    service.server_close()
