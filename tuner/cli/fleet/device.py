"""`jouletune device`: the devices, what can be set and measured, and what is applied."""

from __future__ import annotations

import getpass
from typing import Annotated

import typer

from tuner.cli.answers import Answer, Rows
from tuner.cli.asking import Api, asks
from tuner.presentation.figures import change, joined
from tuner.presentation.standing import level
from tuner.wire import Change


@asks(watch=True)
def list_(api: Api) -> Answer:
    """List the registered devices with their knobs, metrics and present setting."""
    views = api.devices()
    rows = (
        (
            v.device.id,
            v.device.board,
            v.device.workload,
            joined(map(str, v.device.space.knobs)),
            joined(f"{m.name} ({m.origin})" for m in v.device.metrics),
            level(v),
            change(v.applied.setting, v.device.space.default) if v.applied else "–",
            v.study or "–",
        )
        for v in views
    )
    columns = ("device", "board", "workload", "knobs", "metrics", "level", "applied", "study")
    nothing = "no devices yet; an agent registers them: `jouletune agent serve`"
    return Answer(views, Rows(columns, rows, nothing))


@asks()
def forget(
    api: Api, device: Annotated[str, typer.Argument(metavar="ID", help="The device's id.")]
) -> Answer:
    """Forget a device that will not come back; its studies and trials stay."""
    api.forget(device, Change(who=getpass.getuser()))
    told = f"device {device} is forgotten; its studies and trials stay"
    return Answer({"forgotten": device}, told)
