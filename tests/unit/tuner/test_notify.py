"""Notifications to systemd: sent if it listens, dropped otherwise."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tuner.notify import notify


@pytest.mark.parametrize("abstract", [False, True])
def test_systemds_socket_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, abstract: bool
) -> None:
    name = f"{tmp_path}/notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(f"\0{name[1:]}" if abstract else name)
        receiver.settimeout(5.0)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{name[1:]}" if abstract else name)
        notify("READY=1\nSTATUS=über")
        assert receiver.recv(100).decode() == "READY=1\nSTATUS=über"


def test_an_absent_service_manager_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nobody"))
    notify("WATCHDOG=1")
    assert list(tmp_path.iterdir()) == []
