"""A load on the GPU, with the machine's own torch, in a separate process.

A line on standard input sets the mode (`idle`, `share 0.3`, `on-off 0.05`, `steady`) or requests the
items done (`count`); the first line of the output names the device.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

SIDE = 4096
PERIOD_S = 0.1
START_S, ANSWER_S = 60.0, 10.0
NO_TORCH = "torch is not installed for this Python"
NO_CUDA = "this torch has no CUDA, so nothing loads the GPU"


class Work:
    """Endless matrix products, or for a share of the time; an item is one product."""

    def __init__(self, torch: Any) -> None:  # noqa: ANN401 - whichever torch is there
        self.torch = torch
        self.items = 0
        self.share, self.period_s = 0.0, PERIOD_S
        kind = {"device": "cuda", "dtype": torch.float16}
        self._a, self._b = (torch.randn(SIDE, SIDE, **kind) for _ in range(2))

    def run(self) -> None:
        """Work for ever."""
        while True:
            began = time.monotonic()
            busy_s = self.period_s * self.share
            while time.monotonic() - began < busy_s:
                self.torch.matmul(self._a, self._b)
                self.torch.cuda.synchronize()
                self.items += 1
            if self.share < 1.0:
                time.sleep(max(0.0, self.period_s - (time.monotonic() - began)))

    def told(self, line: str) -> None:
        """Obey a line of standard input."""
        word, _, value = line.strip().partition(" ")
        if word == "count":
            say({"items": self.items})
        elif word == "on-off":
            self.share, self.period_s = 0.5, 2.0 * float(value)
        else:
            self.share = {"idle": 0.0, "steady": 1.0}.get(word) if word != "share" else float(value)  # type: ignore[assignment]
            self.period_s = PERIOD_S


def say(what: dict[str, Any]) -> None:
    """Write one line of output."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Serve standard input until it ends."""
    try:
        import torch
    except ImportError:
        return say({"on": "", "why": NO_TORCH})
    if not torch.cuda.is_available():
        return say({"on": "", "why": NO_CUDA, "torch": str(torch.__version__)})
    work = Work(torch)
    say(
        {
            "on": torch.cuda.get_device_name(0),
            "torch": str(torch.__version__),
            "item": f"{SIDE}³ fp16",
        }
    )
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
        """End it."""
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
