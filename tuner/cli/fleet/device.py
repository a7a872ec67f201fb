"""`jouletune device`: the devices, what can be set and measured, and what is applied."""

from __future__ import annotations

import getpass
from typing import Annotated

import typer

from tuner.cli.answers import Answer, Rows
from tuner.cli.asking import Api, asks
from tuner.moments import when
from tuner.presentation.figures import change, joined
from tuner.presentation.standing import device_status
from tuner.wire import Change, DeviceView

COLUMNS = (
    "device", "status", "study", "~applied", "+workload", "+board", "+last report", "+reason", "+knobs",
    "+metrics",
)  # fmt: skip


@asks(watch=True, lists=True)
def list_(api: Api) -> Answer:
    """List the registered devices, one a line: status, study and applied setting."""
    views = api.devices()
    nothing = "no devices yet; an agent registers them: `jouletune agent serve`"
    return Answer(views, Rows(COLUMNS, map(_row, views), nothing))


def _row(view: DeviceView) -> tuple[str, ...]:
    about = view.device
    return (
        about.id,
        device_status(view),
        view.study or "–",
        change(view.applied.setting, about.space.default) if view.applied else "–",
        about.workload,
        about.board,
        when(view.last_seen),
        view.unable or "–",
        joined(knob.name for knob in about.space.knobs),
        joined(f"{metric.name} ({metric.origin})" for metric in about.metrics),
    )


@asks()
def forget(
    api: Api, device: Annotated[str, typer.Argument(metavar="ID", help="The device's id.")]
) -> Answer:
    """Forget a device that will not come back; its studies and trials stay."""
    api.forget(device, Change(who=getpass.getuser()))
    told = f"device {device} is forgotten; its studies and trials stay"
    return Answer({"forgotten": device}, told)
