"""`jouletune stop-all` and `device release`: restore all devices, or one, until the order is lifted."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Annotated

import typer

from tuner.cli.answers import Answer
from tuner.cli.asking import Api, with_api
from tuner.cli.confirming import Yes, confirm
from tuner.cli.fleet.device import the_device
from tuner.cli.options import DeviceId, user_name, whole
from tuner.core import NotFound
from tuner.moments import when
from tuner.presentation.standing import confirmed, released, stopped
from tuner.wire import Change, StoppedDevice, StopView

WAIT_S = 180.0
"""The longest wait for the devices: a lease, a hold's window and a restore together take less."""
LOOK_S = 0.5
Lift = Annotated[bool, typer.Option("--lift", help="End it; studies continue.")]
Why = Annotated[
    str,
    typer.Option("--why", metavar="TEXT", callback=whole, help="The reason, shown meanwhile."),
]


@with_api(quiet=True)
def stop_all(api: Api, lift: Lift = False, why: Why = "", yes: Yes = False) -> Answer:
    """Restore every device to its original setting until --lift.

    Asks first. The stop outlasts restarts. Waits until every device confirms; exits with 1 if one does not.
    """
    change = Change(who=user_name(), why=why)
    if lift:
        was = api.stop_state().in_force
        message = "stop lifted; every study continues" if was else "no emergency stop was active"
        return Answer(api.lift(change), message)
    if not api.stop_state().in_force:
        confirm("restore every device to its original setting and pause all tuning?", yes)
    view = _waited(api, api.stop_all(change))
    lines = [stopped(view), *(_state_text(device) for device in view.devices)]
    return Answer(view, lines, failed=any(one.state != "original" for one in view.devices))


@with_api()
def release(api: Api, device: DeviceId, lift: Lift = False, why: Why = "") -> Answer:
    """Restore a device to its original setting until --lift; its study waits.

    Outlasts restarts. Waits until the device confirms; exits with 1 if it does not.
    """
    change = Change(who=user_name(), why=why)
    if lift:
        stop, released_too = api.stop_state(), False
        with suppress(NotFound):  # a device that is forgotten stays released, too
            about = the_device(api.devices(), device)
            device, released_too = about.device.id, about.released
        was = released_too if stop.in_force else api.stop_state(device).in_force
        now = api.lift(change, device)
        done = "is no longer released; its study continues" if was else "was not released"
        return Answer(now, f"{device} {done}{', but all devices are stopped' * now.in_force}")
    about = the_device(api.devices(), device)
    device = about.device.id
    view = _waited(api, api.stop_all(change, device), device)
    study = api.study(about.study) if about.study else None
    lines = [*(_state_text(one) for one in view.devices), released(device, study)]
    return Answer(view, lines, failed=any(one.state != "original" for one in view.devices))


def _waited(api: Api, view: StopView, device: str | None = None) -> StopView:
    """Return a stop once every device is restored or offline, or after `WAIT_S`; count up on stderr."""
    deadline, shown = time.monotonic() + WAIT_S, ""
    while any(d.state == "not yet" for d in view.devices) and time.monotonic() < deadline:
        if (line := f"stop stored; {confirmed(view)}") != shown:
            shown = line
            typer.echo(line, err=True)
        time.sleep(LOOK_S)
        view = api.stop_state(device)
    return view


def _state_text(device: StoppedDevice) -> str:
    """Return a device's state, with a next step if it is not confirmed to be restored."""
    if device.state == "original":
        return f"{device.device} is at its original setting"
    state = (
        f"OFFLINE since {when(device.last_seen)}, its setting is unknown"
        if device.state == "offline"
        else f"has not confirmed its original setting within {WAIT_S:g} s"
    )
    return (
        f"{device.device} {state}; on its host run `jouletune agent revert --stay`, "
        "or as root `jouletune actuator restore --all --stay`"
    )
