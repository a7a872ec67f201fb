"""`jouletune device`: the devices, what can be set and measured, and what is applied."""

from __future__ import annotations

import getpass
from typing import Annotated

import typer

from tuner.cli.options import AsJson, Db, TokenFile, TunerUrl
from tuner.cli.watching import Watch, looks

commands = typer.Typer()


@commands.command("list")
def list_(
    watch: Watch = False,
    tuner: TunerUrl = "",
    token_file: TokenFile = None,
    db: Db = "",
    as_json: AsJson = False,
) -> None:
    """List the registered devices with their knobs, metrics and present setting."""
    from tuner.cli.operator_api import open_api
    from tuner.cli.output import echo_json, echo_table
    from tuner.presentation.figures import change, joined
    from tuner.presentation.standing import level

    with open_api(tuner, token_file, db) as api:
        for _ in looks(api, watch):
            views = api.devices()
            if as_json:
                echo_json(views)
                continue
            echo_table(
                "device", "board", "workload", "knobs", "metrics", "level", "applied", "study",
                rows=(
                    (
                        v.device.id,
                        v.device.board,
                        v.device.workload,
                        joined(k.name for k in v.device.space.knobs),
                        joined(f"{m.name} ({m.origin})" for m in v.device.metrics),
                        level(v),
                        change(v.applied.setting, v.device.space.default) if v.applied else "–",
                        v.study or "–",
                    )
                    for v in views
                ),
                nothing="no devices yet; an agent registers them: `jouletune agent serve`",
            )  # fmt: skip


@commands.command()
def forget(
    device: Annotated[str, typer.Argument(metavar="ID", help="The device's id.")],
    tuner: TunerUrl = "",
    token_file: TokenFile = None,
    db: Db = "",
) -> None:
    """Forget a device that will not come back; its studies and trials stay."""
    from tuner.cli.operator_api import open_api
    from tuner.wire import Change

    with open_api(tuner, token_file, db) as api:
        api.forget(device, Change(who=getpass.getuser()))
    typer.echo(f"device {device} is forgotten; its studies and trials stay")
