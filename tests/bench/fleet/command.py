"""`python -m tests.bench fleet`: how many devices a tuner can take, tried with simulated devices."""

from __future__ import annotations

import asyncio
import os
import resource
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from tests.bench.fleet.connection import TunerAddress
from tests.bench.fleet.fleet import SimulatedFleet, SimulationFigures, SimulationPlan
from tests.bench.result import header, print_list
from tuner.cli.options import AsJson, TokenFile, without_password
from tuner.cli.output import console, echo_json
from tuner.cli.run.processes import Children, await_file
from tuner.client.tokens import read_token
from tuner.core import ConfigError
from tuner.main import utc_now
from tuner.process_memory import uncollected

FILES_BESIDE = 200
"""The number of open files that a process needs in addition to its agents' connections."""


def fleet(
    agents: Annotated[
        int, typer.Option(metavar="N", min=1, max=100_000, help="Devices, eight to a host.")
    ] = 10_000,
    busy: Annotated[
        int, typer.Option(metavar="N", min=0, help="So many of them are tuned at any time.")
    ] = 200,
    orders: Annotated[
        int, typer.Option(metavar="N", min=0, help="Further studies, to see how soon they begin.")
    ] = 50,
    seconds: Annotated[
        float, typer.Option(metavar="S", min=1.0, help="How long it is measured.")
    ] = 60.0,
    window_s: Annotated[
        float, typer.Option("--window", metavar="S", min=0.1, help="How long a trial takes.")
    ] = 10.0,
    device: Annotated[
        str, typer.Option(metavar="PRESET", help="What the devices are: a100, orin, tx2, …")
    ] = "orin",
    policy: Annotated[
        str, typer.Option(help="What decides; sobol costs next to nothing.")
    ] = "sobol",
    seed: Annotated[int, typer.Option(help="What the noise is drawn by.")] = 0,
    tuner: Annotated[
        str,
        typer.Option(
            metavar="URL", help="The tuner, or what balances several; else one is started."
        ),
    ] = "",
    token_file: TokenFile = None,
    db: Annotated[
        str,
        typer.Option(
            metavar="URL",
            callback=without_password,
            help="The database of the tuner that is started; else a SQLite file that is deleted.",
        ),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Have many simulated agents work at a tuner, over the real wire, and tell what that took.

    They ask, try, hold, report and back off as real agents do. Nothing is set anywhere: a window is
    waited for, and what it shows comes from the simulator's physics. The tuner must have no real
    devices.
    """
    if busy + orders > agents:
        raise ConfigError(
            f"{busy} busy devices and {orders} orders are more than {agents} agents",
            hint="give more --agents",
        )
    _raise_files(agents + FILES_BESIDE)
    plan = SimulationPlan(
        agents=agents,
        busy=busy,
        orders=orders,
        seconds=seconds,
        spec=device,
        policy=policy,
        window_s=window_s,
        seed=seed,
    )
    with tuner_of(tuner, token_file, db) as (url, token):
        tls = ssl.create_default_context(cafile=os.environ.get("JOULETUNE_CA_FILE"))
        simulated = SimulatedFleet(
            TunerAddress.of(url, tls),
            read_token(token),
            plan,
            utc_now,
            lambda text: typer.echo(text, err=True),
        )
        with uncollected():
            figures = asyncio.run(simulated.simulate())
    if as_json:
        echo_json({**header(seed), **asdict(figures)})
    else:
        _show(figures)


@contextmanager
def tuner_of(url: str, token_file: Path | None, db: str) -> Iterator[tuple[str, Path]]:
    """Yield the tuner's address and token file; start a tuner if none is named."""
    token_file = token_file or (
        Path(given) if (given := os.environ.get("JOULETUNE_TOKEN_FILE")) else None
    )
    url = url or os.environ.get("JOULETUNE_TUNER", "")
    if url:
        if token_file is None or db:
            hint = "a tuner that runs has its own database" if db else "give --token-file"
            raise ConfigError(f"--tuner {url} goes with --token-file and without --db", hint=hint)
        yield url, token_file
        return
    with TemporaryDirectory(prefix="jouletune-fleet-") as name:
        folder = Path(name)
        children, port = Children(folder), folder / "port"
        environ = {**os.environ, "JOULETUNE_DB": db or f"sqlite:///{folder / 'fleet.sqlite'}"}
        options = ["--token-file", str(folder / "token"), "--port-file", str(port)]
        try:
            log = children.start("tuner", ["tuner", "serve", "--port", "0", *options], environ).log
            await_file(port, children, f"the tuner did not start; its log is {log}")
            yield f"http://127.0.0.1:{port.read_text().strip()}", folder / "token"
        finally:
            children.end()


def _raise_files(wanted: int) -> None:
    """Raise this process's limit of open files. Raises ConfigError: that is not permitted."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= wanted or soft == resource.RLIM_INFINITY:
        return
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise ConfigError(
            f"{wanted} connections are needed, and this process may have {hard} files open",
            hint="raise `ulimit -n`, the tuner's too, or give fewer --agents",
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _show(figures: SimulationFigures) -> None:
    """Print the results, one per line."""

    def ms(seconds: float | None) -> str:
        return "–" if seconds is None else f"{seconds * 1000.0:.0f} ms"

    core, memory = figures.tuner_core, figures.bytes_per_agent
    rows = (
        ("agents", f"{figures.agents}: {figures.waiting} waiting, {figures.trying} in a trial, "
         f"{figures.held} holding"),
        ("requests", f"{figures.requests_per_s:.1f} a second, {figures.failed_per_s:.2f} in vain"),
        ("trials", f"{figures.trials_per_s:.2f} a second; {figures.windows_per_s:.2f} windows of holds"),
        ("health", f"p50 {ms(figures.health_p50_s)}, p99 {ms(figures.health_p99_s)}"),
        ("an order's way", f"p50 {ms(figures.order_p50_s)}, p99 {ms(figures.order_p99_s)} of "
         f"{figures.orders}; {figures.orders_lost} lost"),
        ("the tuner", "does not tell what it uses" if core is None else f"{core:.2f} of a core"),
        ("memory", "–" if memory is None else f"{memory / 1000.0:.1f} kB an agent"),
    )  # fmt: skip
    print_list(console(), ("", f"in {figures.seconds:.0f} s"), rows)
