"""A GPU service that one of its knobs restarts, tuned through the actuator; it stays the workload.

Its processes are not children of the agent, and have new ids after each start, like those of every
systemd unit and container (NVIDIA/nvidia-docker issue 1483, Syllo/nvtop issue 149).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.integration.test_nvidia import CONSOLE, START_S, Bench, bench
from tests.nvml.fixtures import library
from tests.processes import run_to_end, until

__all__ = ["bench", "library"]

SERVER = """
import ctypes, json, os, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

fake = ctypes.CDLL(sys.argv[3])
fake.fakenvml_set.argtypes = (ctypes.c_uint, ctypes.c_char_p, ctypes.c_double)
fake.fakenvml_set(0, b"own_pid", float(os.getpid()))
value, born = int(open(sys.argv[2]).read()), time.time()


def text():
    n = int((time.time() - born) * 200)
    steps = (("0.01", 0.1), ("0.02", 0.5), ("0.05", 0.999), ("+Inf", 1.0))
    rows = [f'req_seconds_bucket{{le="{edge}"}} {int(n * share)}' for edge, share in steps]
    start = f"# TYPE process_start_time_seconds gauge\\nprocess_start_time_seconds {born}"
    return "\\n".join([start, "# TYPE req_seconds histogram", *rows,
                      f"req_seconds_count {n}", f"req_seconds_sum {n * 0.02}", ""])


class Answer(BaseHTTPRequestHandler):
    def log_message(self, *words):
        pass

    def do_GET(self):
        body = (text() if self.path == "/metrics" else json.dumps({"n": value})).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Answer)
with open(sys.argv[2] + ".port", "w") as file:
    file.write(str(server.server_port))
server.serve_forever()
"""
RESTART = """#!/bin/sh
[ -f "$2.pid" ] && kill "$(cat "$2.pid")" && sleep 0.3
setsid "$3" "$4" "$1" "$2" "$5" >/dev/null 2>&1 &
echo $! > "$2.pid"
"""


@pytest.fixture
def service(bench: Bench) -> Iterator[Path]:
    """Run the service, and yield the file that describes it."""
    folder = bench.folder / "engine"
    folder.mkdir()
    (folder / "server.py").write_text(SERVER)
    knob, restart = folder / "knob", folder / "restart.sh"
    knob.write_text("8\n")
    restart.write_text(RESTART)
    restart.chmod(0o755)
    last = [str(knob), sys.executable, str(folder / "server.py"), str(bench.nvml.library)]
    subprocess.run([str(restart), "0", *last], env=bench.environ, check=True)
    port_file = folder / "knob.port"
    until(lambda: port_file.exists() and bool(port_file.read_text()), "it does not listen", START_S)
    port = port_file.read_text()
    file = bench.folder / "service.toml"
    file.write_text(f"""
name = "engine"
url = "http://127.0.0.1:{port}"
version = "1"
always_busy = true
cpu_time = false
[[knob]]
name = "seqs"
values = [8, 16]
default = 8
restart = true
seconds = 10
write = {{ file = "{knob}", text = "{{value}}\\n" }}
read = {{ path = "/config", json = "n" }}
[restart]
command = {json.dumps([str(restart), port, *last])}
seconds = 30
[latency]
histogram = "req_seconds"
""")
    yield file
    with suppress(ProcessLookupError):
        os.kill(int((folder / "knob.pid").read_text()), signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_service_that_a_knob_restarts_is_tuned_and_confirmed(bench: Bench, service: Path) -> None:
    options = ["--device", "nvidia:0", "--workload", f"service:{service}", "--policy", "sobol"]
    options += ["--no-constraint", "--trials", "4", "--window", "3", "--json"]
    done = run_to_end(
        [sys.executable, "-c", CONSOLE, "run", *options, "--state-dir", str(bench.folder / "st")],
        env=bench.environ,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    result = json.loads(done.stdout)
    trials = result["trials"]
    assert {trial["setting"]["seqs"] for trial in trials} == {8, 16}, "the service was restarted"
    assert {trial["state"] for trial in trials} == {"completed"}
    assert {trial["foreign"] for trial in trials} == {0.0}
    assert not any(trial["notes"] for trial in trials)
    assert result["won"] is True
