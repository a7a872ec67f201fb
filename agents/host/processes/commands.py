"""Run a command from a file of this host: a list of words, never through a shell."""

from __future__ import annotations

import signal
import subprocess
import tempfile
from collections.abc import Sequence

from tuner.core import ActuationError

LAST_WORDS = 300


def run_argv(words: Sequence[str], seconds: float) -> str:
    """Run a command to its end and return its output, standard error included.

    Raises:
        ActuationError: the command cannot be run, does not end within `seconds`, or fails.
    """
    name = " ".join(words)
    # The output goes to a file, because processes that the command leaves running would keep a pipe open.
    with tempfile.TemporaryFile() as output:
        try:
            status = subprocess.run(
                list(words),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=seconds,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            raise ActuationError(f"{name} did not end within {seconds:g} s") from None
        except OSError as error:
            raise ActuationError(f"cannot run {name}: {error.strerror}") from None
        output.seek(0)
        text = output.read().decode(errors="replace")
    if status:
        words_of_it = text.strip()[-LAST_WORDS:] or "it printed nothing"
        raise ActuationError(
            f"{name} {ending(status)}: {words_of_it}",
            hint="run it manually as the agent's user",
        )
    return text


def ending(status: int) -> str:
    """Return a phrase for the end of a process, by its `returncode` of `subprocess`."""
    if status >= 0:
        return f"exited with code {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:  # a real-time signal has no name
        return f"was killed by signal {-status}"
