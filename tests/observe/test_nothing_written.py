"""Observing opens no file of the kernel or of a driver for writing, in no process of the tree."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.observe.watched import RECORDED, hardware_writes, traced


@pytest.mark.slow
def test_nothing_of_the_hardware_is_opened_for_writing(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(RECORDED)
    command = f"{sys.executable} {tmp_path / 'work.py'} {tmp_path / 'record'}"
    trace = traced(tmp_path, "--device", "cpu", "--command", command)
    assert "/proc/stat" in trace  # the meter was there
    assert list(hardware_writes(trace)) == []


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        ('12 openat(AT_FDCWD, "/sys/class/drm/card0/x", O_WRONLY|O_CLOEXEC) = 3', True),
        ('12 openat(AT_FDCWD, "/dev/nvidiactl", O_RDWR) = 3', True),
        ('12 openat(5</proc/1>, "/proc/1/oom_score_adj", O_RDWR) = -1 EACCES', True),
        ('12 creat("/sys/x", 0644) = 3', True),
        ('12 openat(AT_FDCWD, "/proc/stat", O_RDONLY|O_CLOEXEC) = 3', False),
        ('12 openat(AT_FDCWD, "/dev/null", O_RDWR) = 3', False),
        ('12 openat(AT_FDCWD, "/tmp/x", O_WRONLY|O_CREAT, 0600) = 3', False),
    ],
)
def test_the_trap_sees_a_write(line: str, counts: bool) -> None:
    assert bool(list(hardware_writes(line))) == counts


def test_the_trap_sees_a_real_write(tmp_path: Path) -> None:
    pytest.importorskip("shutil").which("strace") or pytest.skip("strace is not installed")
    trace = tmp_path / "trace"
    write = "open('/proc/self/comm', 'w').write('x')"
    program = [sys.executable, "-c", write]
    subprocess.run(["strace", "-f", "-qq", "-e", "openat", "-o", str(trace), *program], check=True)
    assert list(hardware_writes(trace.read_text()))
