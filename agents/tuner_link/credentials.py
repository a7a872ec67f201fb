"""An agent's own token: created on the host, and used once the tuner has enrolled it."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from pathlib import Path

from tuner import files
from tuner.core import LinkError, Unauthorised, digest_of
from tuner.wire import Enrolment

OWN = "agent-token"
NEXT = "agent-token.next"
PRIVATE = 0o600

Enrol = Callable[[str, Enrolment], object]
"""Send an enrolment with a token. Raises the tuner's refusal."""


class Credentials:
    """An agent's own token in its state folder, and the token file that it enrols with.

    A token is saved before its enrolment, so that the request can be repeated if the answer is lost. The
    agent's name is saved with it, so that a folder copied to another host is not valid there. Safe from
    many threads.
    """

    def __init__(self, folder: Path, token_file: Path, name: str) -> None:
        self._own_file, self._next_file = folder / OWN, folder / NEXT
        self._token_file = token_file
        self._name = name
        self._lock = threading.Lock()
        self.own = self._kept(self._own_file)
        """The agent's own token; empty while it has none."""

    def enrol(self, enrol: Enrol, refused: str) -> None:
        """Enrol a new token, unless another thread has replaced the `refused` one (empty: none).

        Raises:
            Unauthorised: there is no token to enrol with.
            LinkError: the token file cannot be read at present.
            StoreError: the new token could not be saved; nothing was requested.
        """
        with self._lock:
            if self.own != refused:  # another thread has enrolled meanwhile
                return
            given, following = self._enrolment_token(), self._kept(self._next_file)
            if not following:
                following = secrets.token_urlsafe(32)
                files.write(self._next_file, f"{self._name} {following}\n", PRIVATE)
            enrol(given, Enrolment(agent=self._name, digest=digest_of(following)))
            self.own = following
            files.rename(self._next_file, self._own_file)

    def _kept(self, file: Path) -> str:
        """Return the token in a file; empty if it is missing or another agent's."""
        try:
            name, _, token = file.read_text(encoding="utf-8").strip().partition(" ")
        except (OSError, UnicodeDecodeError):
            return ""
        return token if name == self._name else ""

    def _enrolment_token(self) -> str:
        """Return the token to enrol with. Raises Unauthorised, LinkError."""
        try:
            token = files.token(self._token_file)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "not one word of ASCII"
            lasts = isinstance(error, FileNotFoundError | PermissionError | ValueError)
            raise (Unauthorised if lasts else LinkError)(
                f"cannot read the token file {self._token_file} to enrol: {reason}",
                hint="give the tuner's token file, or one with an enrolment token, with --token-file",
            ) from None
        if not token:
            raise Unauthorised(f"the token file {self._token_file} is empty")
        return token
