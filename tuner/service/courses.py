"""Latency and power of devices over time, for charts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from tuner.core import (
    POWER,
    Applied,
    Device,
    Event,
    Kind,
    Limit,
    NotFound,
    OverDevices,
    Revision,
    Unreadable,
    WindowPoint,
    called,
    quantity_of,
)
from tuner.service.inventory import device_of
from tuner.study.loop import Loop
from tuner.wire import FleetRow

RECENT, RECENT_WITHIN = 40, timedelta(hours=1)
"""The windows of a sparkline: the highest number and the highest age."""
POINTS = 300
"""The highest number of points per metric in a chart, for any range of time."""
MOST_APPLIED, MOST_EVENTS = 400, 300

Courses = Mapping[tuple[str, str], Sequence[WindowPoint]]
"""Points by device and metric."""
Sparks = Mapping[tuple[str, str], Sequence[tuple[float, float]]]
"""Each window's start as Unix time and its mean, by device and metric."""


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
    try:
        metrics = [metric for metric in watched_metrics(device_of(loop, name), limits) if metric]
    except Unreadable:
        metrics = []
    courses: dict[tuple[str, str], list[WindowPoint]] = defaultdict(list)
    step_s = length.total_seconds() / POINTS
    course = store.observations.course(name, studies, metrics, since, step_s) if metrics else ()
    for point in course:
        courses[name, point.metric].append(point)
    try:
        applied = store.devices.applied(name, since, MOST_APPLIED)
    except Unreadable:
        applied = ()
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
