"""`jouletune actuator`: run the root process that sets the hardware, and show its state."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from agents.actuator.grants import ActuatorConfig, load_config
from agents.actuator_client.client import DETACHED, SOCKET
from agents.actuator_client.line import ActuatorClient
from tuner import files
from tuner.cli.answers import Answer, with_json
from tuner.core import ActuationError, ConfigError, TuningError, render_setting

Config = Annotated[Path, typer.Option(metavar="FILE", help="actuator.toml, with the grants.")]
Socket = Annotated[Path | None, typer.Option(metavar="FILE", help="The actuator's socket.")]
Device = Annotated[str | None, typer.Argument(metavar="DEVICE", help="One device only.")]
All = Annotated[bool, typer.Option("--all", help="All devices.")]
StateDir = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Folder of the journal, if no actuator runs."),
]
DEFAULTS = {
    "throttled": "",
    "defaults": {},
    "ceilings": (),
    "budget": {},
    "waiting": {},
    "unknown": "",
}
"""Values of fields that an older actuator does not send."""
NOTHING = {"throttled": "", "values": {}, "level": "unknown", "holder": "", "paused": ""}
"""Status of a device that does not answer."""
STAYING = "until `jouletune actuator restore --all --lift`"
DONE = {
    "restore_all": "devices were restored",
    "stay": f"devices were restored and stay at their original settings {STAYING}",
    "lift": "devices may be set again",
}
"""The last line of the output, by verb; devices that were not restored are listed before it."""
WAITING = 3
"""The exit code if the only files not restored wait for their CPU, or for a cap to end."""
LEVELS = ("original", "trial", "hold", "job")
CONFIG = Path("/etc/jouletune/actuator.toml")


def serve(config: Config = CONFIG) -> None:
    """Set hardware for the agents of this host, within the grants.

    Runs until SIGTERM or Ctrl-C. Restores every device when it ends, and when it starts after a crash.
    """
    _become("serve", str(config))


def restore(
    device: Device = None,
    every: All = False,
    stay: Annotated[bool, typer.Option(help="With --all: accept no setting until --lift.")] = False,
    lift: Annotated[bool, typer.Option(help="With --all: accept settings again.")] = False,
    wait: Annotated[
        int, typer.Option(metavar="S", min=0, help="Seconds to wait for CPUs that are offline.")
    ] = 0,
    config: Config = CONFIG,
    socket: Socket = None,
    state_dir: StateDir = None,
) -> None:
    """Restore devices and end their trials and holds. Run as root; idempotent.

    With DEVICE or --all a running actuator restores them and ends pauses: the value of another program
    stays and becomes the original. If no actuator runs, use --all or no argument: it needs only the
    journal, even with a broken actuator.toml.

    --all --stay is the emergency stop: no setting is accepted, also after a reboot, until --all --lift.

    Exits with 3 where all that is left waits for a CPU that is offline, or for a cap to end: the journal is
    kept, and a running actuator restores it by itself.
    """
    if (every and device) or (stay and lift) or ((stay or lift) and not every):
        raise typer.BadParameter("give DEVICE, or --all with at most one of --stay and --lift")
    verb = "stay" if stay else "lift" if lift else "restore_all"
    if lift:
        _attach(config, socket)
    if not device and not (every and _answers(config, socket)):
        folder = state_dir or _configured_folder(config)
        waits = ["--wait", str(wait)] if wait and verb == "restore_all" else []
        folders = [str(folder)] if folder else []
        _become("restore" if verb == "restore_all" else verb, *waits, *folders)
    with closing(_line(config, socket)) as line:
        if device:
            line.ask("restore", device=device)
            answer = line.ask("read", device=device)
            wrong = {device: answer["paused"] or answer["trouble"]}
        else:
            wrong = line.ask(verb)["wrong"]
        waiting = _wait(line, device, wait)
    for name, why in wrong.items():
        typer.echo(f"{name}: {why or 'original'}")
    if every:
        typer.echo(DONE[verb])
    for file, state in waiting.items():
        typer.echo(f"{file}: {state}")
    if any(wrong.values()) or waiting:
        raise typer.Exit(1 if any(wrong.values()) else WAITING)


def _wait(line: ActuatorClient, device: str | None, seconds: int) -> dict[str, str]:
    """Return the files that still wait for their CPU, or for a cap to end, after at most `seconds`."""
    until = time.monotonic() + seconds
    while True:
        about = line.ask("capabilities")["devices"]
        uuids = [device] if device else [one["uuid"] for one in about]
        answers = [line.ask("read", device=uuid) for uuid in uuids]
        waiting = {n: state for a in answers for n, state in a.get("waiting", {}).items()}
        if not waiting or time.monotonic() >= until:
            return waiting
        time.sleep(min(1.0, seconds))


def leave_budget(
    device: Device = None,
    every: All = False,
    config: Config = CONFIG,
    socket: Socket = None,
    state_dir: StateDir = None,
) -> None:
    """Take devices out of their power budgets, without the tuner. Run as root; idempotent.

    Their original settings are restored. A tuner that still has them in a group makes them members
    again: remove them there first, or remove `floor` from actuator.toml.
    """
    if every == bool(device):
        raise typer.BadParameter("give DEVICE or --all")
    if every and not _answers(config, socket):
        folder = state_dir or _configured_folder(config)
        _become("leave", *([str(folder)] if folder else []))
    with closing(_line(config, socket)) as line:
        uuids = [about["uuid"] for about in line.ask("capabilities")["devices"]]
        for uuid in uuids if every else [str(device)]:
            line.ask("leave_budget", device=uuid)
            typer.echo(f"{uuid}: in no budget")


def detach(config: Config = CONFIG, socket: Socket = None) -> None:
    """Restore all devices and close their drivers: before a GPU reset, MIG change or driver upgrade.

    Run as root. Actuator and agents close every driver handle and open none until
    `jouletune actuator restore --all --lift`.
    """
    with closing(_line(config, socket)) as line:
        wrong = line.ask("stay")["wrong"]
        line.path.with_name(DETACHED).touch(0o644)
    for name, why in wrong.items():
        typer.echo(f"{name}: {why or 'original'}")
    typer.echo(f"devices were restored; drivers are released within seconds, {STAYING}")
    if any(wrong.values()):
        raise typer.Exit(1)


@with_json
def status(config: Config = CONFIG, socket: Socket = None) -> Answer:
    """Show the actuator's devices: grants, applied settings, and what set them."""
    devices, missing, stay, errors = _read_devices(config, socket)
    if socket is None:
        errors = [*errors, *idle_tables(config, [*(d["uuid"] for d in devices), *missing])]
    lines = (
        [f"all devices stay at their original settings, set by {stay}, {STAYING}"] if stay else []
    )
    lines += [line for device in devices for line in _device_lines(device)]
    lines += [f"{name}: {why}" for name, why in missing.items()]
    lines += [] if devices else ["the actuator has no device"]
    lines += [f"error: {error}" for error in errors]
    value = {"devices": devices, "missing": missing, "stay": stay, "errors": errors}
    return Answer(value, lines, failed=bool(errors))


