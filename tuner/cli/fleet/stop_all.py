"""`jouletune stop-all`: restore every device to its original setting until the stop is lifted."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from tuner.cli.answers import Answer
from tuner.cli.asking import Api, with_api
from tuner.cli.confirming import Yes, confirm
from tuner.cli.options import user_name, whole
from tuner.moments import when
from tuner.presentation.standing import stopped
from tuner.wire import Change, StoppedDevice, StopView

WAIT_S = 180.0
"""The longest wait for the devices: a lease, a hold's window and a restore together take less."""
LOOK_S = 0.5


@with_api(quiet=True)
def stop_all(
    api: Api,
    lift: Annotated[bool, typer.Option("--lift", help="End the stop; studies continue.")] = False,
    why: Annotated[
        str,
        typer.Option(
            "--why", metavar="TEXT", callback=whole, help="The reason, shown during the stop."
        ),
    ] = "",
    yes: Yes = False,
) -> Answer:
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
    api.stop_all(change)
    view = _waited(api)
    lines = [stopped(view), *(_state_text(device) for device in view.devices)]
    return Answer(view, lines, failed=any(one.state != "original" for one in view.devices))


def _waited(api: Api) -> StopView:
    """Return the state of the stop once every device is restored or offline, or after `WAIT_S`."""
    deadline = time.monotonic() + WAIT_S
    while True:
        view = api.stop_state()
        if all(d.state != "not yet" for d in view.devices) or time.monotonic() > deadline:
            return view
        time.sleep(LOOK_S)


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
