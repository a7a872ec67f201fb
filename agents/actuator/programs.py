"""Runs the programs by which some drivers set a device."""

import subprocess

from tuner.errors import ActuationError


def output(about: str, *words: object, seconds: float, stdin: str = "") -> str:
    """Return the output of a program. Raises ActuationError: `about`, and its last words."""
    try:
        done = subprocess.run(
            list(map(str, words)), input=stdin, capture_output=True, text=True, errors="replace",
            timeout=seconds, check=False,
        )  # fmt: skip
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise ActuationError(f"{about}: {error}") from error
    if done.returncode:
        why = " ".join((done.stdout + done.stderr).split())[-300:]
        raise ActuationError(f"{about}: {why or f'exit status {done.returncode}'}")
    return done.stdout
