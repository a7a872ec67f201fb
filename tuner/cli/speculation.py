"""`jouletune speculation`: the draft length of a server that decodes speculatively."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.options import STATE_DIR, AsJson

if TYPE_CHECKING:
    from agents.workloads.llama_cpp.control import LengthControl
    from tuner.core import Plan

commands = typer.Typer()


@commands.command()
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
            metavar="[NAME=]FILE.gguf",
            help="A draft model; again for another to choose from.",
            show_default=False,
        ),
    ] = None,
    attach: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="A llama-server that runs already, instead of a command; its requests must be able to "
            "set their length.",
            show_default=False,
        ),
    ] = "",
    port: Annotated[
        int, typer.Option(help="Where to listen, on loopback; 0: any free one.")
    ] = 8090,
    longest: Annotated[int, typer.Option(min=1, max=64, help="The longest draft length.")] = 8,
    length: Annotated[int, typer.Option(min=0, help="The draft length to begin with; 0: off.")] = 0,
    state_dir: Annotated[
        Path, typer.Option(metavar="DIR", help="Where llama-server's log goes.")
    ] = STATE_DIR,
    as_json: AsJson = False,
) -> None:
    """Serve llama-server's API and set its draft length, without losing a request.

    Each length is proved by what the server drafts. Where a request can set its length, each gets the
    one for the load of the moment; else a second server takes over at the new length and the first
    finishes what it has. Tune it with --workload llama_cpp:http://127.0.0.1:8090.
    """
    from agents.host.host import HostClock
    from agents.workloads.llama_cpp.serve import ProxyOptions, run_proxy
    from tuner.core import ConfigError

    if bool(command) is bool(attach):
        raise ConfigError(
            "give either the command of a llama-server or --attach",
            hint="jouletune speculation proxy --draft draft.gguf -- llama-server -m target.gguf",
        )
    if command and not draft:
        raise ConfigError("there is no draft model", hint="give --draft FILE.gguf")
    if length > longest:
        raise ConfigError(f"--length {length} is above --longest {longest}", hint="raise --longest")
    options = ProxyOptions(
        port, longest, length, command or (), _drafts(draft or []), attach, state_dir
    )

    def ready(url: str, control: LengthControl) -> None:
        if as_json:
            typer.echo(json.dumps({"ready": True, "url": url, "per_request": control.per_request}))
            return
        how = "set per request" if control.per_request else "changed by a second server taking over"
        typer.echo(f"ready at {url}: draft length {length} of at most {longest}, {how}")

    run_proxy(options, HostClock(), ready)


@commands.command()
def profile(
    workload: Annotated[
        str,
        typer.Option(
            metavar="SPEC",
            help="The running server and the load for it, as in "
            "llama_cpp:http://127.0.0.1:8090#prompts:FILE.json.",
            show_default=False,
        ),
    ],
    device: Annotated[
        str, typer.Option(metavar="SPEC", help="What measures its energy; nothing of it is set.")
    ] = "cpu",
    draft: Annotated[
        str, typer.Option(metavar="NAME", help="The one draft to profile; empty: all it offers.")
    ] = "",
    window_s: Annotated[float, typer.Option(metavar="S", min=0.2, help="Seconds of one.")] = 5.0,
    most_foreign: Annotated[
        float,
        typer.Option(
            metavar="SHARE", min=0.0, max=1.0, help="Share of the machine that others may use."
        ),
    ] = 0.15,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE.csv", help="Keep the windows, for `speculation table`."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Profile a running server by a few windows, and print the draft length for each load.

    It is sent requests, 1 to 32 at a time, at the lengths that it offers; then what was in force is
    put back. The texts decide what is accepted: give your own.
    """
    import tempfile

    from agents.config import Attachment
    from agents.main import open_target
    from tuner.cli.output import console
    from tuner.profiling.decoding import ServerBench
    from tuner.profiling.speculation import write_profile

    with (
        console(stderr=True).status("starting") as status,
        tempfile.TemporaryDirectory(prefix="jouletune-") as folder,
    ):
        target = open_target(Attachment(device, workload), "profile", 0, Path(folder), Path("/"))
        try:
            found = ServerBench(target, draft, window_s, most_foreign).profile(status.update)
        finally:
            target.close()
    if out is not None:
        write_profile(out, found.windows)
    _show_plan(found.plan, found.why, as_json=as_json)


@commands.command("table")
def speculation_table(
    file: Annotated[Path, typer.Argument(metavar="FILE.csv", help="A profile.")],
    as_json: AsJson = False,
) -> None:
    """Print the length for each number of requests that a profile's windows give, without measuring."""
    from tuner.profiling.speculation import planned, read_profile

    done = planned(*read_profile(file))
    _show_plan(done.plan, done.why, as_json=as_json)


def _show_plan(plan: Plan, why: str, *, as_json: bool) -> None:
    from tuner.cli.output import console, echo_json, table

    if as_json:
        echo_json({"plan": plan, "why": why})
        return
    out = console()
    low, rows = 1, []
    for row in plan.rows:
        high = math.floor(row.below) if math.isfinite(row.below) else None
        load = f"{low} and more" if high is None else f"{low} to {high}" if high > low else str(low)
        length = int(row.setting["speculation_length"])
        rows.append(
            (
                load,
                str(length) if length else "0 (off)",
                str(row.setting.get("draft") or "–") if length else "–",
            )
        )
        low = low if high is None else high + 1
    out.print(table(">requests decoding", ">length", "draft", rows=rows))
    out.print(f"  {why}", soft_wrap=True)


@commands.command()
def overhead(
    url: Annotated[str, typer.Argument(help="The proxy: http://127.0.0.1:8090.")],
    requests: Annotated[int, typer.Option(min=10, help="Requests of each kind.")] = 1000,
    callers: Annotated[int, typer.Option(min=1, help="How many send side by side.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Measure what the proxy adds to a request: the same ones past it and through it, in turns."""
    from dataclasses import asdict

    from agents.host.host import HostClock
    from agents.workloads.llama_cpp.overhead import proxy_cost
    from tuner.cli.output import console, echo_json, table

    costs = proxy_cost(url, requests, callers, HostClock())
    if as_json:
        echo_json([asdict(cost) | {"p50_ms": cost.p50_ms, "p99_ms": cost.p99_ms} for cost in costs])
        return
    heads = (
        "request",
        ">callers",
        ">n",
        ">p50 past it",
        ">through it",
        ">p99 past it",
        ">through it",
    )
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
    console().print(table(*heads, rows=rows))


def _drafts(given: list[str]) -> dict[str, Path]:
    """Return draft models by name, a file's own name where none is given. Raises ConfigError."""
    from tuner.core import ConfigError

    drafts: dict[str, Path] = {}
    for text in given:
        name, _, file = text.rpartition("=")
        name = name or Path(file).stem
        if name in drafts:
            raise ConfigError(f"two drafts are called {name!r}", hint="write NAME=FILE.gguf")
        drafts[name] = Path(file)
    return drafts
