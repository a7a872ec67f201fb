"""`python -m tests.bench transfer`: what the studies of like devices are worth to a new one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import TypeAdapter

from tests.bench.contest.surfaces import WORTH_TUNING, load_problems
from tests.bench.made_up.kinds import KINDS
from tests.bench.result import header
from tests.bench.transfer import judge
from tests.bench.transfer.cost import cost
from tests.bench.transfer.families import Declared, Known, families, simulated_boards
from tests.bench.transfer.play import LEFT_OUT, Player, fleet_of, left_out, shown, wrong
from tests.bench.transfer.verify import verified

PARTS = ("made-up", "boards", "wrong", "surfaces", "verify", "cost")
TURNS = 3
"""The families of each kind of surface in the part with wrong siblings."""
ROWS = TypeAdapter(list[judge.Paired])
Told = dict[str, Any]
Groups = Iterable[tuple[str, list[Known]]]


def transfer(
    parts: Annotated[str, typer.Argument(help=f"Which of {', '.join(PARTS)}.")] = ",".join(PARTS),
    folder: Annotated[
        Path | None, typer.Option("--surfaces", metavar="DIR", help="Measured surfaces.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Which families are made up.")] = 3,
    kinds: Annotated[str, typer.Option(help="Kinds of made-up surfaces; empty: all.")] = "",
    slack: Annotated[float, typer.Option(help="The limit over the baseline.")] = 1.1,
    noise: Annotated[float, typer.Option(help="A window's noise.")] = 0.02,
    jobs: Annotated[int, typer.Option(help="Processes.")] = 2,
    output: Annotated[
        Path, typer.Option(help="The JSON file; what it has of this seed is not run again.")
    ] = Path("build/bench/transfer.json"),
) -> None:
    """Judge siblings where the truth is known: on families of made-up boards, and measured surfaces.

    Each kind of surface, and each source, has a database of its own. The file is written after each.
    """
    record = Record(output, seed)
    player = Player(slack, noise, seed, jobs)
    for part in parts.split(","):
        if part not in PARTS:
            raise typer.BadParameter(f"there is no part {part!r}; choose among {', '.join(PARTS)}")
        if part in ("verify", "cost"):
            record.keep(part, verified(seed=seed) if part == "verify" else cost(seed))
            continue
        if part == "surfaces" and (folder is None or not folder.is_dir()):
            record.keep(part, {"skipped": "no folder of measured surfaces: give --surfaces DIR"})
            continue
        chosen = tuple(kind for kind in kinds.split(",") if kind) or tuple(KINDS)
        if part == "boards":
            groups: Groups = [("simulated boards", list(simulated_boards()))]
        elif part == "surfaces" and folder:
            groups = _measured(folder)
        else:
            groups = _made_up(seed, chosen, TURNS if part == "wrong" else 1)
        for name, known in groups:
            if name not in record.of(part).get("databases", {}):
                figures = _wrong(player, known) if part == "wrong" else _left_out(player, known)
                record.add(part, name, figures)
        typer.echo(f"{part}: {json.dumps(record.of(part)['bounds'], indent=1)}", err=True)


@dataclass(frozen=True)
class Record:
    """The JSON file of a bench, with what earlier runs of the same seed have left in it."""

    output: Path
    seed: int

    def of(self, part: str) -> Told:
        """Return what there is of a part."""
        told: Told = json.loads(self.output.read_text()) if self.output.exists() else {}
        own: Told = told.get(part, {}) if told.get("measured", {}).get("seed") == self.seed else {}
        return own

    def keep(self, part: str, found: Told) -> None:
        """Write a part."""
        told = json.loads(self.output.read_text()) if self.output.exists() else {}
        if told.get("measured", {}).get("seed") != self.seed:
            told = {}
        self.output.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(told | header(self.seed) | {part: found}, indent=1)
        self.output.write_text(f"{text}\n")

    def add(self, part: str, name: str, figures: Mapping[str, Any]) -> None:
        """Write a database's figures beside the others', and what all of them show."""
        databases = self.of(part).get("databases", {}) | {name: figures}
        scenarios = [key for key in figures if key not in ("trust", "studies")]
        rows = {
            scenario: [
                row
                for database in databases.values()
                for row in ROWS.validate_python(database[scenario])
            ]
            for scenario in scenarios
        }
        judged = _harm if part == "wrong" else judge.bounds
        self.keep(
            part,
            {
                "bounds": {scenario: judged(own) for scenario, own in rows.items()},
                "studies": sum(database["studies"] for database in databases.values()),
                "over sources": {
                    scenario: ROWS.dump_python(judge.over_sources(own))
                    for scenario, own in rows.items()
                },
                "databases": databases,
            },
        )


def _made_up(seed: int, kinds: Iterable[str], turns: int) -> Groups:
    return ((kind, list(families(seed, (kind,), turns))) for kind in kinds)


def _measured(folder: Path) -> Groups:
    known = [
        Known(Declared(p.source, p.surface.device, p.surface.workload, n), p)
        for n, p in enumerate(load_problems(folder))
    ]
    sources = dict.fromkeys(one.problem.source for one in known)
    return ((s, [one for one in known if one.problem.source == s]) for s in sources)


def _left_out(player: Player, known: list[Known]) -> Told:
    """Return what siblings are worth, the studies of a device or a workload left out in turn."""
    played = player.cold([k for k in known if k.problem.saving(player.slack) >= WORTH_TUNING])
    fleet = fleet_of(played)
    memories = {name: left_out(fleet, played, label) for name, label in LEFT_OUT.items()}
    return {
        "studies": len(played),
        "trust": shown({**fleet.store.posteriors.worth()}),
        **{
            name: ROWS.dump_python(judge.by_source(player.warm(played, own)))
            for name, own in memories.items()
        },
    }


def _wrong(player: Player, known: list[Known]) -> Told:
    """Return what wrong siblings cost."""
    played = player.cold([k for k in known if k.problem.saving(player.slack) >= WORTH_TUNING])
    memories = wrong(fleet_of(played), played, player.seed)
    return {
        "studies": len(played),
        **{
            name: ROWS.dump_python(judge.by_source(player.warm(played, own)))
            for name, own in memories.items()
        },
    }


def _harm(rows: list[judge.Paired]) -> Told:
    """Return what wrong siblings cost, in the mean over all studies."""
    every = judge.over_studies(rows)
    late = max(every)
    return {
        "at most 0.02 lost": judge.bound(
            -min(r.difference for r in every.values()), lambda v: v <= 0.02
        ),
        "no more windows above a limit than cold": judge.bound(
            every[late].windows_above - every[late].windows_above_cold, lambda v: v <= 0.0
        ),
    }
