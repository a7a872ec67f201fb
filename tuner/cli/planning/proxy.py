"""`jouletune workload proxy`: an engine with its flags as knobs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated

import typer

from agents.host.machine import HostClock
from agents.workloads.engine.control import EngineControl
from agents.workloads.engine.launch import ServerFlag
from agents.workloads.engine.llama import BY_MODEL, Draft
from agents.workloads.engine.serve import ProxyOptions, run_proxy
from tuner.cli.options import STATE_DIR, AsJson
from tuner.cli.run.programs import listed_values
from tuner.core import ConfigError

METHOD = re.compile(r"((?:draft|ngram)-[a-z0-9-]+)(?::(.+))?")


def proxy(
    ctx: typer.Context,
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- vllm serve MODEL …]",
            help="The engine's command, without port, draft and length: these are set here.",
        ),
    ] = None,
    draft: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=][METHOD:]FILE.gguf",
            help="llama-server's draft model, or a method without one (ngram-mod); repeatable.",
        ),
    ] = None,
    knob: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=V,V",
            help="A flag of the engine as a knob, like max_num_seqs=8,16 or ubatch_size=512,64, on,off for "
            "one without a value, or speculative_tokens=0,2,4: the first value is the baseline, or the one "
            "after @; repeatable.",
        ),
    ] = None,
    port: Annotated[int, typer.Option(help="Loopback port to listen on; 0: any free port.")] = 8090,
    longest: Annotated[int, typer.Option(min=1, max=64, help="The longest draft length.")] = 8,
    length: Annotated[int, typer.Option(min=0, help="The initial draft length; 0: off.")] = 0,
    state_dir: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder of the engine's log.")
    ] = STATE_DIR,
    as_json: AsJson = False,
) -> None:
    """Serve an engine's API at one address and restart it with other flags, without losing a request.

    A second server starts with the new value and takes over, and the first finishes its requests. An engine
    that reserves the device's memory (vLLM, SGLang) ends first, and requests wait. A draft length counts
    only if the drafts confirm it; if requests can set it, each gets the length for the current load. Tune
    it with `run --llm http://127.0.0.1:8090`, or by `run --llm -- COMMAND` alone.
    """
    if " speculation " in f" {ctx.command_path} ":
        typer.echo(
            "warning: `speculation proxy` is now `workload proxy`; the old name goes in the next release",
            err=True,
        )
    if not command:
        raise ConfigError(
            "give the command of an engine after --",
            hint="jouletune workload proxy --knob max_num_seqs=8,16 -- vllm serve MODEL",
        )
    if length and not draft:
        raise ConfigError("--length needs a draft", hint="give --draft FILE.gguf or ngram-mod")
    if length > longest:
        raise ConfigError(f"--length {length} is above --longest {longest}", hint="raise --longest")
    options = ProxyOptions(
        port,
        longest,
        length,
        command,
        _drafts(draft or []),
        state_dir,
        [_flag(text) for text in knob or ()],
    )

    def ready(url: str, control: EngineControl) -> None:
        if as_json:
            typer.echo(json.dumps({"ready": True, "url": url, "per_request": control.per_request}))
            return
        how = "set per request" if control.per_request else "changed by a restart"
        typer.echo(f"ready at {url}: its knobs are {how}")

    ended = run_proxy(options, HostClock(), ready)
    if not as_json:
        typer.echo(f"ended: {ended}")


def _flag(text: str) -> ServerFlag:
    """Return the flag of a text like `threads=2,1`. Raises InvalidInput."""
    name, values, default = listed_values(text)
    numbers = not any(isinstance(value, str) for value in values)
    return ServerFlag(name, tuple(sorted(values) if numbers else values), default)


def _drafts(given: list[str]) -> dict[str, Draft]:
    """Return drafts by name; the default name is the file's or the method's. Raises ConfigError."""
    drafts: dict[str, Draft] = {}
    for text in given:
        name, _, source = text.rpartition("=")
        match = METHOD.fullmatch(source)
        method, file = match.groups() if match else (BY_MODEL, source)
        draft = Draft(method, Path(file) if file else None)
        if draft.has_model is (draft.file is None):
            need = "needs a model" if draft.has_model else "takes no model"
            raise ConfigError(
                f"{draft.method} {need}", hint="write METHOD:FILE.gguf, or ngram-mod alone"
            )
        name = name or (draft.method if draft.file is None else draft.file.stem)
        if name in drafts:
            raise ConfigError(f"two drafts have the name {name!r}", hint="write NAME=FILE.gguf")
        drafts[name] = draft
    return drafts
