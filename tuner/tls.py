"""TLS of server and client: certificates from files, with at least the checks of the system's default."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from tuner.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTls:
    """The tuner's certificate with its chain, its key, and the authority of its clients' certificates.

    With `client_ca` an agent must have a certificate that this authority signed.

    Raises:
        ConfigError: a file is named without the one that belongs to it.
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
        """Return quietly if the files can be used. Raises ConfigError."""
        if self.cert is None:
            return
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        _load("tls_cert and tls_key", context, self.cert, self.key)
        if self.client_ca is not None:
            _trust("client_ca", context, self.client_ca)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTls:
    """The authorities that a client trusts (the system's, or those in `ca`), and its own certificate."""

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    def context(self) -> ssl.SSLContext:
        """Return the SSL context of a connection. Raises ConfigError: a file cannot be used."""
        context = ssl.create_default_context()
        if self.ca is not None:
            _trust("ca_file", context, self.ca)
        if self.cert is not None:
            _load("client_cert and client_key", context, self.cert, self.key)
        return context


SYSTEM = ClientTls()
"""The system's authorities, and no client certificate."""


def _load(names: str, context: ssl.SSLContext, cert: Path, key: Path | None) -> None:
    """Load a certificate and its key into a context; `names` are their keys, for the error."""
    try:
        context.load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"{names} cannot be read ({cert}, {key}): {error.strerror or error}",
            hint="give a certificate and its key in PEM format that this process can read",
        ) from None


def _trust(name: str, context: ssl.SSLContext, file: Path) -> None:
    """Let a context trust the authorities in a file; `name` is its key, for the error."""
    try:
        context.load_verify_locations(file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"{name} cannot be read ({file}): {error.strerror or error}",
            hint="give a CA certificate in PEM format that this process can read",
        ) from None
