"""`jouletune fleet`: the devices by group, with status and saving."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tuner.cli.answers import Answer, Rows
from tuner.cli.asking import Api, with_api
from tuner.cli.fleet.top import COLUMNS, device_row, sums
from tuner.cli.output import list_width
from tuner.presentation.figures import amount, how_many
from tuner.presentation.standing import worst_first
from tuner.wire import FleetRow


@with_api(lists=True, watch=True)
def fleet(api: Api) -> Answer:
    """List the devices by board and workload, problems first, with their savings."""
    view = api.fleet()
    groups: dict[tuple[str, str], list[FleetRow]] = {}
    for row in worst_first(view.rows):
        groups.setdefault((row.board, row.workload), []).append(row)
    lines: list[str | Rows] = [*sums(view, list_width())]
    for (board, workload), rows in groups.items():
        title = ", ".join(filter(None, (board, workload))) or "unreadable"
        lines += ["", f"{title}: {_group(rows, not view.pending)}"]
        lines.append(Rows(COLUMNS, map(device_row, rows), ""))
    return Answer(view, lines)


def _group(rows: Sequence[FleetRow], whole: bool) -> str:
    """Return a group's number of devices, in total and by status, and its saved energy by origin.

    `whole`: every study is evaluated; a partial sum looks like a small one.
    """
    parts = [how_many(len(rows), "device")]
    parts += [f"{n} {status}" for status, n in Counter(str(row.health) for row in rows).items()]
    saved: dict[str, float] = {}
    for row in rows:
        if whole and row.saved_j is not None:
            saved[row.energy_origin] = saved.get(row.energy_origin, 0.0) + row.saved_j
    for origin, joules in saved.items():
        label = "" if origin in ("", "measured") else f" ({origin})"
        parts.append(f"saved {amount('J', joules)}{label}")
    return ", ".join(parts)
