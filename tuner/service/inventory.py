"""The registered devices: their state and course over time, orders to stop them, their removal."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tuner.core import (
    HELD,
    POWER,
    Applied,
    Conflict,
    Device,
    Event,
    FleetStop,
    Kind,
    Limit,
    NotFound,
    Notice,
    OverDevices,
    Revision,
    Space,
    Study,
    Topic,
    Unreadable,
    UnreadableStudy,
    WindowPoint,
    called,
    pool_windows,
    quantity_of,
    window_energy,
)
from tuner.study.changes import looking_again
from tuner.study.loop import Loop
from tuner.verbs.table import Verbs
from tuner.wire import (
    Change,
    DeviceView,
    FleetRow,
    ObservedView,
    StoppedDevice,
    StopView,
    StudyView,
)

MOST_OBSERVED = 2_000
"""The most windows that an answer pools: a day and a half of one a minute."""
RECENT, RECENT_WITHIN = 40, timedelta(hours=1)
"""The windows of a sparkline: the highest number and the highest age."""
POINTS = 300
"""The highest number of points per metric in a chart, for any range of time."""
MOST_APPLIED, MOST_EVENTS = 400, 300
Courses = Mapping[tuple[str, str], Sequence[WindowPoint]]
"""Points by device and metric."""
Sparks = Mapping[tuple[str, str], Sequence[tuple[float, float]]]
"""Each window's start as Unix time and its mean, by device and metric."""


def device_of(loop: Loop, name: str, *, by_id: bool = False) -> Device:
    """Return a registered device; with `by_id` without a description if that cannot be read.

    Raises:
        NotFound: it is not registered; the hint has the ids of those that are.
        Unreadable: it cannot be read.
    """
    try:
        return loop.store.devices.get(name)
    except Unreadable:
        if not by_id:
            raise
        return _undescribed(name, loop.store.devices.heard_at().get(name))
    except NotFound:
        names = ", ".join(d.id for d in loop.store.devices.list()) or "none yet"
        raise NotFound(
            f"no device {name!r} is registered", hint=f"registered devices: {names}"
        ) from None


