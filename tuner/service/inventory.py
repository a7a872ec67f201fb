"""The registered devices: their state, and the removal of those that will not come back."""

from __future__ import annotations

from collections.abc import Container

from tuner.core import Conflict, Device, NotFound, Notice, Study, Topic
from tuner.study.loop import Loop
from tuner.wire import Change, DeviceView


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
    views = []
    for device in loop.store.devices.list():
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
                unable=loop.presence.refusal(device.id),
                released=loop.presence.released(device.id) is not None,
                context=dict(context),
                context_at=context_at,
            )
        )
    return views


def forget(loop: Loop, device: str, change: Change) -> None:
    """Forget a device; raises as `Operations.forget` does."""
    registered, owner = device_of(loop, device), loop.store.studies.of(device)
    if owner is None and loop.presence.online(registered, None):
        raise Conflict(f"device {device} is online", hint="stop its agent first")
    loop.store.devices.forget(device)
    loop.presence.forget(device)
    loop.store.bus.publish(Notice(Topic.ORDERS, devices=(device,)))
    loop.changes.note("forgotten", f"forgotten by {change.who}", device=device)
