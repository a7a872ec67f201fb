"""Only `tests.processes` reads /proc, because its functions tolerate processes that end."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import processes

TESTS = Path(__file__).parent
RACY = re.compile(r'pid_exists|psutil\.STATUS_|process_iter|Path\(f?"/proc(?:"|/\{)|kill\(\w+, 0\)')


def test_no_other_test_looks_at_processes_by_itself() -> None:
    # tests/bench/src is a separate distribution, which imports no test.
    own = {Path(__file__), TESTS / "processes.py", *(TESTS / "bench" / "src").rglob("*.py")}
    found = [
        f"{file.relative_to(TESTS)}:{number}"
        for file in sorted({*TESTS.rglob("*.py")} - own)
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if RACY.search(line)
    ]
    assert not found, "use tests.processes: " + ", ".join(found)


@pytest.mark.parametrize("reaped", [False, True])
def test_a_process_that_has_ended_is_gone_before_and_after_it_is_reaped(*, reaped: bool) -> None:
    with subprocess.Popen(["sleep", "600"]) as process:
        pid = process.pid
        assert not processes.gone(pid) and not processes.stopped(pid)
        assert processes.parent(pid) == os.getpid() and pid in processes.children(os.getpid())
        processes.kill(pid)
        if reaped:
            process.wait()
        assert processes.gone(pid) and pid not in processes.children(os.getpid())
        assert processes.command_line(pid) == processes.listed(pid, "fd") == []
        assert processes.link(pid, "cwd") == ""
        processes.kill(pid)


def test_questions_hold_while_processes_begin_and_end() -> None:
    code = "import os\nfor _ in range(300): os.fork() or os._exit(0)\n"
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        while process.poll() is None:
            for pid in processes.processes():
                assert processes.state(pid) and processes.parent(pid) >= 0
                processes.command_line(pid), processes.link(pid, "exe")
