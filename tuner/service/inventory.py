"""The registered devices: their state, and the removal of those that will not come back."""

from __future__ import annotations

import math
from collections.abc import Container
from datetime import UTC, datetime

from tuner.core import (
    Conflict,
    Device,
    NotFound,
    Notice,
    Space,
    Study,
    Topic,
    UnreadableStudy,
    pool_windows,
    window_energy,
)
from tuner.study.loop import Loop
from tuner.wire import Change, DeviceView, ObservedView

MOST_OBSERVED = 2_000
"""The most windows that an answer pools: a day and a half of one a minute."""


def device_of(loop: Loop, name: str) -> Device:
    """Return a registered device. Raises NotFound, with the ids of the registered devices."""
    try:
        return loop.store.devices.get(name)
    except NotFound:
        names = ", ".join(d.id for d in loop.store.devices.list()) or "none yet"
        raise NotFound(
            f"no device {name!r} is registered", hint=f"registered devices: {names}"
        ) from None


def device_views(loop: Loop, only: Container[str] | None = None) -> list[DeviceView]:
    """Return all devices, or those in `only`, with their applied settings and their studies."""
    standing = {applied.device: applied for applied in loop.store.devices.standing()}
    active = loop.store.studies.stored(active=True)
    owners = {device: study for study in active for device in study.devices}
    views, listed = [], loop.store.devices.list()
    for device in listed:
        if only is not None and device.id not in only:
            continue
        owner = owners.get(device.id)
        context, context_at = loop.presence.load(device.id) or ({}, None)
        views.append(
            DeviceView(
                device=device,
                applied=standing.get(device.id),
                study=owner.id if owner else "",
                last_seen=loop.presence.last_seen(device),
                online=loop.presence.online(device, owner if isinstance(owner, Study) else None),
                unable=loop.presence.blocked(device, owner is not None),
                error=owner.error if isinstance(owner, UnreadableStudy) else "",
                released=loop.presence.released(device.id) is not None,
                context=dict(context),
                context_at=context_at,
            )
        )
    heard = loop.store.devices.heard_at() if listed.unread else {}
    return views + [
        _unread(name, why, heard.get(name), owners.get(name))
        for name, why in listed.unread.items()
        if only is None or name in only
    ]


def _unread(
    name: str, why: str, heard_at: datetime | None, owner: Study | UnreadableStudy | None
) -> DeviceView:
    """Return the view of a device that cannot be read, for this reason."""
    seen_at = heard_at or datetime.fromtimestamp(0.0, UTC)
    device = Device(
        id=name, kind="", board="", driver="", agent="", workload="", workload_version="",
        space=Space(()), metrics=(), seen_at=seen_at,
    )  # fmt: skip
    study = owner.id if owner else ""
    return DeviceView(device=device, study=study, last_seen=seen_at, online=True, error=why)


def observed_view(loop: Loop, name: str, since: datetime) -> ObservedView:
    """Return what was measured of an observed device since a time, of `MOST_OBSERVED` windows at most."""
    device = device_of(loop, name)
    windows = loop.store.observations.observed(name, since, MOST_OBSERVED)
    ever = windows or loop.store.observations.observed(name, datetime.fromtimestamp(0.0, UTC), 1)
    energies = [window_energy(window, device.quantities) for window in windows]
    joules = [energy[0] for energy in energies if energy is not None]
    return ObservedView(
        device=name,
        since=since,
        windows=len(windows),
        seconds=math.fsum(window.seconds for window in windows),
        completed=sum(window.load.completed for window in windows),
        first=windows[0].started_at if windows else None,
        last=ever[-1].started_at if ever else None,
        joules=math.fsum(joules) if joules and len(joules) == len(windows) else None,
        metrics=pool_windows([window.estimates for window in windows], device.quantities),
    )


def forget(loop: Loop, device: str, change: Change) -> None:
    """Forget a device; raises as `Operations.forget` does."""
    registered, owner = device_of(loop, device), loop.store.studies.of(device)
    if owner is None and loop.presence.online(registered, None):
        raise Conflict(f"device {device} is online", hint="stop its agent first")
    loop.store.devices.forget(device)
    loop.presence.forget(device)
    loop.store.bus.publish(Notice(Topic.ORDERS, devices=(device,)))
    loop.changes.note("forgotten", f"forgotten by {change.who}", device=device)
