"""The orders to stop all devices or one: given, shown and lifted. The loop enforces them at every poll."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from tuner.core import HELD, Conflict, Device, FleetStop, Notice, Study, Topic
from tuner.service.inventory import device_of
from tuner.study.loop import Loop
from tuner.study.stale import looking_again
from tuner.wire import Change, StoppedDevice, StopView


def stop_all(loop: Loop, change: Change, device: str = "") -> None:
    """Put the order for all devices, or for one, in force and end the running trials; no study changes.

    Raises NotFound: the device is not registered.
    """
    requested = FleetStop(at=loop.now(), who=change.who, why=change.why, device=device)
    if device:
        device_of(loop, device)
    order = loop.store.stops.order(requested)
    if order == requested:
        text = f"reverts to its original setting: {order}"
        kind, subject = ("release", "it") if device else ("stop-all", "every device")
        loop.changes.note(kind, f"{subject} {text}", device=device)
    for study in _affected(loop, device):
        # Another process may end a trial at the same time; the other trials must still be ended.
        with loop.changes.lock(study.id), suppress(Conflict):
            loop.changes.abort(study, str(order))
    _announce(loop, device)


def lift(loop: Loop, change: Change, device: str = "") -> None:
    """End an order: every study continues, and each held setting is sent again.

    An agent does not resume a hold that it has ended, so the hold gets a new revision.
    """
    stops = loop.store.stops
    if (stops.released().get(device) if device else stops.current()) is None:
        return
    kind = f"{'release' if device else 'stop-all'} lifted"
    why = f"{kind} by {change.who}{f': {change.why}' if change.why else ''}"
    for study in _affected(loop, device):
        _order_again(loop, study.id, change.who, why)
    if stops.lift(device):
        loop.changes.note(kind, why, device=device)
    _announce(loop, device)


def _affected(loop: Loop, device: str) -> Sequence[Study]:
    """Return the studies that an order concerns: all, or those of its device."""
    return [s for s in loop.store.studies.list() if not device or device in s.devices]


def _announce(loop: Loop, device: str) -> None:
    """Wake the devices that an order concerns, in every process."""
    devices = (device,) if device else ()
    for topic in (Topic.DEVICES, Topic.ORDERS) if device else (Topic.ORDERS,):
        loop.store.bus.publish(Notice(topic, devices=devices))


@looking_again
def _order_again(loop: Loop, study: str, who: str, why: str) -> None:
    """Give a study that holds a new revision, so that its agents apply the setting again."""
    with loop.changes.lock(study):
        current = loop.store.studies.get(study)
        if current.phase in HELD:
            loop.changes.revise(loop.changes.with_reason(current), who, why)


def stop_view(loop: Loop, device: str = "") -> StopView:
    """Return whether all devices, or this one, are stopped, and the state of each such device."""
    stop = loop.store.stops.current(device)
    if stop is None:
        return StopView(in_force=False)
    devices, heard = loop.store.devices.list(), loop.store.devices.heard_at()
    states = [_stopped(loop, stop, one) for one in devices if device in ("", one.id)]
    states += loop.changes.rows("the stop").unread(
        devices,
        lambda name, _: StoppedDevice(
            device=name,
            state="original" if name in stop.back else "not yet",
            last_seen=heard.get(name, stop.at),
        ),
    )
    states = [state for state in states if device in ("", state.device)]
    return StopView(
        in_force=True,
        everywhere=not stop.device,
        at=stop.at,
        who=stop.who,
        why=stop.why,
        devices=tuple(states),
    )


def _stopped(loop: Loop, stop: FleetStop, device: Device) -> StoppedDevice:
    """Return a device's state under the order: at its original setting, not yet, or offline."""
    here = loop.presence.online(device, loop.store.studies.of(device.id))
    return StoppedDevice(
        device=device.id,
        state="original" if device.id in stop.back else "not yet" if here else "offline",
        last_seen=loop.presence.last_seen(device),
    )