def _device_lines(device: Mapping[str, Any]) -> Iterator[str]:
    """Yield a device's status, its budget, its waiting files, and the knobs that may be set."""
    spans = [f"{k} {v[0]} to {v[-1]}" for k, v in device["granted"].items()]
    values = {k: "unset" if v is None else v for k, v in device["values"].items()}
    doubts = _doubts(device)
    problems = (device["paused"] or device["trouble"], device["throttled"], doubts)
    wrong = "; ".join(filter(None, problems))
    level = "as first read" if doubts else f"{device['level']} {device.get('job', '')}".strip()
    if device["unknown"] and level == "original":
        level = "unknown"
    yield (
        f"{device['uuid']} ({device['board']}): {level} {render_setting(values)}"
        f"{', ' + device['holder'] if device['holder'] else ''}{'; ' + wrong if wrong else ''}"
    )
    if group := device["budget"].get("group"):
        caps, floor = render_setting(device["budget"]["at_most"]), device["budget"]["floor"]
        yield f"  in the budget {group}: at most {caps}; floor {render_setting(floor)}"
    for name, state in device["waiting"].items():
        yield f"  {name}: {state}; it is restored once that is over"
    yield f"  may be set: {', '.join(spans) or 'nothing is granted'}"


def metrics(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The textfile, ending in .prom.")],
    config: Config = CONFIG,
) -> None:
    """Write applied settings, and what set them, for Prometheus' node exporter.

    Replaces FILE atomically. If no actuator runs, FILE has only jouletune_actuator_up 0.
    """
    try:
        (devices, missing, _, _), up = _read_devices(config, None), 1
    except TuningError as error:
        typer.echo(str(error), err=True)
        devices, missing, up = [], {}, 0
    files.write(file, generate_latest(_exposed(devices, missing, up)).decode(), 0o644)


