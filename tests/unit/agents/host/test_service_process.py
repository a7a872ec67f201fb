"""A service's processes: their CPU time, their start, and a signal that reaches no other process."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agents.host.processes.service_process import PortProcess, ProcessTree, UnitProcess
from tests.errors import raised
from tests.processes import proc, until
from tests.systemctl import FakeSystemctl
from tuner.core import ActuationError, DeviceLost

WORK = """
import os, signal, sys, time
def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end: pass
signal.signal(signal.SIGHUP, lambda *_: open("hup", "w").close())
if os.fork() == 0:
    burn(0.3)
    os._exit(0)
os.wait()
if os.fork() == 0:
    burn(0.2)
    open("ready", "w").close()
    time.sleep(600)
open("first", "w").close()
while True: time.sleep(0.05)
"""
Started = Callable[[], subprocess.Popen[bytes]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Started]:
    begun: list[subprocess.Popen[bytes]] = []

    def begin() -> subprocess.Popen[bytes]:
        for name in ("ready", "first"):
            (tmp_path / name).unlink(missing_ok=True)
        process = subprocess.Popen(
            [sys.executable, "-c", WORK], cwd=tmp_path, start_new_session=True
        )
        begun.append(process)
        until(lambda: all((tmp_path / n).exists() for n in ("ready", "first")), "it does not start")
        (tmp_path / "pid").write_text(f"{process.pid}\nmore\n")
        return process

    yield begin
    for process in begun:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def comm(process: subprocess.Popen[bytes]) -> str:
    return proc(process.pid, "comm").strip()


def test_the_cpu_time_of_ended_and_running_children_counts(start: Started, tmp_path: Path) -> None:
    tree = ProcessTree(tmp_path / "pid", comm(start()))
    used = tree.cpu_s()
    assert used is not None and 0.4 < used < 5.0
    again = tree.cpu_s()
    assert again is not None and again >= used


def test_another_start_gives_another_identifier(start: Started, tmp_path: Path) -> None:
    first = start()
    tree = ProcessTree(tmp_path / "pid", comm(first))
    before = tree.started()
    assert tree.started() == before
    start()
    assert tree.started() != before


def test_a_signal_reaches_the_process(start: Started, tmp_path: Path) -> None:
    ProcessTree(tmp_path / "pid", comm(start())).signal("HUP")
    until((tmp_path / "hup").exists, "no signal came")


@pytest.mark.promise(
    "a PID file is stale, a log is rotated or truncated, or a service restarts during a window",
    "no other process gets a signal; nothing of a rotated log is lost; the window is discarded",
)
def test_a_number_that_is_left_over_reaches_no_reader(start: Started, tmp_path: Path) -> None:
    process = start()
    tree = ProcessTree(tmp_path / "pid", "nginx")
    with raised(DeviceLost, process.pid):
        tree.signal("HUP")
    with raised(DeviceLost, "does not belong"):
        tree.cpu_s()
    assert not (tmp_path / "hup").exists()


@pytest.mark.parametrize("text", [None, "", "none", "-1"])
def test_a_file_without_a_process_is_reported(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "pid").write_text(text)
    tree = ProcessTree(tmp_path / "pid", "nginx")
    for ask in (tree.cpu_s, tree.started, lambda: tree.signal("HUP")):
        with pytest.raises(DeviceLost, match=str(tmp_path / "pid")):
            ask()


def test_a_unit_is_identified_by_systemd(fake_systemctl: FakeSystemctl) -> None:
    fake_systemctl.reports(CPUUsageNSec="1500000000", InvocationID="abc", ActiveState="active")
    unit = UnitProcess("pool.service")
    assert (unit.cpu_s(), unit.started()) == (1.5, "abc")
    unit.signal("HUP")
    words = ["kill", "--kill-whom=main", "--signal=SIGHUP", "pool.service"]
    assert fake_systemctl.calls[-1] == ["--no-ask-password", *words]
    for unset in ("[not set]", str(2**64 - 1)):
        fake_systemctl.reports(CPUUsageNSec=unset)
        assert unit.cpu_s() is None


def test_a_unit_that_does_not_run_or_is_not_permitted_is_reported(
    fake_systemctl: FakeSystemctl,
) -> None:
    fake_systemctl.reports(CPUUsageNSec="1", InvocationID="", ActiveState="failed")
    unit = UnitProcess("pool.service")
    with raised(DeviceLost, "pool.service"):
        unit.cpu_s()
    fake_systemctl.refuses("Access denied")
    with pytest.raises(ActuationError, match="Access denied") as caught:
        unit.signal("HUP")
    assert "polkit" in caught.value.hint


def test_the_process_at_a_port_is_found_anew(tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        process = PortProcess(listener.getsockname()[1])
        with raised(DeviceLost, "port"):
            process.cpu_s()
        listener.listen()
        used = process.cpu_s()
        assert used is not None and used >= 0.0
        assert process.started().startswith(f"{os.getpid()}:")
        with raised(ActuationError, "pid_file"):
            process.signal("HUP")
