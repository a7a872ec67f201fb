"""`jouletune status`: the devices and studies that need an operator, each with a command."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone

from tuner.cli.answers import Answer, Rows
from tuner.cli.asking import Api, with_api
from tuner.core import Phase
from tuner.moments import ago
from tuner.presentation.figures import how_many
from tuner.presentation.standing import device_status
from tuner.presentation.standing import status as status_of
from tuner.wire import DeviceView, StudyView

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
