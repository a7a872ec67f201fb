"""`jouletune doctor`: check the sensors and controls of this machine."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from agents.actuator_client.client import actuator_socket
from agents.actuator_client.line import ActuatorClient
from agents.config import filesystem_root, load_agent_config
from agents.devices import catalogue
from agents.host.bundle import write_bundle
from agents.host.symptoms import rivals
from tuner.cli.answers import Answer, Finding, checked, with_json
from tuner.cli.host.actuator import CONFIG, idle_tables
from tuner.cli.options import TokenFile, TunerUrl, without_password
from tuner.core import ConfigError, TuningError

AGENT_CONFIG = Path("etc/jouletune/agent.toml")
"""The file of the installed agent's configuration, below the root."""


@with_json
def doctor(
    db: Annotated[
        str,
        typer.Option(
            "--db",
            metavar="URL",
            envvar="JOULETUNE_DB",
            callback=without_password,
            help="A database to check, too.",
        ),
    ] = "",
    bundle: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.tar.gz",
            help="Write the kernel files that describe the devices, for a bug report.",
        ),
    ] = None,
    fleet: Annotated[
        bool, typer.Option("--fleet", help="Check the tuners of a fleet instead of this machine.")
    ] = False,
    tuner: TunerUrl = "",
    token_file: TokenFile = None,
) -> Answer:
    """Check which sensors and controls are available.

    Gives a reason and a next step for each one that is missing. With --fleet: lists the tuners of the
    database, the leader, the delays between them, and the protocol versions of agents. Changes nothing.
    """
    if bundle is not None and fleet:
        raise ConfigError("both --bundle and --fleet are given", hint="give one of them")
    if (tuner or token_file) and not fleet:
        raise ConfigError(
            "--tuner and --token-file need --fleet", hint="add --fleet, or remove them"
        )
    if bundle is not None:
        count = write_bundle(filesystem_root(), bundle)
        omitted = "without serial numbers, addresses and the host's name"
        return Answer(
            {"bundle": str(bundle), "files": count}, f"{bundle}: {count} files, {omitted}"
        )
    if fleet:
        # Imported here: an agent's host, or one with Python 3.10, does not have the tuner's packages.
        from tuner.cli.asking import open_api
        from tuner.cli.host.doctor_fleet import examine_fleet

        with open_api(tuner, token_file, db) as api:
            findings = list(examine_fleet(api.replicas(), api.devices()))
        findings += [_database(db), *_upkeep(db)] if db else []
    else:
        findings = list(examine(filesystem_root(), db))
    lines = [*checked(findings), *([] if fleet else [_possible(findings)])]
    return Answer({"findings": findings}, lines)


def _possible(findings: Iterable[Finding]) -> str:
    """Return what can be done on this machine now."""
    able = [f.about for f in findings if f.there]
    unit = "joules" if any(about.endswith(": energy") for about in able) else "CPU time"
    devices = sorted({a.partition(": ")[0] for a in able if a.endswith(": permission to set")})
    clocks = f"clocks of {', '.join(devices)}, and " if devices else ""
    return (
        f"here: {clocks}the flags of a program can be tuned by its {unit}: "
        "jouletune run --command 'PROGRAM {x}' --knob x=1,2,4"
    )


def examine(root: Path, db: str) -> Iterator[Finding]:
    """Yield all findings about the machine whose filesystem is at `root`."""
    yield _cores()
    yield from _devices(root)
    yield from _observed(root)
    yield from _grants(root)
    yield _reference_workload()
    yield _database(db)
    if db:
        yield from _upkeep(db)


def _cores() -> Finding:
    """Check that this process has two cores."""
    cores = len(os.sched_getaffinity(0))
    return Finding("cores", cores >= 2, f"{cores} for this process", "" if cores >= 2 else
                   "with one core the load generator disturbs what it measures")  # fmt: skip


def _devices(root: Path) -> Iterator[Finding]:
    """Yield the abilities of each real device, and other programs that set the same controls."""
    for symptom in chain(catalogue.examine(root), rivals(root)):
        yield Finding(symptom.about, symptom.well, symptom.seen, symptom.cure)


def _observed(root: Path) -> Iterator[Finding]:
    """Yield the devices that the agent of this host only observes; nothing without a readable file."""
    with suppress(ConfigError):  # the agent itself reports a file that it cannot read
        for device in load_agent_config(root / AGENT_CONFIG).devices:
            if device.observe:
                yield Finding(f"{device.spec}: agent", True, "it is only observed; nothing is set")


def _grants(root: Path) -> Iterator[Finding]:
    """Yield the parts of actuator.toml that the actuator cannot grant; nothing if no actuator runs."""
    with closing(ActuatorClient(actuator_socket(root))) as line:
        try:
            answer = line.ask("capabilities")
        except TuningError:
            return  # reported with each device
    errors = [error for about in answer["devices"] for error in about.get("errors", ())]
    with suppress(TuningError):  # the actuator itself reports a file that it cannot read
        uuids = [*(about["uuid"] for about in answer["devices"]), *answer["missing"]]
        errors += idle_tables(root / CONFIG.relative_to("/"), uuids)
    hint = "correct /etc/jouletune/actuator.toml, then restart jouletune-actuator"
    for error in errors:
        yield Finding("actuator: grants", False, error, hint)


def _reference_workload() -> Finding:
    about = "reference workload (torch)"
    torch = _release("torch")
    if torch is None:
        hint = "pip install 'jouletune[reference]'"
        return Finding(about, False, "torch is not installed", hint)
    return Finding(about, True, f"torch {torch}")


def _database(url: str) -> Finding:
    """Return whether the given database answers; without a URL, the kinds that could be used."""
    about = "database"
    if url:
        # Imported here, as such a host does not have this either.
        from db import open_store

        try:
            open_store(url, create=False).close()
        except TuningError as error:
            return Finding(about, False, error.message, error.hint)
        return Finding(about, True, "it answers")
    if _release("sqlalchemy") is None:
        return Finding(
            about, False, "no SQL packages are installed", "pip install 'jouletune[tuner]'"
        )
    if _release("psycopg") is None:
        hint = "for PostgreSQL: pip install 'jouletune[postgres]'"
        return Finding(about, True, "SQLite", hint)
    return Finding(about, True, "SQLite and PostgreSQL")


def _upkeep(url: str) -> Iterator[Finding]:
    """Yield the checks of a database: integrity, schema, last backup, free space."""
    # Imported here for the same reason.
    from db.upkeep.check import check
    from tuner.main import utc_now

    try:
        findings = check(url, utc_now)
    except TuningError:
        return  # reported already
    for one in findings:
        yield Finding(f"database: {one.about}", one.well, one.seen, one.hint)


def _release(package: str) -> str | None:
    """Return the installed release of a package without importing it; None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
