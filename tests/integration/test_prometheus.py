"""A real Prometheus scrapes a real tuner and a textfile, evaluates our rules and answers our dashboard."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.stage import Stage, free_port, stage, until
from tuner.cli.actuator import exposed

TOP = Path(__file__).parents[2]
RULES = TOP / "deploy/prometheus/rules.yml"
DASHBOARD = TOP / "deploy/grafana/jouletune.json"
PROMTOOL, PROMETHEUS = shutil.which("promtool"), shutil.which("prometheus")
AGENT_PORT = free_port()
LIMIT = "latency_p99_ms <= 1.2x baseline"
GPU = {
    "uuid": "GPU-1",
    "level": "original",
    "paused": "",
    "trouble": "",
    "values": {"gpu.clock_mhz": 1410},
}
TEXTFILE = "".join(f"{line}\n" for line in exposed([GPU], [], 1))
"""What `jouletune actuator metrics` writes for the node exporter."""

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(None in (PROMTOOL, PROMETHEUS), reason="no prometheus: apt install it"),
]


@pytest.fixture
def played(tmp_path: Path) -> Iterator[Stage]:
    with stage(tmp_path, "lease_s = 1.0\nabandon_s = 2.0\n") as found:
        found.start_tuner()
        found.start_agent("simulated:orin", metrics=f"127.0.0.1:{AGENT_PORT}")
        yield found


@pytest.fixture
def textfile(tmp_path: Path) -> Iterator[int]:
    """Serve the actuator's file as the node exporter would; return the port."""
    (tmp_path / "served").mkdir()
    (tmp_path / "served/metrics").write_text(TEXTFILE)

    class Handler(SimpleHTTPRequestHandler):
        extensions_map = {"": "text/plain; version=0.0.4"}  # noqa: RUF012

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(Handler, directory=str(tmp_path / "served"))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


class Prometheus:
    """A server with our rules, whose long waits are shortened to a second."""

    def __init__(self, played: Stage, textfile: int) -> None:
        self.port, folder = free_port(), played.folder / "prometheus"
        folder.mkdir()
        token = played.call("POST", "/tokens", {"name": "prometheus", "role": "viewer"})["token"]
        (folder / "token").write_text(token)
        hurried = re.sub(r"for: \d+m", "for: 1s", RULES.read_text()).replace("[30m]", "[2m]")
        (folder / "rules.yml").write_text(hurried)
        (folder / "prometheus.yml").write_text(
            f"""
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [{folder}/rules.yml]
scrape_configs:
  - job_name: jouletune
    authorization: {{credentials_file: {folder}/token}}
    static_configs: [{{targets: ["127.0.0.1:{played.tuner_port}"]}}]
  - job_name: jouletune-agent
    static_configs: [{{targets: ["127.0.0.1:{AGENT_PORT}"]}}]
  - job_name: node
    static_configs: [{{targets: ["127.0.0.1:{textfile}"]}}]
"""
        )
        assert PROMETHEUS is not None
        options = {"config.file": folder / "prometheus.yml", "storage.tsdb.path": folder / "data"}
        options["web.listen-address"] = f"127.0.0.1:{self.port}"  # type: ignore[assignment]
        played.spawn("prometheus", [PROMETHEUS, *(f"--{k}={v}" for k, v in options.items())])
        until(self.ready, lambda: f"Prometheus does not start: {played.log('prometheus')}")

    def get(self, path: str, **query: str) -> Any:  # noqa: ANN401
        answer = httpx.get(
            f"http://127.0.0.1:{self.port}/api/v1/{path}", params=query, timeout=30.0
        )
        answer.raise_for_status()
        return answer.json()["data"]

    def ready(self) -> bool:
        try:
            return bool(self.get("status/runtimeinfo"))
        except httpx.HTTPError:
            return False

    def query(self, expression: str) -> list[dict[str, Any]]:
        return list(self.get("query", query=expression)["result"])

    def fires(self, alert: str) -> bool:
        alerts = self.get("alerts")["alerts"]
        return any(a["labels"]["alertname"] == alert and a["state"] == "firing" for a in alerts)


@pytest.fixture
def prometheus(played: Stage, textfile: int) -> Prometheus:
    return Prometheus(played, textfile)


def promtool(*command: str, given: str = "") -> None:
    assert PROMTOOL is not None
    ran = subprocess.run(
        [PROMTOOL, *command], input=given, capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 0, f"{ran.stdout}{ran.stderr}"
    assert ran.stderr == "" or "SUCCESS" in ran.stderr, ran.stderr


def expressions() -> list[str]:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel["targets"]]


def test_every_panel_has_data_and_silence_is_an_alert(
    played: Stage, prometheus: Prometheus
) -> None:
    study = played.create(constraints=[LIMIT])
    played.await_phase(study, "holding")
    for expression in expressions():
        until(
            lambda expression=expression: bool(prometheus.query(expression)),  # type: ignore[misc]
            f"no data for {expression}",
        )
    assert not prometheus.fires("JouletuneAgentSilent")
    played.kill("agent")
    until(lambda: prometheus.fires("JouletuneAgentSilent"), "silence is no alert", 120.0)


def test_a_limit_that_nothing_keeps_is_an_alert(played: Stage, prometheus: Prometheus) -> None:
    study = played.create(constraints=["latency_p99_ms <= 0.001"])
    played.await_phase(study, "holding")
    until(lambda: prometheus.fires("JouletuneLimitBroken"), "a broken limit is no alert", 120.0)


def test_names_and_rules_are_as_prometheus_wants_them(played: Stage) -> None:
    played.await_phase(played.create(constraints=[LIMIT]), "holding")
    token = played.token_file.read_text().strip()
    url = f"http://127.0.0.1:{played.tuner_port}/metrics"
    told = httpx.get(url, headers={"Authorization": f"Bearer {token}"}, timeout=30.0)
    assert httpx.get(url).status_code == 401
    promtool("check", "metrics", given=told.text)
    promtool("check", "metrics", given=TEXTFILE)
    agent = httpx.get(f"http://127.0.0.1:{AGENT_PORT}/metrics", timeout=30.0).text
    assert "jouletune_agent_hold{" in agent
    promtool("check", "metrics", given=agent)
    promtool("check", "rules", str(RULES))
    promtool("test", "rules", str(TOP / "tests/prometheus/alerts.yml"))
