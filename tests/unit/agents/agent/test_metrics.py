"""What an agent tells of itself, and where it may be asked."""

from __future__ import annotations

import http.client
import socket
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from agents.agent.metrics import AgentCollector, DeviceState, expose
from agents.tuner_link.spool import Spool
from tuner.core import ConfigError
from tuner.wire import Reverted

STATES = (
    DeviceState("a", opened=True, altered=True, study="s1", silence_s=2.5),
    DeviceState("b", opened=False),
)


class Fixed:
    def __init__(self, state: DeviceState) -> None:
        self._state = state

    def state(self) -> DeviceState:
        return self._state


@pytest.fixture
def collector(tmp_path: Path) -> AgentCollector:
    spool = Spool(tmp_path / "spool")
    spool.put(Reverted(device="a", why="to see"))
    return AgentCollector([Fixed(state) for state in STATES], spool, "1.2.3")


def told(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    families = text_string_to_metric_families(text)
    return {(s.name, frozenset(s.labels.items())): s.value for f in families for s in f.samples}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_devices_holds_and_what_waits_are_told_on_loopback(collector: AgentCollector) -> None:
    port = free_port()
    end = expose(f"127.0.0.1:{port}", collector)
    samples = told(httpx.get(f"http://127.0.0.1:{port}/metrics").text)
    end()
    a, b = frozenset({("device", "a")}), frozenset({("device", "b")})
    assert samples["jouletune_agent_device_open", a] == 1.0
    assert samples["jouletune_agent_device_open", b] == 0.0
    assert samples["jouletune_agent_device_altered", a] == 1.0
    assert ("jouletune_agent_device_altered", b) not in samples
    assert samples["jouletune_agent_hold", a | {("study", "s1")}] == 1.0
    assert samples["jouletune_agent_tuner_silence_seconds", a] == 2.5
    assert samples["jouletune_agent_spool_reports", frozenset()] == 1.0
    assert samples["jouletune_agent_spool_bytes", frozenset()] > 20.0
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://127.0.0.1:{port}/metrics")


def test_a_socket_is_only_its_groups_and_gone_at_the_end(
    collector: AgentCollector, tmp_path: Path
) -> None:
    path = tmp_path / "m.sock"
    end = expose(f"unix:{path}", collector)
    assert path.stat().st_mode & 0o777 == 0o660
    with socket.socket(socket.AF_UNIX) as asked:
        asked.connect(str(path))
        asked.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        answer = http.client.HTTPResponse(asked)
        answer.begin()
        assert b"jouletune_agent_spool_reports 1.0" in answer.read()
    end()
    assert not path.exists()


@pytest.mark.parametrize(
    "address", ["0.0.0.0:9464", "192.0.2.1:9464", "9464", "127.0.0.1:99999", "localhost", ""]
)
def test_nowhere_else_it_is_told(collector: AgentCollector, address: str) -> None:
    with pytest.raises(ConfigError, match="cannot be served") as refused:
        expose(address, collector)
    assert "127.0.0.1" in refused.value.hint


def test_a_port_that_is_taken_is_said(collector: AgentCollector) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ConfigError, match="cannot be served"):
            expose(f"127.0.0.1:{taken.getsockname()[1]}", collector)
