"""A load on the GPU through its CUDA driver, in a process of its own.

A line on standard input sets the work (`idle`, `steady`, `memory`, `share 0.3`, `on-off 0.05`) or asks for
the items done (`count`); the first line of the output names the GPU, or the reason why nothing loads it.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.hardware.first_hour.cuda import Cuda, NoCuda
from tests.hardware.first_hour.kernels import COMPUTE, MEMORY

PERIOD_S = 0.1
START_S, ANSWER_S = 60.0, 10.0


class Work:
    """Kernels without end, or for a share of the time; an item is one kernel."""

    def __init__(self, cuda: Cuda) -> None:
        self._cuda = cuda
        self._kernel = COMPUTE
        self.items = 0
        self.share, self.period_s = 0.0, PERIOD_S

    def run(self) -> None:
        """Work for ever."""
        self._cuda.enter()
        while True:
            began = time.monotonic()
            busy_s = self.period_s * self.share
            while time.monotonic() - began < busy_s:
                self._cuda.run(self._kernel)
                self.items += 1
            if self.share < 1.0:
                time.sleep(max(0.0, self.period_s - (time.monotonic() - began)))

    def told(self, line: str) -> None:
        """Obey a line of standard input."""
        word, _, value = line.strip().partition(" ")
        if word == "count":
            return say({"items": self.items})
        self._kernel = MEMORY if word == "memory" else COMPUTE
        self.period_s = 2.0 * float(value) if word == "on-off" else PERIOD_S
        shares = {"idle": 0.0, "steady": 1.0, "memory": 1.0, "on-off": 0.5}
        self.share = shares[word] if word in shares else float(value)


def say(what: dict[str, Any]) -> None:
    """Write one line of output."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Serve standard input until it ends."""
    try:
        cuda = Cuda()
    except NoCuda as error:
        return say({"on": "", "why": str(error)})
    work = Work(cuda)
    numbers = re.search(r"^NSpid:(.*)", Path("/proc/self/status").read_text(), re.MULTILINE)
    say({"on": cuda.name, "pid_namespaces": len(numbers[1].split()) if numbers else 1})
    threading.Thread(target=work.run, daemon=True).start()
    for line in sys.stdin:
        work.told(line)


class Load:
    """The load as the kit controls it. `about` is its device, or the reason why there is no load."""

    def __init__(self, command: Sequence[str]) -> None:
        """Start the load, and wait until it works."""
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._lines: list[str] = []
        self._news = threading.Condition()
        threading.Thread(target=self._listen, daemon=True).start()
        self.about = self._answer(START_S) or {
            "on": "",
            "why": "the load did not start; see its errors above",
        }

    @property
    def pid(self) -> int:
        """The process that works on the GPU."""
        return self._process.pid

    @property
    def there(self) -> bool:
        """Whether there is a load."""
        return bool(self.about.get("on"))

    def work(self, how: str) -> None:
        """Change the mode of the load, if there is one."""
        if self.there and self._process.stdin is not None:
            self._process.stdin.write(how + "\n")
            self._process.stdin.flush()

    def items(self) -> int | None:
        """Return the items done so far, None if the load does not answer."""
        self.work("count")
        answer = self._answer(ANSWER_S) if self.there else None
        return int(answer["items"]) if answer else None

    def end(self) -> None:
        """End it after its last kernel."""
        if self._process.poll() is None:
            self.work("idle")
            time.sleep(PERIOD_S)
        self._process.kill()
        self._process.wait()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._news:
                self._lines.append(line)
                self._news.notify_all()
        with self._news:
            self._lines.append("")
            self._news.notify_all()

    def _answer(self, seconds: float) -> dict[str, Any] | None:
        with self._news:
            self._news.wait_for(lambda: bool(self._lines), seconds)
            line = self._lines.pop(0) if self._lines else ""
        answer: dict[str, Any] | None = json.loads(line) if line else None
        return answer
