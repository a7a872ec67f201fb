"""Tuner and agent as systemd sees them: ready once they serve, alive from then on."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.integration.stage import Stage, stage


def test_tuner_and_agent_report_that_they_are_ready_and_alive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stage(tmp_path) as site:
        with listening(tmp_path / "tuner.notify", monkeypatch) as receiver:
            site.start_tuner()
            assert receiver.recv(100) == b"READY=1\nWATCHDOG=1"
        with listening(tmp_path / "agent.notify", monkeypatch) as receiver:
            site.start_agent("simulated:a100")
            assert ready(site, receiver) == b"READY=1"
            assert receiver.recv(100) == b"WATCHDOG=1"


def listening(path: Path, monkeypatch: pytest.MonkeyPatch) -> socket.socket:
    receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    receiver.bind(str(path))
    receiver.settimeout(30.0)
    monkeypatch.setenv("NOTIFY_SOCKET", str(path))
    return receiver


def ready(site: Stage, receiver: socket.socket) -> bytes:
    try:
        return receiver.recv(100)
    except TimeoutError:
        raise AssertionError(site.log("agent")) from None
