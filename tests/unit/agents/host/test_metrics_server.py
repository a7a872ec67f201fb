"""The metrics server of a host: permitted callers, and the effect of a misbehaving one."""

from __future__ import annotations

import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from agents.config import MetricsAddress
from agents.host.http.metrics_server import MetricsServer, serving
from tests.errors import raised
from tuner.core import ConfigError


def text() -> bytes:
    return b"up 1\n"


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    with serving(MetricsAddress.parse("127.0.0.1:0"), text) as made:
        yield made


def url(server: MetricsServer) -> str:
    return f"http://127.0.0.1:{server.socket.getsockname()[1]}"


def test_metrics_are_served_on_loopback_and_nothing_else_is(server: MetricsServer) -> None:
    answer = httpx2.get(f"{url(server)}/metrics")
    assert (answer.status_code, answer.content) == (200, b"up 1\n")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert httpx2.get(f"{url(server)}/").status_code == 404
    assert httpx2.post(f"{url(server)}/metrics").status_code == 501


def test_a_foreign_page_whose_name_resolves_to_loopback_is_refused(server: MetricsServer) -> None:
    for host in ("evil.example.org", "localhost.evil.example.org", ""):
        assert httpx2.get(f"{url(server)}/metrics", headers={"Host": host}).status_code == 400


def test_silent_and_malformed_callers_block_others_only_briefly(
    server: MetricsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agents.host.http.metrics_server.PATIENCE_S", 0.2)
    where = server.socket.getsockname()
    with socket.create_connection(where), socket.create_connection(where) as garbage:
        garbage.sendall(b"\x00\xff\r\n\r\n")
        assert httpx2.get(f"{url(server)}/metrics", timeout=10.0).status_code == 200


def test_metrics_that_failed_once_are_served_the_next_time() -> None:
    answers: list[bytes] = [b"", b"up 1\n"]

    def failing() -> bytes:
        answer = answers.pop(0)
        if not answer:
            raise OSError("odd")
        return answer

    with serving(MetricsAddress.parse("127.0.0.1:0"), failing) as made:
        with pytest.raises(httpx2.TransportError):
            httpx2.get(f"{url(made)}/metrics")
        assert httpx2.get(f"{url(made)}/metrics").status_code == 200


def test_a_socket_belongs_to_the_group_and_is_removed_with_the_agent(tmp_path: Path) -> None:
    path = tmp_path / "metrics.sock"
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(path))
    left.close()
    with serving(MetricsAddress.parse(f"unix:{path}"), text):
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        transport = httpx2.HTTPTransport(uds=str(path))
        with httpx2.Client(transport=transport) as client:
            assert client.get("http://agent/metrics").content == b"up 1\n"
    assert not path.exists()


def test_a_file_that_is_not_a_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_text("mine")
    with raised(ConfigError, "metrics"):
        serving(MetricsAddress.parse(f"unix:{path}"), text).__enter__()
    assert path.read_text() == "mine"


def test_a_port_in_use_is_reported(server: MetricsServer) -> None:
    port = server.socket.getsockname()[1]
    with raised(ConfigError, "127.0.0.1", port):
        serving(MetricsAddress.parse(f"127.0.0.1:{port}"), text).__enter__()
