"""`jouletune fleet`: the devices by group, with status and saving; `status`: what needs you."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone

from tuner.cli.answers import Answer, Rows
from tuner.cli.asking import Api, with_api
from tuner.cli.output import folded, list_width
from tuner.core import Phase
from tuner.moments import ago, when
from tuner.presentation.figures import amount, change, how_many, percent
from tuner.presentation.standing import WORST_FIRST, device_status, worst_first
from tuner.presentation.standing import status as status_of
from tuner.presentation.texts import saved_texts
from tuner.wire import DeviceView, FleetRow, FleetView, StudyView

COLUMNS = (
    "=device", "status", "study", ">saving", ">saved", "~applied", "+energy source", "+last report",
    "+reason",
)  # fmt: skip


def sums(view: FleetView, width: int | None = None) -> list[str]:
    """Return the fleet in lines of at most this width: devices by status, and the saved energy."""
    parts = [how_many(len(view.rows), "device")]
    parts += [f"{n} {word}" for word in WORST_FIRST if (n := view.health.get(word, 0))]
    parts += saved_texts(view)
    if view.pending:
        done = view.studies - view.pending
        parts.append(f"computing savings and limits: {done} of {view.studies} studies done")
    return folded(parts, width)


def device_row(row: FleetRow) -> tuple[str, ...]:
    """Return a device in `COLUMNS`."""
    return (
        row.device,
        f"{row.health}, blocked" if row.unable and not row.observed else str(row.health),
        row.study or "–",
        percent(row.saving.mean, row.saving.stderr) if row.saving else "–",
        "–" if row.saved_j is None else amount("J", row.saved_j, row.saved_stderr_j or 0.0),
        change(row.setting, row.default) if row.setting else "–",
        row.energy_origin or "not measured",
        when(row.last_seen),
        row.error or row.unable or "–",
    )


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


Row = tuple[str, str, str, str]


@with_api(lists=True, quiet=True)
def status(api: Api) -> Answer:
    """Show which devices, studies and budgets need you, and the command to run next."""
    studies, devices, stop = api.studies(), api.devices(), api.stop_state()
    now = datetime.now(timezone.utc)
    rows: list[Row] = []
    if stop.in_force:
        rows.append(("all devices", "stopped", "`jouletune stop-all --lift`", stop.why or "–"))
    rows += [row for view in studies for row in _study(view)]
    rows += [row for view in devices for row in _device(view, now)]
    rows += [
        (view.name, "unreadable", f"`jouletune budget show {view.name}`", view.error)
        for view in api.budgets()
        if view.error
    ]
    held = sum(view.phase is Phase.HOLDING for view in studies)
    nothing = (
        f"nothing needs you: {how_many(len(devices), 'device')}, "
        f"{how_many(held, 'study', 'studies')} holding"
    )
    columns = ("=name", "status", "~reason", "!next step")
    names = ("name", "status", "next_step", "reason")
    value = [dict(zip(names, (*row[:2], row[2].strip("`"), row[3]), strict=True)) for row in rows]
    return Answer(value, Rows(columns, ((a, b, why, step) for a, b, step, why in rows), nothing))


def _study(view: StudyView) -> Iterator[Row]:
    """Yield a row if a study needs a decision or a correction; its devices have separate rows."""
    show = f"`jouletune study show {view.id}`"
    if view.error:
        yield view.id, status_of(view), show, view.error
    elif view.phase is Phase.PROPOSED:
        yield view.id, status_of(view), f"`jouletune study approve {view.id}`", view.phase_why
    elif view.unmet is not None:
        yield view.id, status_of(view), show, view.phase_why
    elif view.capped:
        yield view.id, status_of(view), "`jouletune budget list`", view.capped
    elif view.phase is Phase.PAUSED:
        yield view.id, status_of(view), f"`jouletune study resume {view.id}`", view.phase_why


def _device(view: DeviceView, now: datetime) -> Iterator[Row]:
    """Yield a row if a device is offline or blocked."""
    name = view.device.id
    if not view.online:
        reason = f"last report {ago(view.last_seen, now)}"
        yield name, "offline", f"`jouletune device show {name}`", reason
    elif why := view.error or view.unable:
        step = f"release {name} --lift" if view.released else f"show {name}"
        yield name, device_status(view), f"`jouletune device {step}`", why
