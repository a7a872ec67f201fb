"""`jouletune actuator`: the root process that sets the hardware, and what it is doing."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from tuner.cli.options import AsJson

if TYPE_CHECKING:
    from agents.devices.remote import Line

commands = typer.Typer(help="Run the root process that sets hardware; restore; show its devices.")

Config = Annotated[Path, typer.Option(metavar="FILE", help="actuator.toml: what is granted.")]
Socket = Annotated[Path | None, typer.Option(metavar="FILE", help="The actuator's socket.")]
NOTHING = {"values": {}, "level": "unknown", "holder": "", "paused": ""}
"""What is told of a device that does not answer."""
LEVELS = ("original", "trial", "hold")
CONFIG = Path("/etc/jouletune/actuator.toml")


@commands.command()
def serve(config: Config = CONFIG) -> None:
    """Set hardware for the agents of this host, within the grants.

    Until SIGTERM or Ctrl-C; everything is put back when it ends, and when it starts after a crash.
    """
    _become("serve", config)


@commands.command()
def restore(
    device: Annotated[str | None, typer.Argument(metavar="DEVICE", help="One device only.")] = None,
    config: Config = CONFIG,
    socket: Socket = None,
) -> None:
    """Put every device back that the journal tells of.

    The actuator must not be running; done twice it does nothing. With DEVICE the running actuator puts
    that one back, whoever has it, and ends its pause: what somebody else has set there then stays as
    its original. As root.
    """
    if device is None:
        _become("restore", config)
    with closing(_line(config, socket)) as line:
        line.ask("restore", device=device)
        told = line.ask("read", device=device)
    wrong = told["paused"] or told["trouble"]
    typer.echo(f"{device}: {wrong or told['level']}")
    if wrong:
        raise typer.Exit(1)


@commands.command()
def status(
    config: Config = CONFIG,
    socket: Socket = None,
    as_json: AsJson = False,
) -> None:
    """Show the actuator's devices: what may be set, what is set, and by what right."""
    from tuner.cli.output import echo_json
    from tuner.core import render_setting

    devices = _asked(config, socket)
    if as_json:
        echo_json({"devices": devices})
        return
    for device in devices:
        spans = [f"{k} {v[0]} to {v[-1]}" for k, v in device["granted"].items()]
        values = {k: "as found" if v is None else v for k, v in device["values"].items()}
        wrong = device["paused"] or device["trouble"]
        typer.echo(
            f"{device['uuid']} ({device['board']}): {device['level']} {render_setting(values)}"
            f"{', ' + device['holder'] if device['holder'] else ''}{'; ' + wrong if wrong else ''}"
        )
        typer.echo(f"  may be set: {', '.join(spans) or 'nothing is granted'}")
    if not devices:
        typer.echo("the actuator has no device")
    if socket is None:
        for pattern in _idle(config, [device["uuid"] for device in devices]):
            typer.echo(f"no device matches {pattern!r} of {config}: its grants are for nothing")


@commands.command()
def metrics(file: Annotated[Path, typer.Argument(metavar="FILE")], config: Config = CONFIG) -> None:
    """Write what is set, and by what right, for Prometheus' node exporter to collect.

    FILE is replaced as a whole; without an actuator it says only that there is none.
    """
    from tuner.core import TuningError
    from tuner.main import write_whole

    try:
        devices, up = _asked(config, None), 1
    except TuningError as error:
        typer.echo(str(error), err=True)
        devices, up = [], 0
    write_whole(file, "".join(f"{line}\n" for line in _exposed(devices, up)), 0o644)


def _exposed(devices: Sequence[Mapping[str, Any]], up: int) -> Iterator[str]:
    """Yield the lines of the text format. A knob that is as it was found, and unreadable, has none."""
    yield "# TYPE jouletune_actuator_up gauge"
    yield f"jouletune_actuator_up {up}"
    if not devices:
        return
    yield "# TYPE jouletune_device_level gauge"
    for d in devices:
        for level in LEVELS:
            yield f'jouletune_device_level{{device="{d["uuid"]}",level="{level}"}} {d["level"] == level:d}'
    yield "# HELP jouletune_device_wrong 1 where it is paused, or did not go back to its original."
    yield "# TYPE jouletune_device_wrong gauge"
    for d in devices:
        yield f'jouletune_device_wrong{{device="{d["uuid"]}"}} {bool(d["paused"] or d["trouble"]):d}'
    yield "# TYPE jouletune_knob gauge"
    for d in devices:
        for knob, value in d["values"].items():
            if isinstance(value, int | float):
                yield f'jouletune_knob{{device="{d["uuid"]}",knob="{knob}"}} {value:g}'


def _asked(config: Path, socket: Path | None) -> list[dict[str, Any]]:
    """Return the devices as the actuator tells of them. Raises ActuationError, ConfigError."""
    from tuner.core import TuningError

    line = _line(config, socket)
    devices = []
    for about in line.ask("capabilities")["devices"]:
        try:
            devices.append(about | line.ask("read", device=about["uuid"]))
        except TuningError as error:
            devices.append(about | NOTHING | {"trouble": str(error)})
    line.close()
    return devices


def _idle(config: Path, devices: Sequence[str]) -> list[str]:
    """Return the patterns in actuator.toml that no device matches. Raises ConfigError."""
    from agents.grants import load_config

    patterns = [d.match for d in load_config(config).devices]
    return [p for p in patterns if not any(fnmatchcase(uuid, p) for uuid in devices)]


def _line(config: Path, socket: Path | None) -> Line:
    """Return a connection to the actuator. Raises ConfigError."""
    from agents.devices.remote import Line
    from agents.grants import load_config

    return Line(socket or Path(load_config(config).socket))


def _become(verb: str, config: Path) -> NoReturn:
    """Replace this process by the bare root process, which loads nothing of the console's."""
    command = [sys.executable, "-P", "-m", "agents.actuator_main", verb, str(config)]
    os.execv(sys.executable, command)
