"""Bearer tokens: read from a file, and made, listed and revoked at a tuner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from tuner.client import calls
from tuner.core import AuditEntry, ConfigError
from tuner.wire import NewToken, TokenDraft, TokenView

T = TypeVar("T")


class Asking(Protocol):
    """Sends requests to a tuner."""

    def ask(self, call: calls.Call[T]) -> T:
        """Send one request and return what its answer says."""
        ...


def read_token(file: Path | None) -> str:
    """Return the bearer token in a file; empty where no file is given.

    Raises:
        ConfigError: the file cannot be read, or is empty.
    """
    if file is None:
        return ""
    try:
        token = file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        raise ConfigError(
            f"cannot read the token file {file}: {reason}", hint="check --token-file"
        ) from None
    if not token:
        raise ConfigError(
            f"the token file {file} is empty", hint="write one with `jouletune token create`"
        )
    return token


@dataclass(frozen=True)
class RemoteTokens:
    """The admin's verbs on tokens at a tuner. See `tuner.cli.operator_api.TokenDesk`."""

    _client: Asking

    def create(self, draft: TokenDraft) -> NewToken:
        """Make a token and return it, for the only time."""
        return self._client.ask(calls.create_token(draft))

    def tokens(self) -> Sequence[TokenView]:
        """Return all tokens by name."""
        return self._client.ask(calls.tokens())

    def audit(self, last: int | None = None, who: str | None = None) -> Sequence[AuditEntry]:
        """Return the (last) changes and refusals, oldest first."""
        return self._client.ask(calls.audit(last, who))

    def revoke(self, name: str) -> None:
        """Let a token count no more."""
        self._client.ask(calls.revoke(name))