def _exposed(
    devices: Sequence[Mapping[str, Any]], missing: Iterable[str], up: int
) -> CollectorRegistry:
    """Return the metrics. A knob without a numeric value has none."""
    registry = CollectorRegistry()

    def gauge(name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"jouletune_{name}", text, labels, registry=registry)

    gauge("actuator_up", "Whether the actuator answers.").set(up)
    level = gauge("device_level", "Source of the device's current setting.", "device", "level")
    wrong = gauge("device_wrong", "1 if it is paused, missing, or not restored.", "device")
    unleased = gauge(
        "device_altered_without_lease",
        "1 if another program set a knob, or it is not restored without a lease.",
        "device",
    )
    waiting = gauge("device_waiting", "Files that are restored once their CPU is online.", "device")
    knobs = gauge(
        "knob", "Current value of a knob, in the unit at the end of its name.", "device", "knob"
    )
    for device in devices:
        uuid, not_back = device["uuid"], device["level"] == "original" and device["trouble"]
        for name in LEVELS:
            level.labels(uuid, name).set(device["level"] == name)
        wrong.labels(uuid).set(bool(device["paused"] or device["trouble"]))
        unleased.labels(uuid).set(bool(device["paused"] or not_back))
        waiting.labels(uuid).set(len(device["waiting"]))
        for knob, value in device["values"].items():
            if isinstance(value, int | float):
                knobs.labels(uuid, knob).set(value)
    for name in missing:
        wrong.labels(name).set(1)
    return registry


def _read_devices(
    config: Path, socket: Path | None
) -> tuple[list[dict[str, Any]], Mapping[str, str], str, Sequence[str]]:
    """Return the devices, the missing devices with reasons, the origin of an emergency stop, and errors.

    Raises:
        ActuationError: it does not answer.
        ConfigError: its configuration cannot be read.
    """
    line = _line(config, socket)
    answer, devices = line.ask("capabilities"), []
    for about in answer["devices"]:
        try:
            devices.append(DEFAULTS | about | line.ask("read", device=about["uuid"]))
        except TuningError as error:
            devices.append(DEFAULTS | about | NOTHING | {"trouble": str(error)})
    line.close()
    return (
        devices,
        answer["missing"],
        answer["stay"],
        [e for d in devices for e in d.get("errors", ())],
    )


def _doubts(device: Mapping[str, Any]) -> str:
    """Return the knobs that differ from their driver's default although no setting is applied.

    Without a journal such a value may come from an earlier setting, so it is not called the original.
    """
    member = device["budget"].get("group")
    if device["level"] != "original" or device["paused"] or device["trouble"] or member:
        return ""
    tops = {k: device["ranges"][k][-1] for k in device["ceilings"] if k in device["ranges"]}
    defaults = {**tops, **dict(device["defaults"])}
    current = ((k, device["values"].get(k), default) for k, default in defaults.items())
    odd = ((k, v, default) for k, v, default in current if v not in (None, default))
    return ", ".join(f"{k} was {v!r} when first read, its default is {d!r}" for k, v, d in odd)


def _answers(config: Path, socket: Path | None) -> bool:
    """Return whether an actuator runs and answers."""
    with closing(_line(config, socket)) as line, suppress(ActuationError):
        return bool(line.ask("capabilities"))
    return False


def idle_tables(config: Path, devices: Sequence[str]) -> list[str]:
    """Return a message for each table of actuator.toml that matches no device. Raises ConfigError."""
    patterns = [d.match for d in load_config(config).devices]
    idle = [p for p in patterns if not any(fnmatchcase(uuid, p) for uuid in devices)]
    names = ", ".join(devices) or "none"
    return [f"no device matches {pattern!r}; there are: {names}" for pattern in idle]


def _line(config: Path, socket: Path | None) -> ActuatorClient:
    """Return a connection to the actuator; to its default socket if its configuration cannot be read."""
    with suppress(ConfigError):
        socket = socket or Path(load_config(config).socket)
    return ActuatorClient(socket or SOCKET)


def _attach(config: Path, socket: Path | None) -> None:
    """Remove the mark of `detach`, so that agents open the drivers again; do nothing without a mark."""
    with suppress(FileNotFoundError), closing(_line(config, socket)) as line:
        line.path.with_name(DETACHED).unlink()


def _configured_folder(config: Path) -> Path | None:
    """Return the state folder in actuator.toml; None if it is the default or the file cannot be read."""
    with suppress(ConfigError):
        folder = load_config(config).state_dir
        return Path(folder) if folder != ActuatorConfig().state_dir else None
    return None


def _become(verb: str, *arguments: str) -> NoReturn:
    """Replace this process by the root process, which imports nothing of the command line."""
    command = [sys.executable, "-I", "-m", "agents.actuator.main", verb, *arguments]
    os.execv(sys.executable, command)
