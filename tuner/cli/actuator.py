"""`jouletune actuator`: the root process that sets the hardware, and what it is doing."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from tuner.cli.options import AsJson

commands = typer.Typer(help="Run the root process that sets hardware; restore; show its devices.")

Config = Annotated[Path, typer.Option(metavar="FILE", help="actuator.toml: what is granted.")]
NOTHING = {"values": {}, "level": "unknown", "holder": "", "paused": ""}
"""What is told of a device that does not answer."""
CONFIG = Path("/etc/jouletune/actuator.toml")


@commands.command()
def serve(config: Config = CONFIG) -> None:
    """Set hardware for the agents of this host, within the grants.

    Until SIGTERM or Ctrl-C; everything is put back when it ends, and when it starts after a crash.
    """
    _become("serve", config)


@commands.command()
def restore(config: Config = CONFIG) -> None:
    """Put every device back that the journal tells of.

    The actuator must not be running; done twice it does nothing.
    """
    _become("restore", config)


@commands.command()
def status(
    config: Config = CONFIG,
    socket: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The actuator's socket.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the actuator's devices: what may be set, what is set, and by what right."""
    from agents.devices.remote import Line
    from agents.grants import load_config
    from tuner.cli.output import echo_json
    from tuner.core import TuningError, render_setting

    line = Line(socket or Path(load_config(config).socket))
    devices = []
    for about in line.ask("capabilities")["devices"]:
        try:
            devices.append(about | line.ask("read", device=about["uuid"]))
        except TuningError as error:
            devices.append(about | NOTHING | {"trouble": str(error)})
    line.close()
    if as_json:
        echo_json({"devices": devices})
        return
    for device in devices:
        values = {k: "as found" if v is None else v for k, v in device["values"].items()}
        wrong = device["paused"] or device["trouble"]
        typer.echo(
            f"{device['uuid']} ({device['board']}): {device['level']} {render_setting(values)}"
            f"{', ' + device['holder'] if device['holder'] else ''}{'; ' + wrong if wrong else ''}"
        )
    if not devices:
        typer.echo("the actuator has no device")


def _become(verb: str, config: Path) -> None:
    """Replace this process by the bare root process, which loads nothing of the console's."""
    command = [sys.executable, "-P", "-m", "agents.actuator_main", verb, str(config)]
    os.execv(sys.executable, command)
