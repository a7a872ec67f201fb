"""Calls of systemd's command `systemctl`, with fixed arguments, on the system bus."""

from __future__ import annotations

from collections.abc import Mapping

from agents.host.processes.commands import run_argv
from tuner.core import ActuationError

ANSWER_S = 30.0
NOT_SET = 2**64 - 1


def call(*words: str) -> str:
    """Return the output of systemctl. Raises ActuationError: the call fails or is not permitted."""
    try:
        return run_argv(("systemctl", "--no-ask-password", *words), ANSWER_S)
    except ActuationError as error:
        raise ActuationError(
            error.message,
            hint="add a polkit rule that allows the agent's "
            "user this verb for this unit (docs/workloads.md)",
        ) from None


def show(unit: str, *properties: str) -> Mapping[str, str]:
    """Return the named properties of a unit. Raises ActuationError: systemd does not report one."""
    output = call("show", unit, f"--property={','.join(properties)}")
    values = dict(line.partition("=")[::2] for line in output.splitlines() if "=" in line)
    missing = [name for name in properties if name not in values]
    if missing:
        raise ActuationError(
            f"systemd reports no {missing[0]} of {unit}", hint="upgrade systemd; it may be too old"
        )
    return {name: values[name] for name in properties}
