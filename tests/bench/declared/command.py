"""`python -m tests.bench declared`: a large fleet applied, killed on the way, and declared wrongly."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from db import open_store
from tests import postgres
from tests.bench.declared.fleet import draft, fleet_text, operations_on, register
from tests.bench.declared.front import fronts
from tests.bench.fleet.command import tuner_of
from tests.bench.result import header
from tests.unit.tuner.service.declared.test_apply import draft as wrong_draft
from tests.unit.tuner.service.declared.test_apply import fleet as wrong_fleet
from tests.unit.tuner.service.declared.wrong import WEB, WRONG
from tuner.cli.output import echo_json, json_text, write_text
from tuner.client.blocking import Client
from tuner.client.tokens import read_token
from tuner.core import ConfigError, Exploration, MaintenanceWindow
from tuner.study.exploring import wait_for_window
from tuner.wire import FleetDiff

KILLED_DEVICES = 4
MOST_POINTS = 200
SEED = 11
"""The seed of the made-up surfaces whose fronts are searched; the policy was developed on others."""


@dataclass(frozen=True, slots=True)
class Applied:
    """The seconds to apply a fleet file over HTTP, and the changes that a second time would make."""

    database: str
    devices: int
    diff_s: float
    apply_s: float
    again_s: float
    changes: int
    changes_again: int


@dataclass(frozen=True, slots=True)
class Killed:
    """The kill points of an applier, and the number after which applying again completed the file."""

    points: int
    converged: int


@dataclass(frozen=True, slots=True)
class Windows:
    """The days of a year with two clock changes, and those with a window that is not four hours long."""

    days: int
    wrong: int


def declared(
    devices: Annotated[int, typer.Option(metavar="N", min=1, help="How many are declared.")] = 500,
    output: Annotated[Path | None, typer.Option(metavar="FILE.json")] = None,
) -> None:
    """Apply a fleet file on SQLite and PostgreSQL, kill appliers, and try what is wrong."""
    with TemporaryDirectory(prefix="jouletune-declared-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # PostgreSQL runs as another user
        applied = [_applied(f"sqlite:///{folder / 'fleet.sqlite'}", devices)]
        with postgres.server(folder / "postgres", options="") as url:
            applied.append(_applied(url, devices))
        timings = {
            **header(),
            "applied": [asdict(one) for one in applied],
            "killed": asdict(_killed(folder)),
            "wrong_files": len(WRONG),
            "named_line_and_key": sum(_named(*case) for case in WRONG),
            "windows": asdict(_windows()),
            "fronts": fronts(SEED),
        }
    if output is None:
        echo_json(timings)
    else:
        write_text(output, json_text(timings) + "\n")


def _applied(url: str, devices: int) -> Applied:
    """Apply a file twice at a separate tuner."""
    store = open_store(url)
    register(store, devices)
    store.close()
    text = fleet_text()
    with tuner_of("", None, url) as (tuner, token), Client(tuner, read_token(token)) as client:
        seen, diff_s = _timed(lambda: client.diff_fleet(draft(text)))
        made, apply_s = _timed(lambda: client.apply_fleet(draft(text, seen.fingerprint)))
        again, again_s = _timed(lambda: client.apply_fleet(draft(text)))
    kind = url.partition(":")[0].partition("+")[0]
    counts = len(made.changes), len(again.changes)
    return Applied(kind, devices, diff_s, apply_s, again_s, *counts)


def _timed(do: Callable[[], FleetDiff]) -> tuple[FleetDiff, float]:
    """Return the result of a call, and its seconds."""
    began = time.monotonic()
    outcome = do()
    return outcome, round(time.monotonic() - began, 3)


def _killed(folder: Path) -> Killed:
    """Kill appliers at every commit, before and after it, and apply again."""
    file, points, converged = folder / "fleet.toml", 0, 0
    file.write_text(fleet_text())
    for number in range(1, MOST_POINTS):
        url = f"sqlite:///{folder / f'killed-{number}.sqlite'}"
        store = open_store(url)
        register(store, KILLED_DEVICES)
        store.close()
        dying = [sys.executable, "-m", "tests.bench.declared.dying", url, str(file), str(number)]
        if subprocess.run(dying, check=False).returncode == 0:
            break
        points += 1
        store = open_store(url)
        operations = operations_on(store)
        operations.apply_fleet(draft(file.read_text()))
        devices = sorted(device for study in operations.studies() for device in study.devices)
        whole = len(devices) == len(set(devices)) == KILLED_DEVICES
        converged += whole and not operations.diff_fleet(draft(file.read_text())).changes
        store.close()
    return Killed(points, converged)


def _named(then: str, now: str, line: int, words: str) -> bool:
    """Return whether an invalid file is refused with its line and key, and changes nothing."""
    operations = wrong_fleet()
    try:
        operations.apply_fleet(wrong_draft(WEB.replace(then, now)))
    except ConfigError as error:
        return f"line {line}" in str(error) and words in str(error) and not operations.studies()
    return False


def _windows() -> Windows:
    """Count the days of a year whose window, from 02:30 in Berlin, is not open for four hours."""
    nightly = Exploration(
        windows=(MaintenanceWindow("30 2 * * *", 4.0),), time_zone="Europe/Berlin"
    )
    first = datetime(2026, 1, 1, 12, tzinfo=UTC)
    days = [first + timedelta(days=n) for n in range(365)]
    quarters = [timedelta(minutes=15 * n) for n in range(96)]
    wrong = sum(
        sum(not wait_for_window(nightly, day + past) for past in quarters) != 16 for day in days
    )
    return Windows(len(days), wrong)
