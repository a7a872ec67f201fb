"""`jouletune speculation proxy` and `overhead`: a proxy that sets llama-server's draft length, its cost."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from agents.host.host import HostClock
from agents.workloads.llama_cpp.control import LengthControl
from agents.workloads.llama_cpp.dialect import BY_MODEL, Draft
from agents.workloads.llama_cpp.launch import ServerFlag
from agents.workloads.llama_cpp.overhead import proxy_cost
from agents.workloads.llama_cpp.serve import ProxyOptions, run_proxy
from tuner.cli.answers import Answer, Rows, with_json
from tuner.cli.options import STATE_DIR, AsJson
from tuner.cli.run.programs import listed_values
from tuner.core import ConfigError

METHOD = re.compile(r"((?:draft|ngram)-[a-z0-9-]+)(?::(.+))?")


def proxy(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- llama-server -m MODEL …]",
            help="The command of llama-server, without port, draft and length: these are set here.",
            show_default=False,
        ),
    ] = None,
    draft: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=][METHOD:]FILE.gguf",
            help="A draft model, or a method without one (ngram-mod); repeatable.",
            show_default=False,
        ),
    ] = None,
    knob: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=V,V",
            help="A flag of llama-server as a knob, like threads=2,1 or ubatch_size=512,64: the first "
            "value is the baseline, or the one after @; repeatable.",
            show_default=False,
        ),
    ] = None,
    attach: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="A running llama-server, instead of a command; it must accept a length per request.",
            show_default=False,
        ),
    ] = "",
    port: Annotated[int, typer.Option(help="Loopback port to listen on; 0: any free port.")] = 8090,
    longest: Annotated[int, typer.Option(min=1, max=64, help="The longest draft length.")] = 8,
    length: Annotated[int, typer.Option(min=0, help="The initial draft length; 0: off.")] = 0,
    state_dir: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder of llama-server's log.")
    ] = STATE_DIR,
    as_json: AsJson = False,
) -> None:
    """Serve llama-server's API and set its draft length, without losing a request.

    A length counts only if the server's drafts confirm it. If requests can set their length, each one gets
    the length for the current load. Otherwise, and for a flag, a second server starts with the new value
    and takes over, and the first finishes its requests. Tune it with `run --llm http://127.0.0.1:8090` or
    --workload llama_cpp:http://127.0.0.1:8090.
    """
    if bool(command) is bool(attach):
        raise ConfigError(
            "give either the command of a llama-server or --attach",
            hint="jouletune speculation proxy --draft draft.gguf -- llama-server -m target.gguf",
        )
    if command and not draft:
        raise ConfigError("no draft model", hint="give --draft FILE.gguf or --draft ngram-mod")
    if knob and not command:
        raise ConfigError("--knob needs the command of a llama-server", hint="give it after --")
    if length > longest:
        raise ConfigError(f"--length {length} is above --longest {longest}", hint="raise --longest")
    options = ProxyOptions(
        port,
        longest,
        length,
        command or (),
        _drafts(draft or []),
        attach,
        state_dir,
        [_flag(text) for text in knob or ()],
    )

    def ready(url: str, control: LengthControl) -> None:
        if as_json:
            typer.echo(json.dumps({"ready": True, "url": url, "per_request": control.per_request}))
            return
        how = (
            "set per request" if control.per_request else "changed by a restart in a second server"
        )
        typer.echo(f"ready at {url}: draft length {length} of at most {longest}, {how}")

    run_proxy(options, HostClock(), ready)


@with_json
def overhead(
    url: Annotated[str, typer.Argument(help="The proxy: http://127.0.0.1:8090.")],
    requests: Annotated[
        int, typer.Option(min=10, help="Requests with the proxy, and as many without.")
    ] = 1000,
    callers: Annotated[int, typer.Option(min=1, help="Parallel senders.")] = 1,
) -> Answer:
    """Measure the latency that the proxy adds: the same requests with and without it, in turns."""
    costs = proxy_cost(url, requests, callers, HostClock())
    rows = [
        (
            cost.what,
            str(cost.callers),
            str(cost.requests),
            f"{cost.direct_p50_ms:.2f} ms",
            f"{cost.through_p50_ms:.2f} ms ({cost.p50_ms:+.2f})",
            f"{cost.direct_p99_ms:.2f} ms",
            f"{cost.through_p99_ms:.2f} ms ({cost.p99_ms:+.2f})",
        )
        for cost in costs
    ]
    columns = (
        "request", ">callers", ">n", ">p50 past it", ">through it", ">p99 past it", ">through it"
    )  # fmt: skip
    value = [asdict(cost) | {"p50_ms": cost.p50_ms, "p99_ms": cost.p99_ms} for cost in costs]
    return Answer(value, Rows(columns, rows, "no request got a response"))


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
