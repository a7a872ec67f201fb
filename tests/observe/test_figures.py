"""The figures of `observe` agree with the kernel's own accounting within two standard errors."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import datetime
from math import hypot
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.observe.watched import (
    RECORDED,
    SERVICE,
    SERVICE_FILE,
    TICK_MS,
    Mean,
    asked,
    mean_of,
    observe,
    recorded,
)
from tests.plugins.servers import answers
from tests.processes import reserved_port, until

pytestmark = [pytest.mark.slow, pytest.mark.quiet]


def agrees(shown: dict[str, Any], own: Mean, floor: float = 0.0) -> bool:
    """Return whether two means of the same work differ by less than two standard errors and a floor."""
    apart = abs(float(shown["value"]) - own.mean)
    return apart <= 2.0 * hypot(float(shown["stderr"]), own.stderr) + floor


def within(window: dict[str, Any], own: list[dict[str, float]]) -> float:
    """Return a service's own CPU time per request within a window, in ms."""
    began = datetime.fromisoformat(window["started_at"]).timestamp()
    inside = [one for one in own if began <= one["at"] <= began + window["seconds"]]
    return 1e3 * (inside[-1]["cpu_s"] - inside[0]["cpu_s"]) / (len(inside) - 1)


def test_a_programs_cpu_time_and_duration_are_the_kernels(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(RECORDED)
    record = tmp_path / "record"
    command = f"{sys.executable} {tmp_path / 'work.py'} {record}"
    seen = observe(tmp_path, "--device", "cpu", "--command", command, "--metric", "loss:less")
    own = recorded(record)
    assert len(seen["windows"]) == 3
    assert sum(window["completed"] for window in seen["windows"]) == len(own) == 12
    metrics = seen["metrics"]
    assert agrees(metrics["cpu_time_ms"], mean_of([one["cpu_ms"] for one in own]), TICK_MS)
    assert agrees(metrics["latency_ms"], mean_of([one["ms"] for one in own]), TICK_MS)
    assert metrics["loss"]["value"] == 0.5
    assert metrics["cpu_time_ms"]["origin"] == "measured"
    assert metrics["cpu_time_ms"]["scope"] == "process"
    assert "not_restarted" in metrics["cpu_time_ms"]["judged_by"]
    assert seen["settings_written"] == []


def test_a_services_cpu_time_and_rate_are_its_own(tmp_path: Path) -> None:
    pytest.importorskip("fastapi")
    port, record, pid_file = reserved_port(), tmp_path / "record", tmp_path / "pid"
    (tmp_path / "served.py").write_text(SERVICE.format(record=str(record)))
    program = Path(sys.executable).name
    text = SERVICE_FILE.format(port=port, pid_file=pid_file, program=program)
    (tmp_path / "work.toml").write_text(text)
    serve = [sys.executable, "-m", "uvicorn", "served:app", "--port", str(port), "--no-access-log"]
    with subprocess.Popen(serve, cwd=tmp_path) as service:
        try:
            until(answers(f"http://127.0.0.1:{port}/metrics/"), "the service does not answer")
            pid_file.write_text(str(service.pid))
            spec = f"service:{tmp_path / 'work.toml'}"
            seen = observe(tmp_path, "--device", "cpu", "--workload", spec, "--window", "4")
            text = httpx2.get(f"http://127.0.0.1:{port}/metrics/").text
        finally:
            service.terminate()
    own = recorded(record)
    assert f"work_seconds_count {len(own):.1f}" in text
    own_ms = mean_of([within(window, own) for window in seen["windows"]])
    shown = seen["metrics"]["cpu_time_ms"]
    assert agrees(shown, own_ms, TICK_MS / min(w["completed"] for w in seen["windows"])), own_ms
    for window in seen["windows"]:
        assert window["completed"] > 0 and window["failed"] == 0
    assert {"latency_p50_ms", "latency_p99_ms", "throughput_per_s"} <= seen["metrics"].keys()


def test_a_run_without_a_knob_to_try_observes_and_reports_that(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(RECORDED)
    record = tmp_path / "record"
    command = f"{sys.executable} {tmp_path / 'work.py'} {record}"
    options = ["--command", command, "--runs", "3", "--json"]
    done = asked(tmp_path, "run", *options, JOULETUNE_ACTUATOR=str(tmp_path / "none.sock"))
    assert done.returncode == 0, done.stderr
    assert "Nothing can be tuned, so it is observed" in done.stderr
    shown = json.loads(done.stdout)["metrics"]["cpu_time_ms"]
    assert agrees(shown, mean_of([one["cpu_ms"] for one in recorded(record)]), TICK_MS)
