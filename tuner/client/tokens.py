"""Bearer tokens, read from a file."""

from __future__ import annotations

from pathlib import Path

from tuner import files
from tuner.core import ConfigError


def read_token(file: Path | None) -> str:
    """Return the bearer token in a file; empty without a file.

    Raises:
        ConfigError: the file cannot be read, or is empty.
    """
    if file is None:
        return ""
    try:
        token = files.token(file)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not one word of ASCII"
        raise ConfigError(
            f"cannot read the token file {file}: {reason}", hint="check --token-file"
        ) from None
    if not token:
        raise ConfigError(
            f"the token file {file} is empty", hint="create a token with `jouletune token create`"
        )
    return token
