"""A service of your own, without a line of code: a file describes how it is set and measured.

The file is the one in `docs/workloads.md`; the service (`thumbnails.py` beside this) is a small web server
with one knob, which counts its latencies with `prometheus_client`.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx2
import pytest

from agents.load.http_caller import HttpCaller
from tests.integration.stage import Stage, stage
from tests.processes import until

PAGE = Path(__file__).parents[2] / "docs/workloads.md"
SERVICE = "tests.extend.thumbnails"
MOST_LINES = 30
CLIENTS, PERIOD_S = 4, 0.05


@pytest.fixture
def played(tmp_path: Path) -> Iterator[Stage]:
    with stage(tmp_path) as playing:
        yield playing


def documented() -> str:
    files = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (file,) = (one for one in files if one.startswith('name = "thumbnails"'))
    return str(file)


@contextmanager
def production(port: int) -> Iterator[None]:
    """Requests of other callers, at a fixed rate."""
    ended = threading.Event()

    def client() -> None:
        caller, due = HttpCaller("127.0.0.1", port, "/thumbnail"), time.monotonic()
        while not ended.wait(max(0.0, due - time.monotonic())):
            caller.send()
            due += PERIOD_S
        caller.close()

    clients = [threading.Thread(target=client) for _ in range(CLIENTS)]
    for thread in clients:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in clients:
            thread.join()


@pytest.mark.promise(
    "a tuned service restarts, loses its metrics or resets its counters",
    "the held setting is applied again; the window is discarded",
)
@pytest.mark.slow
def test_a_service_is_tuned_held_over_its_restart_and_put_back_by_a_file_alone(
    played: Stage,
) -> None:
    text = documented()
    assert len(text.splitlines()) <= MOST_LINES
    port = played.start_toy(module=SERVICE)
    file = played.folder / "thumbnails.toml"
    file.write_text(text.replace("127.0.0.1:8080", f"127.0.0.1:{port}"))

    def workers() -> int:
        with suppress(httpx2.TransportError):
            return int(httpx2.get(f"http://127.0.0.1:{port}/config").json()["pool"]["workers"])
        return 0

    with production(port):
        played.start_tuner()
        played.start_agent("cpu", f"service:{file}")
        study = played.create(
            objective="latency_p50_ms", terms={"trials": 2, "window_s": 0.6, "max_window_s": 2.0}
        )
        played.await_phase(study, "holding")
        trials = played.trials(study)
        (row,) = played.call("GET", f"/studies/{study}")["plan"]["rows"]
        assert row["setting"] == {"workers": 2}, trials
        until(lambda: workers() == 2, lambda: f"not held: {played.log('agent')}")
        (known,) = played.call("GET", "/devices")
        assert "workers" in str(known)
        assert not [told for told in ("127.0.0.1", "/config") if told in str(known)]
        played.kill("thumbnails")
        assert played.start_toy(port, SERVICE) == port
        until(lambda: workers() == 2, lambda: f"not held anew: {played.log('agent')}")
        played.call("POST", f"/studies/{study}/stop", {})
        until(lambda: workers() == 1, lambda: f"not put back: {played.log('agent')}")