class DeviceOperations(Verbs[StudyView]):
    """The verbs of devices, over one loop and its store. A refused request changes nothing."""

    loop: Loop

    def devices(self, only: Container[str] | None = None) -> list[DeviceView]:
        """Return all devices, or those in `only`, with their applied settings and their studies."""
        standing = {applied.device: applied for applied in self.loop.store.devices.standing()}
        active = self.loop.store.studies.stored(active=True)
        owners = {device: study for study in active for device in study.devices}
        views, listed = [], self.loop.store.devices.list()
        for device in listed:
            if only is not None and device.id not in only:
                continue
            owner = owners.get(device.id)
            context, context_at = self.loop.presence.load(device.id) or ({}, None)
            views.append(
                DeviceView(
                    device=device,
                    applied=standing.get(device.id),
                    study=owner.id if owner else "",
                    last_seen=self.loop.presence.last_seen(device),
                    online=self.loop.presence.online(
                        device, owner if isinstance(owner, Study) else None
                    ),
                    unable=self.loop.presence.blocked(device, owner is not None),
                    error=owner.error if isinstance(owner, UnreadableStudy) else "",
                    released=self.loop.presence.released(device.id) is not None,
                    context=dict(context),
                    context_at=context_at,
                )
            )
        heard = self.loop.store.devices.heard_at() if listed.unread else {}
        return views + [
            _unread(name, why, heard.get(name), owners.get(name))
            for name, why in listed.unread.items()
            if only is None or name in only
        ]

    def observed(self, device: str, since: datetime | None = None) -> ObservedView:
        """Return what was measured of an observed device since a time, or in a day; raises NotFound.

        Of the latest windows `MOST_OBSERVED` at most count.
        """
        named, since = device_of(self.loop, device), since or self.loop.now() - timedelta(days=1)
        windows = self.loop.store.observations.observed(device, since, MOST_OBSERVED)
        never = datetime.fromtimestamp(0.0, UTC)
        ever = windows or self.loop.store.observations.observed(device, never, 1)
        energies = [window_energy(window, named.quantities) for window in windows]
        joules = [energy[0] for energy in energies if energy is not None]
        return ObservedView(
            device=device,
            since=since,
            windows=len(windows),
            seconds=math.fsum(window.seconds for window in windows),
            completed=sum(window.load.completed for window in windows),
            first=windows[0].started_at if windows else None,
            last=ever[-1].started_at if ever else None,
            joules=math.fsum(joules) if joules and len(joules) == len(windows) else None,
            metrics=pool_windows([window.estimates for window in windows], named.quantities),
        )

    def forget(self, device: str, change: Change) -> None:
        """Forget a device that will not come back; its studies and trials stay.

        Raises:
            NotFound: it is not registered.
            Conflict: it is online, and would register again.
            DeviceBusy: it belongs to an active study.
        """
        registered = device_of(self.loop, device, by_id=True)
        owner = self.loop.store.studies.of(device)
        if owner is None and self.loop.presence.online(registered, None):
            raise Conflict(f"device {device} is online", hint="stop its agent first")
        self.loop.store.devices.forget(device)
        self.loop.presence.forget(device)
        self.loop.store.bus.publish(Notice(Topic.ORDERS, devices=(device,)))
        self.loop.changes.note("forgotten", f"forgotten by {change.who}", device=device)

    def stop_all(self, change: Change, device: str | None = None) -> StopView:
        """Put the order for all devices, or for one, in force and end the running trials; no study changes.

        Raises NotFound: the device is not registered.
        """
        one = device or ""
        requested = FleetStop(at=self.loop.now(), who=change.who, why=change.why, device=one)
        if device:
            device_of(self.loop, device, by_id=True)
        order = self.loop.store.stops.order(requested)
        if order == requested:
            text = f"reverts to its original setting: {order}"
            kind, subject = ("release", "it") if device else ("stop-all", "every device")
            self.loop.changes.note(kind, f"{subject} {text}", device=one)
        for study in _affected(self.loop, one):
            # Another process may end a trial at the same time; the other trials must still be ended.
            with self.loop.changes.lock(study.id), suppress(Conflict):
                self.loop.changes.abort(study, str(order))
        _announce(self.loop, one)
        return self.stop_state(device)

    def lift(self, change: Change, device: str | None = None) -> StopView:
        """End an order: every study continues, and each held setting is sent again.

        An agent does not resume a hold that it has ended, so the hold gets a new revision.
        """
        stops, one = self.loop.store.stops, device or ""
        if (stops.released().get(one) if one else stops.current()) is None:
            return self.stop_state(device)
        kind = f"{'release' if device else 'stop-all'} lifted"
        why = f"{kind} by {change.who}{f': {change.why}' if change.why else ''}"
        for study in _affected(self.loop, one):
            _order_again(self.loop, study.id, change.who, why)
        if stops.lift(one):
            self.loop.changes.note(kind, why, device=one)
        _announce(self.loop, one)
        return self.stop_state(device)

    def stop_state(self, device: str | None = None) -> StopView:
        """Return whether all devices, or this one, are stopped, and the state of each such device."""
        stop = self.loop.store.stops.current(device or "")
        if stop is None:
            return StopView(in_force=False)
        devices, heard = self.loop.store.devices.list(), self.loop.store.devices.heard_at()
        states = [_stopped(self.loop, stop, one) for one in devices if device in (None, "", one.id)]
        states += self.loop.changes.rows("the stop").unread(
            devices,
            lambda name, _: StoppedDevice(
                device=name,
                state="original" if name in stop.back else "not yet",
                last_seen=heard.get(name, stop.at),
            ),
        )
        states = [state for state in states if device in (None, "", state.device)]
        return StopView.of(stop, in_force=True, everywhere=not stop.device, devices=tuple(states))


def _unread(
    name: str, why: str, heard_at: datetime | None, owner: Study | UnreadableStudy | None
) -> DeviceView:
    """Return the view of a device that cannot be read, for this reason."""
    device, study = _undescribed(name, heard_at), owner.id if owner else ""
    return DeviceView(device=device, study=study, last_seen=device.seen_at, online=True, error=why)


