"""The connection to the actuator: JSON lines over a Unix socket, without imports of tuner.core."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path
from typing import Any

from tuner.error_codes import error_of
from tuner.errors import ActuationError, KnobRefused, Unauthorised

PATIENCE_S = 150.0
"""The longest wait for an answer, in seconds. It covers a driver's start and several actuator deadlines."""


class ActuatorClient:
    """A connection to the actuator that is opened again after a failure. Several threads may use it.

    If a connection breaks, the request is sent once more; its trial has ended, so a write is refused.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._heard = b""

    def ask(self, verb: str, **fields: object) -> dict[str, Any]:
        """Return the actuator's answer.

        Raises:
            ActuationError: the actuator does not answer, or its refusal has no other kind.
            TuningError: another refusal, of the kind in the answer.
        """
        request = json.dumps({"verb": verb, **fields}).encode() + b"\n"
        with self._lock:
            answer = self._answer(request, again=self._socket is not None)
        if not answer.pop("ok", False):
            kind = error_of(str(answer.get("code"))) or ActuationError
            if issubclass(kind, Unauthorised):  # the tuner's Unauthorised ends the agent
                kind = ActuationError
            refusal = kind(str(answer.get("message")), hint=str(answer.get("hint", "")))
            if isinstance(refusal, KnobRefused):
                refusal.knob = str(answer.get("knob", ""))
            raise refusal
        return answer

    def close(self) -> None:
        """End the connection."""
        with self._lock:
            self._drop()

    def _answer(self, request: bytes, *, again: bool) -> dict[str, Any]:
        """Return the answer; repeat the request once if an old connection broke. Raises ActuationError."""
        try:
            return self._exchange(request)
        except OSError as error:
            self._drop()
            if again:
                return self._answer(request, again=False)
            raise self._absent(error) from error

    def _exchange(self, request: bytes) -> dict[str, Any]:
        """Send a request and return the answer, connecting first if needed. Raises OSError."""
        if self._socket is None:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._socket.settimeout(PATIENCE_S)
            self._socket.connect(str(self.path))
        self._socket.sendall(request)
        while b"\n" not in self._heard:
            chunk = self._socket.recv(1 << 16)
            if not chunk:
                raise ConnectionResetError("the actuator closed the connection")
            self._heard += chunk
        line, _, self._heard = self._heard.partition(b"\n")
        try:
            answer = json.loads(line)
        except ValueError as error:
            raise ConnectionError(f"its response is not JSON: {error}") from error
        if not isinstance(answer, dict):
            raise ConnectionError(f"its response is not an object: {answer!r}")
        return answer

    def _drop(self) -> None:
        """Close the connection, and discard unread bytes of it."""
        self._heard = b""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _absent(self, error: OSError) -> ActuationError:
        """Return the error for a socket failure, with the next step."""
        return ActuationError(
            f"the actuator at {self.path} does not answer: {error.strerror or error}",
            hint="start it (systemctl start jouletune-actuator), and check that your user is in its group",
        )
