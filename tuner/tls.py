"""TLS as both sides speak it: certificates from files, none checked less than the system would."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from tuner.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTls:
    """What the tuner shows: its certificate with its chain, its key, and whose clients it knows.

    With `client_ca` an agent has to show a certificate that this authority signed.

    Raises:
        ConfigError: a file is missing or cannot be read, or one is named without the other.
    """

    cert: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None

    def __post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            raise ConfigError("tls_cert and tls_key go together", hint="set both files, or none")
        if self.client_ca is not None and self.cert is None:
            raise ConfigError("client_ca needs tls_cert and tls_key", hint="set these files too")

    @property
    def spoken(self) -> bool:
        """Whether the tuner speaks TLS."""
        return self.cert is not None

    def check(self) -> None:
        """Return quietly where the files can be used. Raises ConfigError."""
        if self.cert is None:
            return
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        _load("tls_cert and tls_key", context, self.cert, self.key)
        if self.client_ca is not None:
            _trust("client_ca", context, self.client_ca)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTls:
    """Whom a client believes (the system's authorities, or those of a file), and what it shows itself."""

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    def context(self) -> ssl.SSLContext:
        """Return what a connection is checked by. Raises ConfigError: a file cannot be used."""
        context = ssl.create_default_context()
        if self.ca is not None:
            _trust("ca_file", context, self.ca)
        if self.cert is not None:
            _load("client_cert and client_key", context, self.cert, self.key)
        return context


SYSTEM = ClientTls()
"""The system's authorities, and nothing of one's own."""


def _load(names: str, context: ssl.SSLContext, cert: Path, key: Path | None) -> None:
    try:
        context.load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"{names} cannot be read ({cert}, {key}): {error.strerror or error}",
            hint="give a certificate and its key in PEM format that this process can read",
        ) from None


def _trust(name: str, context: ssl.SSLContext, file: Path) -> None:
    try:
        context.load_verify_locations(file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"{name} cannot be read ({file}): {error.strerror or error}",
            hint="give a CA certificate in PEM format that this process can read",
        ) from None
