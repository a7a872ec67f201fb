"""`python -m tests.bench transfer`: what the studies of like devices are worth to a new one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import TypeAdapter

from tests.bench.contest.surfaces import WORTH_TUNING, load_problems
from tests.bench.result import header
from tests.bench.transfer import judge
from tests.bench.transfer.families import Declared, Known, families
from tests.bench.transfer.play import LEFT_OUT, Pairs, Player, fleet_of, left_out, shown, wrong

PARTS = ("made-up", "wrong", "surfaces", "cost")
MOST_WRONG = 200
"""About so many studies are played with wrong siblings."""
ROWS = TypeAdapter(list[judge.Paired])


def transfer(
    parts: Annotated[str, typer.Argument(help=f"Which of {', '.join(PARTS)}.")] = ",".join(PARTS),
    folder: Annotated[
        Path | None, typer.Option("--surfaces", metavar="DIR", help="Measured surfaces.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Which families are made up.")] = 2,
    kinds: Annotated[str, typer.Option(help="Kinds of made-up surfaces; empty: all.")] = "",
    slack: Annotated[float, typer.Option(help="The limit over the baseline.")] = 1.1,
    noise: Annotated[float, typer.Option(help="A window's noise.")] = 0.02,
    jobs: Annotated[int, typer.Option(help="Processes.")] = 2,
    output: Annotated[Path, typer.Option(help="The JSON file; other parts in it are kept.")] = Path(
        "build/bench/transfer.json"
    ),
) -> None:
    """Judge siblings where the truth is known: on families of made-up boards, and measured surfaces."""
    player = Player(slack, noise, seed, jobs)
    chosen = tuple(kind for kind in kinds.split(",") if kind)
    work: dict[str, Callable[[], Any]] = {
        "made-up": lambda: _left_out(player, list(families(seed, chosen))),
        "wrong": lambda: _wrong(player, list(families(seed, chosen, turns=2))),
        "surfaces": lambda: _measured(player, folder),
        "cost": lambda: _cost(seed),
    }
    for part in parts.split(","):
        if part not in work:
            raise typer.BadParameter(f"there is no part {part!r}; choose among {', '.join(PARTS)}")
        found = work[part]()
        told = json.loads(output.read_text()) if output.exists() else {}
        told |= header(seed) | {part: found}
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps(told, indent=1) + "\n")
        typer.echo(f"{part}: {json.dumps(found.get('bounds', found), indent=1)}", err=True)


def _left_out(player: Player, known: list[Known]) -> dict[str, Any]:
    """Return what siblings are worth, the studies of a device or a workload left out in turn."""
    played = player.cold([k for k in known if k.problem.saving(player.slack) >= WORTH_TUNING])
    fleet = fleet_of(played)
    found: dict[str, Any] = {
        "slack": player.slack,
        "studies": len(played),
        "trust": shown({**fleet.store.posteriors.worth()}),
        "bounds": {},
    }
    for name, label in LEFT_OUT.items():
        pairs = player.warm(played, left_out(fleet, played, label))
        found[name] = _figures(pairs)
        found["bounds"][name] = judge.bounds(judge.by_source(pairs))
    return found


def _wrong(player: Player, known: list[Known]) -> dict[str, Any]:
    """Return what wrong siblings cost."""
    worth = [k for k in known if k.problem.saving(player.slack) >= WORTH_TUNING]
    played = player.cold(worth[:: max(1, len(worth) // MOST_WRONG)])
    found: dict[str, Any] = {"studies": len(played), "bounds": {}}
    for name, memories in wrong(fleet_of(played), played, player.seed).items():
        pairs = player.warm(played, memories)
        rows = judge.over_sources(judge.by_source([("all", c, w) for _, c, w in pairs]))
        found[name] = _figures(pairs)
        found["bounds"][name] = {
            "lost": round(-min(r.difference for r in rows), 4),
            "windows above a limit, beside cold": round(
                rows[-1].windows_above - rows[-1].windows_above_cold, 4
            ),
        }
    return found


def _measured(player: Player, folder: Path | None) -> dict[str, Any]:
    """Return the same as `_left_out` on measured surfaces, a reason where there are none."""
    if folder is None or not folder.is_dir():
        return {"skipped": "no folder of measured surfaces: give --surfaces DIR"}
    return _left_out(
        player,
        [
            Known(Declared(p.source, p.surface.device, p.surface.workload, n), p)
            for n, p in enumerate(load_problems(folder))
        ],
    )


def _cost(seed: int) -> dict[str, Any]:
    """Return the processor time of a suggestion with a thousand siblings to choose from."""
    from tests.bench.transfer.cost import cost

    return cost(seed)


def _figures(pairs: Pairs) -> dict[str, Any]:
    rows = judge.by_source(pairs)
    return {
        "over sources": ROWS.dump_python(judge.over_sources(rows)),
        "by source": ROWS.dump_python(rows),
    }
