"""`jouletune actuator`: the root process that sets the hardware, and what it is doing."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from tuner.cli.options import AsJson

if TYPE_CHECKING:
    from agents.actuator.client import ActuatorClient

commands = typer.Typer(help="Run the root process that sets hardware; restore; show its devices.")

Config = Annotated[Path, typer.Option(metavar="FILE", help="actuator.toml: what is granted.")]
Socket = Annotated[Path | None, typer.Option(metavar="FILE", help="The actuator's socket.")]
NOTHING = {"values": {}, "level": "unknown", "holder": "", "paused": ""}
"""What is told of a device that does not answer."""
STAYING = "until `jouletune actuator restore --all --lift`"
DONE = {
    "restore_all": "devices were put back",
    "stay": f"devices were put back, and stay there {STAYING}",
    "lift": "devices may be set again",
}
"""What is told once it is asked of all devices; those that did not go back are told before."""
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
    every: Annotated[bool, typer.Option("--all", help="All devices.")] = False,
    stay: Annotated[bool, typer.Option(help="With --all: keep them there until --lift.")] = False,
    lift: Annotated[bool, typer.Option(help="With --all: let them be set again.")] = False,
    config: Config = CONFIG,
    socket: Socket = None,
) -> None:
    """Put devices back, whoever has them. As root; done twice it does nothing.

    With DEVICE or --all the actuator that runs does it, and ends pauses: what somebody else has set
    there then stays as the original. With --all, or alone, it is done also where none runs.
    --all --stay is the emergency stop: nothing is set any more, also after a restart or a reboot, until
    --all --lift.
    """
    if (every and device) or (stay and lift) or ((stay or lift) and not every):
        raise typer.BadParameter("give DEVICE, or --all with at most one of --stay and --lift")
    verb = "stay" if stay else "lift" if lift else "restore_all"
    if not device and not (every and _answers(config, socket)):
        _become("restore" if verb == "restore_all" else verb, config)
    with closing(_line(config, socket)) as line:
        if device:
            line.ask("restore", device=device)
            answer = line.ask("read", device=device)
            wrong = {device: answer["paused"] or answer["trouble"]}
        else:
            wrong = line.ask(verb)["wrong"]
    for name, why in wrong.items():
        typer.echo(f"{name}: {why or 'original'}")
    if every:
        typer.echo(DONE[verb])
    if any(wrong.values()):
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

    devices, missing, stay = _asked(config, socket)
    if as_json:
        echo_json({"devices": devices, "missing": missing, "stay": stay})
        return
    if stay:
        typer.echo(f"all devices stay at their originals, says {stay}, {STAYING}")
    for device in devices:
        spans = [f"{k} {v[0]} to {v[-1]}" for k, v in device["granted"].items()]
        values = {k: "as found" if v is None else v for k, v in device["values"].items()}
        wrong = device["paused"] or device["trouble"]
        typer.echo(
            f"{device['uuid']} ({device['board']}): {device['level']} {render_setting(values)}"
            f"{', ' + device['holder'] if device['holder'] else ''}{'; ' + wrong if wrong else ''}"
        )
        typer.echo(f"  may be set: {', '.join(spans) or 'nothing is granted'}")
    for name, why in missing.items():
        typer.echo(f"{name}: {why}")
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
    from tuner import files
    from tuner.core import TuningError

    try:
        (devices, missing, _), up = _asked(config, None), 1
    except TuningError as error:
        typer.echo(str(error), err=True)
        devices, missing, up = [], {}, 0
    files.write(file, "".join(f"{line}\n" for line in exposed(devices, missing, up)), 0o644)


def exposed(devices: Sequence[Mapping[str, Any]], missing: Iterable[str], up: int) -> Iterator[str]:
    """Yield lines of Prometheus' text format. A knob that is as it was found, and unreadable, has none."""
    yield "# HELP jouletune_actuator_up 1 where the root service answers."
    yield "# TYPE jouletune_actuator_up gauge"
    yield f"jouletune_actuator_up {up}"
    if not devices and not missing:
        return
    yield "# HELP jouletune_device_level 1 for the right by which a device is set as it is."
    yield "# TYPE jouletune_device_level gauge"
    for d in devices:
        for level in LEVELS:
            yield f'jouletune_device_level{{device="{d["uuid"]}",level="{level}"}} {d["level"] == level:d}'
    yield "# HELP jouletune_device_wrong 1 where it is paused, missing, or not back at its original."
    yield "# TYPE jouletune_device_wrong gauge"
    for d in devices:
        yield f'jouletune_device_wrong{{device="{d["uuid"]}"}} {bool(d["paused"] or d["trouble"]):d}'
    for name in missing:
        yield f'jouletune_device_wrong{{device="{name}"}} 1'
    yield "# HELP jouletune_knob What is set, of knobs that are numbers."
    yield "# TYPE jouletune_knob gauge"
    for d in devices:
        for knob, value in d["values"].items():
            if isinstance(value, int | float):
                yield f'jouletune_knob{{device="{d["uuid"]}",knob="{knob}"}} {value:g}'


def _asked(
    config: Path, socket: Path | None
) -> tuple[list[dict[str, Any]], Mapping[str, str], str]:
    """Return the devices as the actuator tells of them, what is missing, and who lets none be set.

    Raises:
        ActuationError: it does not answer.
        ConfigError: its configuration cannot be read.
    """
    from tuner.core import TuningError

    line = _line(config, socket)
    answer, devices = line.ask("capabilities"), []
    for about in answer["devices"]:
        try:
            devices.append(about | line.ask("read", device=about["uuid"]))
        except TuningError as error:
            devices.append(about | NOTHING | {"trouble": str(error)})
    line.close()
    return devices, answer["missing"], answer["stay"]


def _answers(config: Path, socket: Path | None) -> bool:
    """Return whether an actuator runs. Raises ConfigError."""
    from tuner.core import ActuationError

    with closing(_line(config, socket)) as line, suppress(ActuationError):
        return bool(line.ask("capabilities"))
    return False


def _idle(config: Path, devices: Sequence[str]) -> list[str]:
    """Return the patterns in actuator.toml that no device matches. Raises ConfigError."""
    from agents.actuator.grants import load_config

    patterns = [d.match for d in load_config(config).devices]
    return [p for p in patterns if not any(fnmatchcase(uuid, p) for uuid in devices)]


def _line(config: Path, socket: Path | None) -> ActuatorClient:
    """Return a connection to the actuator. Raises ConfigError."""
    from agents.actuator.client import ActuatorClient
    from agents.actuator.grants import load_config

    return ActuatorClient(socket or Path(load_config(config).socket))


def _become(verb: str, config: Path) -> NoReturn:
    """Replace this process by the bare root process, which loads nothing of the console's."""
    command = [sys.executable, "-P", "-m", "agents.actuator.main", verb, str(config)]
    os.execv(sys.executable, command)