def _undescribed(name: str, heard_at: datetime | None) -> Device:
    """Return a device that cannot be read: its id and the time of its last contact."""
    return Device(
        id=name, kind="", board="", driver="", agent="", workload="", workload_version="",
        space=Space(()), metrics=(), seen_at=heard_at or datetime.fromtimestamp(0.0, UTC),
    )  # fmt: skip


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


def _stopped(loop: Loop, stop: FleetStop, device: Device) -> StoppedDevice:
    """Return a device's state under the order: at its original setting, not yet, or offline."""
    here = loop.presence.online(device, loop.store.studies.of(device.id))
    return StoppedDevice(
        device=device.id,
        state="original" if device.id in stop.back else "not yet" if here else "offline",
        last_seen=loop.presence.last_seen(device),
    )


@dataclass(frozen=True, slots=True)
class DeviceCourse:
    """A device over a range of time: settings with their revisions, measured points, and events."""

    since: datetime
    until: datetime
    applied: Sequence[Applied]
    revisions: Mapping[tuple[str, int], Revision]
    points: Courses
    events: Sequence[Event]


def watched_metrics(device: Device, limits: Sequence[Limit]) -> tuple[str, str]:
    """Return the names of a device's latency and power to watch; a name is empty if it measures none.

    The latency is the first with a limit, else the first that the device measures.
    """
    names = [limit.metric for limit in limits] + [metric.name for metric in device.metrics]
    latency = next((name for name in names if _is_latency(name, device)), "")
    power = called(POWER, device.quantities)
    return latency, power if device.metric(power) else ""


def recent_courses(loop: Loop, rows: Sequence[FleetRow], fleet: Sequence[FleetRow]) -> Sparks:
    """Return the latency and power of the last windows of some devices of a fleet."""
    studies = {row.study for row in rows if row.study}
    alone = {row.device for row in rows if row.observed}
    metrics = {name for row in rows for name in (row.latency, row.power) if name}
    since = loop.now() - RECENT_WITHIN
    owners: dict[str, list[str]] = defaultdict(list)
    for row in fleet:
        owners[row.study].append(row.device)
    courses: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for course in loop.store.observations.recent(studies, metrics, since, RECENT, alone):
        # A trial of several devices measures their sum, which belongs to no single device.
        own = owners[course.study] if len(owners[course.study]) == 1 else []
        for device in [course.device] if course.device else own:
            courses[device, course.metric] += course.points
    return {key: sorted(points)[-RECENT:] for key, points in courses.items()}


def device_course(
    loop: Loop, name: str, limits: Sequence[Limit], length: timedelta
) -> DeviceCourse:
    """Return the settings, points and events of a device over the last `length`, as far as readable.

    Raises:
        NotFound: it is not registered.
    """
    now, store = loop.now(), loop.store
    since, studies = now - length, store.studies.ids(device=name)
    metrics, applied = list[str](), tuple[Applied, ...]()
    with suppress(Unreadable):
        metrics = [metric for metric in watched_metrics(device_of(loop, name), limits) if metric]
    courses: dict[tuple[str, str], list[WindowPoint]] = defaultdict(list)
    step_s = length.total_seconds() / POINTS
    course = store.observations.course(name, studies, metrics, since, step_s) if metrics else ()
    for point in course:
        courses[name, point.metric].append(point)
    with suppress(Unreadable):
        applied = tuple(store.devices.applied(name, since, MOST_APPLIED))
    by_study = {entry.study for entry in applied if entry.study}
    revisions: dict[tuple[str, int], Revision] = {}
    for study in by_study:
        with suppress(NotFound):  # it was deleted since
            revisions |= {(study, r.study.revision): r for r in store.studies.revisions(study)}
    events = [
        event
        for study in (None, *sorted(by_study))
        for event in store.events.list(study, name if study is None else None, MOST_EVENTS)
        if event.at >= since
    ]
    unique = {event.id: event for event in events}
    return DeviceCourse(
        since, now, applied, revisions, courses, sorted(unique.values(), key=lambda e: (e.at, e.id))
    )


def _is_latency(metric: str, device: Device) -> bool:
    """Return whether a metric is a time that is not summed over devices."""
    quantity = quantity_of(metric, device.quantities)
    return quantity.kind is Kind.TIME and quantity.over_devices is not OverDevices.SUM
