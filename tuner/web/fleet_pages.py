"""The pages of all devices, budgets and studies, and the order to stop all devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import TypeVar
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from tuner.core import InvalidInput, Phase
from tuner.presentation.standing import WORST_FIRST, worst_first
from tuner.presentation.studies import SORTS, StudyFilters
from tuner.service.courses import recent_courses
from tuner.service.fleet import FleetOverview, saves_now
from tuner.service.http.bodies import BoundedRoute
from tuner.service.http.sessions import Sessions
from tuner.web.render import Pages
from tuner.web.requests import Posted, read_form
from tuner.wire import AdmitDraft, Change, FleetRow, StopView

R = TypeVar("R")
PAGE = 100
CONFIRMED = "stop"
"""The word that an operator must type to stop all devices."""
GROUPS: Mapping[str, Callable[[FleetRow], str]] = {
    "workload": lambda row: row.workload,
    "board": lambda row: row.board,
    "host": lambda row: row.host,
}


def fleet_pages(pages: Pages, fleet: FleetOverview, sessions: Sessions) -> APIRouter:
    """Return the routes of the fleet's pages."""
    router = APIRouter(route_class=BoundedRoute)
    operations = fleet.operations

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
    def admit(request: Request, name: str, fields: Posted) -> Response:
        """Admit a device to a group that selects it."""
        form = read_form(request, fields, sessions)
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
    def stop(request: Request, fields: Posted) -> Response:
        """Stop all devices, or one. Raises InvalidInput: `CONFIRMED` was not typed for all."""
        form = read_form(request, fields, sessions)
        device = form.text("device")
        if not device and form.text("confirm").lower() != CONFIRMED:
            raise InvalidInput(
                "nothing was stopped: the confirmation is missing",
                hint=f"go back and type the word {CONFIRMED}",
            )
        operations.stop_all(Change(who=form.caller.name, why=form.text("why")), device)
        return _page_of(device)

    @router.post("/lift")
    def lift(request: Request, fields: Posted) -> Response:
        """Lift the stop of all devices, or of one, after which the studies continue."""
        form = read_form(request, fields, sessions)
        device = form.text("device")
        operations.lift(Change(who=form.caller.name, why=form.text("why")), device)
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
