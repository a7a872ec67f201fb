"""A server that the agent starts, restarts after a crash, and ends when the agent ends."""

from __future__ import annotations

import json
import logging
import select
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from tuner.core import DeviceLost, InvalidInput

log = logging.getLogger(__name__)

START_S = 120.0
END_S = 10.0
REFUSED = 2
"""The server's exit status if it cannot apply its options."""


class ServerProcess:
    """A workload's server: one of our modules, run with `--port`, `--while-stdin-open` and its options.

    When it is ready, the server writes one line of JSON with its URL. `revive` restarts it on the same
    port if it has ended unexpectedly. It ends with this process, even if this process is killed.

    Raises:
        InvalidInput: the server cannot apply its options; the last line of its log has the reason.
        DeviceLost: the server does not start.
    """

    def __init__(self, spec: str, module: str, options: Sequence[str], log_file: Path) -> None:
        log_file.write_bytes(b"")
        self._spec = spec
        self._module = module
        self._lock = threading.Lock()
        self._ended = False
        self._log_file = log_file
        self._options = options
        self._process = self._start(0)
        self.url = self._ready_url()

    def revive(self) -> None:
        """Restart the server if it has ended unexpectedly; do nothing while it runs.

        Raises:
            DeviceLost: the server does not start; the message has the last line of its log.
        """
        with self._lock:
            status = self._process.poll()
            if status is None or self._ended:
                return
            log.error("event=workload_ended spec=%s status=%d", self._spec, status)
            self._stop()
            self._process = self._start(urlsplit(self.url).port or 0)
            self._ready_url()

    def end(self) -> None:
        """End the server for good; kill it if it does not end within `END_S` seconds."""
        with self._lock:
            self._ended = True
            self._stop()

    def _stop(self) -> None:
        """End the server's process; kill it after `END_S` seconds."""
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        process.stdin.close()
        process.terminate()  # A server that is still starting would notice its closed input too late.
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()

    def _start(self, port: int) -> subprocess.Popen[bytes]:
        """Start the server's process on a port, where 0 is any free one."""
        command = (sys.executable, "-m", self._module, "--port", str(port))
        with self._log_file.open("ab") as errors:
            return subprocess.Popen(
                [*command, "--while-stdin-open", *self._options],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )

    def _ready_url(self) -> str:
        """Wait until the server is ready and return its URL; end the server if it does not start."""
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], START_S)
        line = self._process.stdout.readline() if readable else b""
        try:
            return str(json.loads(line)["url"])
        except (ValueError, LookupError):
            self._stop()
            lines = self._log_file.read_text(errors="replace").strip().splitlines()
            kind = InvalidInput if self._process.returncode == REFUSED else DeviceLost
            raise kind(
                f"the {self._spec} server did not start: {(lines or ['it printed nothing'])[-1]}",
                hint=f"see its log {self._log_file}",
            ) from None
