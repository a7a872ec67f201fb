"""The page of one device: its applied settings with their orders, and its latency and power over time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from fastapi import APIRouter, Request
from fastapi.responses import Response

from tuner.core import Level, NotFound
from tuner.presentation.device_chart import AppliedSpan, device_timeline
from tuner.presentation.studies import readable
from tuner.presentation.texts import observed_lines, saved_by_period
from tuner.service.courses import DeviceCourse, device_course
from tuner.service.fleet import FleetOverview
from tuner.service.http.bodies import BoundedRoute
from tuner.service.inventory import device_of
from tuner.service.reports import StudyLook
from tuner.web.looks import Looks
from tuner.web.render import Pages
from tuner.wire import FleetRow, ObservedView

RANGES = {"24h": timedelta(hours=24), "7d": timedelta(days=7), "30d": timedelta(days=30)}
SHOWN = 50


def device_pages(pages: Pages, fleet: FleetOverview, looks: Looks) -> APIRouter:
    """Return the route of a device's page."""
    router, operations = APIRouter(route_class=BoundedRoute), fleet.operations

    @router.get("/devices/{device:path}")
    def show(request: Request, device: str, range: str = "24h") -> Response:
        """Show a device over one of `RANGES`, by default the last 24 hours."""
        row = next((row for row in fleet.view().rows if row.device == device), None)
        if row is None:
            raise NotFound(f"no device {device!r} is registered", hint="see the fleet")
        within = range if range in RANGES else "24h"
        limits = (row.limit,) if row.limit else ()
        course = device_course(operations.loop, device, limits, RANGES[within])
        spans = applied_spans(course)
        curves = [
            (metric, course.points[device, metric])
            for metric in (row.latency, row.power)
            if (device, metric) in course.points
        ]
        drawn = curves or course.applied or course.events
        look = readable(looks.at, row.study) if row.study else None
        report = look.report if isinstance(look, StudyLook) else None
        shown = readable(lambda name: operations.observed(name, course.since), device)
        seen = list[str]()
        if isinstance(shown, ObservedView) and (row.observed or shown.last is not None):
            seen = list(observed_lines(shown, device_of(operations.loop, device).quantities))
        return pages.page(
            request, "device", row=row, within=within, ranges=list(RANGES), measured=bool(curves),
            stop=operations.stop_state(device), observed=seen,
            saved=[] if report is None else saved_by_period(report),
            spans=spans[::-1][:SHOWN], events=course.events[::-1][:SHOWN], now=_now(row, spans),
            chart_data=device_timeline(
                curves, row.limit, spans, course.events, (course.since, course.until), row.default,
                report.study.quantities if report else {},
            )
            if drawn
            else None,
        )  # fmt: skip

    return router


def applied_spans(course: DeviceCourse) -> list[AppliedSpan]:
    """Return the applied settings, each with its end and the source of its order; oldest first."""
    ends = [*(entry.at for entry in course.applied[1:]), course.until][: len(course.applied)]
    spans = []
    for entry, end in zip(course.applied, ends, strict=True):
        revision = course.revisions.get((entry.study, entry.revision))
        if entry.level is Level.TRIAL:
            by = f"trial of study {entry.study}" if entry.study else "trial"
        elif revision is not None:
            by = f"{revision.who}, study {entry.study} revision {entry.revision}"
        elif entry.study:
            by = f"study {entry.study}"
        else:
            by = "no study"
        spans.append(AppliedSpan(applied=entry, until=max(end, entry.at), by=by))
    return spans


def _now(row: FleetRow, spans: Sequence[AppliedSpan]) -> AppliedSpan | None:
    """Return the setting that is applied now; None if the device is offline or nothing was applied."""
    return spans[-1] if spans and row.health != "offline" else None
