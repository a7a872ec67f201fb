"""The order to stop the whole fleet: given, shown and lifted. The loop enforces it at every poll."""

from __future__ import annotations

from contextlib import suppress

from tuner.core import HELD, Conflict, Device, FleetStop, Notice, Topic
from tuner.study.loop import Loop
from tuner.study.stale import looking_again
from tuner.wire import Change, StoppedDevice, StopView


def stop_all(loop: Loop, change: Change) -> None:
    """Put the order in force and end all running trials; no study changes."""
    requested = FleetStop(at=loop.now(), who=change.who, why=change.why)
    stop = loop.store.stops.order(requested)
    if stop == requested:
        loop.changes.note("stop-all", f"every device reverts to its original setting: {stop}")
    for study in loop.store.studies.list():
        # Another process may end a trial at the same time; the other trials must still be ended.
        with loop.changes.lock(study.id), suppress(Conflict):
            loop.changes.abort(study, str(stop))
    loop.store.bus.publish(Notice(Topic.ORDERS))


def lift(loop: Loop, change: Change) -> None:
    """End the order: every study continues, and each held setting is sent again.

    An agent does not resume a hold that it has ended, so the hold gets a new revision.
    """
    if loop.store.stops.current() is None:
        return
    why = f"stop-all lifted by {change.who}{f': {change.why}' if change.why else ''}"
    for study in loop.store.studies.list():
        _order_again(loop, study.id, change.who, why)
    if loop.store.stops.lift():
        loop.changes.note("stop-all lifted", why)
    loop.store.bus.publish(Notice(Topic.ORDERS))


@looking_again
def _order_again(loop: Loop, study: str, who: str, why: str) -> None:
    """Give a study that holds a new revision, so that its agents apply the setting again."""
    with loop.changes.lock(study):
        current = loop.store.studies.get(study)
        if current.phase in HELD:
            loop.changes.revise(loop.changes.with_reason(current), who, why)


def stop_view(loop: Loop) -> StopView:
    """Return whether all devices are stopped, and the state of each."""
    stop = loop.store.stops.current()
    if stop is None:
        return StopView(in_force=False)
    devices, heard = loop.store.devices.list(), loop.store.devices.heard_at()
    states = [_stopped(loop, stop, device) for device in devices]
    states += loop.changes.rows("the stop").unread(
        devices,
        lambda name, _: StoppedDevice(
            device=name,
            state="original" if name in stop.back else "not yet",
            last_seen=heard.get(name, stop.at),
        ),
    )
    return StopView(in_force=True, at=stop.at, who=stop.who, why=stop.why, devices=tuple(states))


def _stopped(loop: Loop, stop: FleetStop, device: Device) -> StoppedDevice:
    """Return a device's state under the order: at its original setting, not yet, or offline."""
    here = loop.presence.online(device, loop.store.studies.of(device.id))
    return StoppedDevice(
        device=device.id,
        state="original" if device.id in stop.back else "not yet" if here else "offline",
        last_seen=loop.presence.last_seen(device),
    )
