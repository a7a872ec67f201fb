"""Run a command of this host, a list of words, never through a shell; and systemd's `systemctl`."""

from __future__ import annotations

import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence

from tuner.core import ActuationError

LAST_WORDS = 300
SYSTEMCTL_S = 30.0
NOT_SET = 2**64 - 1
"""systemd's number for a property without a value."""


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


def systemctl(*words: str) -> str:
    """Return the output of systemctl. Raises ActuationError: the call fails or is not permitted."""
    try:
        return run_argv(("systemctl", "--no-ask-password", *words), SYSTEMCTL_S)
    except ActuationError as error:
        raise ActuationError(
            error.message,
            hint="add a polkit rule that allows the agent's "
            "user this verb for this unit (docs/workloads.md)",
        ) from None


def unit_properties(unit: str, *properties: str) -> Mapping[str, str]:
    """Return the named properties of a unit. Raises ActuationError: systemd does not report one."""
    output = systemctl("show", unit, f"--property={','.join(properties)}")
    values = dict(line.partition("=")[::2] for line in output.splitlines() if "=" in line)
    missing = [name for name in properties if name not in values]
    if missing:
        raise ActuationError(
            f"systemd reports no {missing[0]} of {unit}", hint="upgrade systemd; it may be too old"
        )
    return {name: values[name] for name in properties}
