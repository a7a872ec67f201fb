"""`jouletune workload`: try a workload before an agent serves it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from agents.host.machine import HostClock
from agents.target.rehearsal import rehearse
from agents.workloads import open_workload
from agents.workloads.command.config import load_command_config
from agents.workloads.http.attach import trace_of
from agents.workloads.http.config import load_service_config
from tuner.cli.answers import Answer, Finding, checked, with_json
from tuner.cli.options import LoadTrace
from tuner.core import ConfigError
from tuner.toml import loads


@with_json
def check(
    workload: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="The TOML file of a service or program, or any value of `agent serve --workload`.",
        ),
    ],
    window: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.5, help="How long to measure a service.")
    ] = 5.0,
    load: LoadTrace = None,
) -> Answer:
    """Set every knob once, restore it, and measure once; print one line per check.

    Exits with 1 if a check fails. It disturbs a service like a trial, and runs a program.
    """
    with tempfile.TemporaryDirectory(prefix="jouletune-") as folder:
        clock = HostClock()
        spec = under_trace(spec_of(workload), load)
        side = open_workload(spec, seed=0, state_dir=Path(folder), clock=clock)
        try:
            findings = [
                Finding(s.about, s.well, s.seen, s.cure) for s in rehearse(side, clock, window)
            ]
        finally:
            side.close()
    checks = checked(findings, "this workload has no knobs and no metrics")
    value = {"workload": side.name, "findings": findings}
    return Answer(value, checks, failed=not all(f.there for f in findings))


def spec_of(workload: str) -> str:
    """Return a workload's spec; for a file, `service:FILE` or `command:FILE` by its content."""
    if not workload.endswith(".toml") or workload.startswith(("service:", "command:")):
        return workload
    file = Path(workload).absolute()
    try:
        table = loads(file.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError):
        table = {}  # The opener reports the error.
    return f"{'command' if 'run' in table else 'service'}:{file}"


def under_trace(workload: str, trace: Path | None) -> str:
    """Return a service's spec with the trace of its load.

    Raises:
        ConfigError: the workload is not a service of a file, the only kind that a trace can load.
    """
    if trace is None:
        return workload
    if not workload.startswith("service:"):
        raise ConfigError(
            f"--load goes with a service's file, not with {workload or 'no workload'}",
            hint="give --workload service:/PATH/FILE.toml",
        )
    return f"{workload.partition('#')[0]}#trace:{trace.absolute()}"


def demand_file(workload: str) -> None:
    """Return if a workload has no file or its file can be read; called before anything is started.

    Raises:
        ConfigError: the file cannot be read, or has an invalid value.
    """
    kind, _, rest = workload.partition(":")
    name, _, more = rest.partition("#")
    if kind == "service" and Path(name).is_absolute():
        load_service_config(Path(name), trace_of(more))
    if kind == "command" and Path(name).is_absolute():
        load_command_config(Path(name))
