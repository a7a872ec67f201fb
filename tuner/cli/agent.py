"""`jouletune agent`: run the agent of this host, and put its devices back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.options import AsJson

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agents.config import AgentConfig

commands = typer.Typer(help="Run the agent of this host; revert devices.")

STATE_DIR = Path("agent-state")

StateDir = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Where the agent keeps journal, holds and unsent reports."),
]


@commands.command()
def serve(
    device: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SPEC[=WORKLOAD]",
            help="cpu=reference, simulated:a100, replay:FILE; repeatable.",
        ),
    ] = None,
    workload: Annotated[
        str, typer.Option(metavar="NAME", help="What runs on devices that name none themselves.")
    ] = "",
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="agent.toml; options override it.")
    ] = None,
    tuner: Annotated[
        str | None, typer.Option(metavar="URL", envvar="JOULETUNE_TUNER", help="The tuner.")
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            envvar="JOULETUNE_TOKEN_FILE",
            help="The token to enrol with: the tuner's, or one of `jouletune token create --enrol`.",
        ),
    ] = None,
    state_dir: StateDir = None,
    seed: Annotated[int | None, typer.Option(help="Fixes the noise of simulated devices.")] = None,
) -> None:
    """Work the devices of this host.

    Until SIGTERM or Ctrl-C; holds stay in force when it ends.
    """
    import logging

    from agents.main import serve as serve_agent

    given = {"tuner": tuner, "token_file": token_file, "state_dir": state_dir, "seed": seed}
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    serve_agent(_configured(config, device or (), workload, given))


@commands.command()
def revert(state_dir: StateDir = STATE_DIR, as_json: AsJson = False) -> None:
    """End every hold and put the devices back as found.

    Goes on after a failure; done twice it does nothing. The agent must not be running.
    """
    from agents.main import revert as revert_devices
    from tuner.cli.output import echo_json

    done = revert_devices(state_dir or STATE_DIR)
    if as_json:
        echo_json({"reverted": done})
        return
    for device in done:
        typer.echo(f"{device} is back as it was found")
    if not done:
        typer.echo("nothing was set, nothing to put back")


def _configured(
    file: Path | None, devices: Sequence[str], workload: str, given: Mapping[str, object]
) -> AgentConfig:
    """Return the file's configuration with what the options say instead."""
    from dataclasses import replace

    from agents.config import AgentConfig, Attachment, load_agent_config

    changes = {name: value for name, value in given.items() if value is not None}
    attached = tuple(Attachment.parse(text, workload) for text in devices)
    if attached or file is None:
        changes["devices"] = attached
    if file is None:
        return AgentConfig(**changes)  # type: ignore[arg-type]
    return replace(load_agent_config(file), **changes)  # type: ignore[arg-type]
