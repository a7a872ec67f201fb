"""The pages of devices, all together and one alone, of budgets and of all studies; the order to stop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from functools import partial
from typing import TypeVar
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from tuner.core import InvalidInput, Level, NotFound, Phase
from tuner.presentation.device_chart import AppliedSpan, device_timeline
from tuner.presentation.standing import WORST_FIRST, worst_first
from tuner.presentation.studies import SORTS, StudyFilters, readable
from tuner.presentation.texts import observed_lines, saved_by_period
from tuner.service.fleet import FleetOverview, saves_now
from tuner.service.http.bodies import BoundedRoute
from tuner.service.http.sessions import Sessions
from tuner.service.inventory import DeviceCourse, device_course, device_of, recent_courses
from tuner.service.reports import StudyLook
from tuner.web.looks import Looks
from tuner.web.render import Pages
from tuner.web.requests import Form, signed_form
from tuner.wire import AdmitDraft, FleetRow, ObservedView, StopView

R = TypeVar("R")
PAGE = 100
CONFIRMED = "stop"
"""The word that an operator must type to stop all devices."""
GROUPS: Mapping[str, Callable[[FleetRow], str]] = {
    "workload": lambda row: row.workload,
    "board": lambda row: row.board,
    "host": lambda row: row.host,
}
RANGES = {"24h": timedelta(hours=24), "7d": timedelta(days=7), "30d": timedelta(days=30)}
SHOWN = 50


def fleet_pages(pages: Pages, fleet: FleetOverview, sessions: Sessions) -> APIRouter:
    """Return the routes of the fleet's pages."""
    router = APIRouter(route_class=BoundedRoute)
    operations, signed = fleet.operations, signed_form(sessions)

    @router.get("/")
    def show(
        request: Request,
        health: str = "",
        find: str = "",
        group: str = "",
        label: str = "",
        page: int = 1,
    ) -> Response:
        """Show all devices that pass the filters, in pages; `label` is `NAME=VALUE`."""
        view = fleet.view()
        groups = _groups(view.rows)
        key = groups.get(group)
        name, _, value = label.partition("=")
        named = [row for row in view.rows if not label or row.labels.get(name) == value]
        rows = [row for row in worst_first(named, key) if _fits(row, health, find)]
        shown, at, last = _paged(rows, page)
        return pages.page(
            request, "fleet", view=view, rows=shown, health=health, find=find, at=at, last=last,
            group=group if key else "", groups=list(groups), label=label, key=key or (lambda _: ""),
            order=WORST_FIRST,
            courses=recent_courses(operations.loop, shown, view.rows),
            stop=operations.stop_state() if view.stopped else StopView(in_force=False),
        )  # fmt: skip

    @router.get("/budgets")
    def budgets(request: Request) -> Response:
        """Show the groups of devices that share a power budget."""
        return pages.page(request, "budgets", views=operations.budgets())

    @router.post("/budgets/{name}/admit")
    def admit(name: str, form: Form = signed) -> Response:
        """Admit a device to a group that selects it."""
        operations.admit(name, AdmitDraft(devices=(form.text("device"),), who=form.caller.name))
        return RedirectResponse("/budgets", status_code=303)

    @router.get("/studies")
    def studies(
        request: Request,
        find: str = "",
        phase: str = "",
        device: str = "",
        group: str = "",
        since: str = "",
        sort: str = "",
        page: int = 1,
    ) -> Response:
        """List the studies that pass the filters, in pages."""
        filters = StudyFilters(
            find=find, phase=phase, device=device, group=group, since=since, sort=sort
        )
        every = fleet.studies()
        matches = filters.of(every, operations.loop.now())
        shown, at, last = _paged(matches, page)
        summaries = [fleet.summaries.of(study) for study in shown]
        unmet = [summary.unmet if summary else None for summary in summaries]
        views = operations.briefs(list(zip(shown, unmet, strict=True)))
        applied = {one.device: one for one in operations.loop.store.devices.standing()}
        rows = [
            (view, summary, any(saves_now(study, applied.get(d)) for d in study.devices))
            for view, summary, study in zip(views, summaries, shown, strict=True)
        ]
        return pages.page(
            request, "studies", rows=rows, filters=filters, at=at, last=last, phases=list(Phase),
            sorts=list(SORTS), query=urlencode(asdict(filters)), total=len(every),
        )  # fmt: skip

    @router.post("/stop")
    def stop(form: Form = signed) -> Response:
        """Stop all devices, or one. Raises InvalidInput: `CONFIRMED` was not typed for all."""
        device = form.text("device")
        if not device and form.text("confirm").lower() != CONFIRMED:
            raise InvalidInput(
                "nothing was stopped: the confirmation is missing",
                hint=f"go back and type the word {CONFIRMED}",
            )
        operations.stop_all(form.change, device)
        return _page_of(device)

    @router.post("/lift")
    def lift(form: Form = signed) -> Response:
        """Lift the stop of all devices, or of one, after which the studies continue."""
        device = form.text("device")
        operations.lift(form.change, device)
        return _page_of(device)

    return router


def _page_of(device: str) -> Response:
    """Return the redirect to a device's page, without a device to the fleet's."""
    return RedirectResponse(f"/devices/{quote(device)}" if device else "/", status_code=303)


def _groups(rows: Sequence[FleetRow]) -> dict[str, Callable[[FleetRow], str]]:
    """Return the keys by which devices can be grouped: the fields in `GROUPS`, then all labels."""
    labels = sorted({name for row in rows for name in row.labels} - GROUPS.keys())
    return {**GROUPS, **{name: partial(_label, name) for name in labels}}


def _label(name: str, row: FleetRow) -> str:
    """Return a row's label, empty if it has none."""
    return row.labels.get(name, "")


def _paged(rows: Sequence[R], page: int) -> tuple[Sequence[R], int, int]:
    """Return the rows of a page, its number within the present pages, and the number of the last."""
    last = max(1, -(-len(rows) // PAGE))
    at = min(max(page, 1), last)
    return rows[(at - 1) * PAGE : at * PAGE], at, last


def _fits(row: FleetRow, health: str, find: str) -> bool:
    """Return whether a device passes the filters: its health, and each searched word in its row."""
    labels = " ".join(f"{name}={value}" for name, value in row.labels.items())
    text = f"{row.device} {row.board} {row.workload} {row.host} {labels}".lower()
    return health in ("", row.health) and all(word in text for word in find.lower().split())


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
        seen = list[str]()
        shown = readable(lambda name: operations.observed(name, course.since), device)
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
