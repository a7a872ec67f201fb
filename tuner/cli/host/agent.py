"""`jouletune agent`: run the agent of this host, and restore its devices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from agents import main
from agents import revert as reverting
from agents.config import AgentConfig, Attachment, load_agent_config
from tuner.cli.answers import Answer, with_json
from tuner.cli.host import logs
from tuner.cli.options import ForeignShare
from tuner.core import ConfigError

STATE_DIR = Path("agent-state")

StateDir = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Folder of the agent's journal, holds and unsent reports."),
]


def serve(
    device: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SPEC[=WORKLOAD]",
            help="cpu=reference, nvidia:0+cpu (tuned as one), jetson, simulated:a100, in a checkout "
            "replay:FILE; repeatable.",
        ),
    ] = None,
    workload: Annotated[
        str, typer.Option(metavar="NAME", help="The workload of devices without one.")
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
            help="File with the token to enrol with: the tuner's, or one of `token create --enrol`.",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(help="This host in the names of its devices. Default: its host name."),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="A label of this host's devices, beside those of agent.toml; repeatable.",
        ),
    ] = None,
    state_dir: StateDir = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of the noise of simulated devices.")
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Serve metrics for Prometheus: 127.0.0.1:9464, or unix:/path; on this host only.",
        ),
    ] = None,
    foreign_share: ForeignShare = None,
) -> None:
    """Tune the devices of this host for a tuner.

    Runs until SIGTERM or Ctrl-C; holds outlast it.
    """
    given = {
        "tuner": tuner,
        "token_file": token_file,
        "name": name,
        "state_dir": state_dir,
        "seed": seed,
        "metrics": metrics,
        "foreign_share": foreign_share,
    }
    logs.begin("httpx2")
    labels = _labels(label or ())

    def read() -> AgentConfig:
        return _configured(config, device or (), workload, given, labels)

    loaded = read() if config is None else main.wait_for_device(read)
    if loaded is not None:
        main.serve(loaded)


@with_json
def revert(
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The agent.toml of the agent.")
    ] = None,
    state_dir: StateDir = None,
    stay: Annotated[
        bool, typer.Option("--stay", help="Emergency stop until --lift, also while the agent runs.")
    ] = False,
    lift: Annotated[bool, typer.Option("--lift", help="End the emergency stop.")] = False,
) -> Answer:
    """End every hold and restore the devices.

    Pauses their studies until `jouletune study resume`. Idempotent; continues after a failure. Stop the
    agent first. With --stay the agent may run: every device of this host is restored and accepts no
    setting until --lift; its studies wait.
    """
    if stay and lift:
        raise ConfigError("--stay and --lift contradict each other", hint="give one of them")
    configured = load_agent_config(config) if config else None
    folder = state_dir or (configured.state_dir if configured else STATE_DIR)
    root = configured.root if configured else Path("/")
    if lift:
        lifted = reverting.lift(folder)
        message = "stop lifted" if lifted else "no emergency stop was active"
        return Answer({"lifted": lifted}, message)
    done = (reverting.stay if stay else reverting.revert)(folder, root)
    return Answer({"reverted": done}, _reverted_lines(done, stay))


def _reverted_lines(done: Sequence[str], stay: bool) -> Iterator[str]:
    yield from (f"{device} is at its original setting" for device in done)
    if not done:
        yield "nothing to restore"
    if stay:
        yield "every device stays at its original; lift it with `jouletune agent revert --lift`"


def _labels(given: Sequence[str]) -> dict[str, str]:
    """Return labels by name. Raises ConfigError: a label has no value, or is given twice."""
    labels: dict[str, str] = {}
    for text in given:
        name, _, value = text.partition("=")
        if not name or not value or name in labels:
            why = "is given twice" if name in labels else "has no name or no value"
            raise ConfigError(f"--label {text} {why}", hint="write it like --label rack=b1")
        labels[name] = value
    return labels


def _configured(
    file: Path | None,
    devices: Sequence[str],
    workload: str,
    given: Mapping[str, object],
    labels: Mapping[str, str],
) -> AgentConfig:
    """Return the configuration: the file's values, replaced by those of the options."""
    changes = {name: value for name, value in given.items() if value is not None}
    attached = tuple(Attachment.parse(text, workload) for text in devices)
    if attached or file is None:
        changes["devices"] = attached
    if file is None:
        return AgentConfig(labels=dict(labels), **changes)  # type: ignore[arg-type]
    read = load_agent_config(file)
    changes["labels"] = {**read.labels, **labels}
    return replace(read, **changes)  # type: ignore[arg-type]
