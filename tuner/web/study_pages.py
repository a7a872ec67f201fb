"""One study: where it stands, what was tried, what it saves, and who changed what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import APIRouter, Request
from fastapi.responses import Response

from tuner.core import setting_key
from tuner.presentation.charts import Chart, against_limit, course, knob_slices, plan_steps
from tuner.presentation.figures import change, joined
from tuner.presentation.texts import asked_metrics, row_spans
from tuner.service.operations import Operations
from tuner.web.history_pages import side_by_side
from tuner.web.looks import Looks
from tuner.web.render import Pages
from tuner.wire import DeviceView, StudyView

PAGE = 50


@dataclass(frozen=True, slots=True)
class FollowedRow:
    """A row of a plan: from where to where, what it sets, and which devices are set so now."""

    span: str
    setting: str
    on: str


@dataclass(frozen=True, slots=True)
class Followed:
    """A plan of several rows by a quantity, with the devices that told theirs."""

    by: str
    told: Sequence[DeviceView]
    rows: Sequence[FollowedRow]
    chart: Chart


def study_pages(pages: Pages, operations: Operations, looks: Looks) -> APIRouter:
    """Return the routes that show a study."""
    router = APIRouter(prefix="/studies")

    @router.get("/new")
    def new(request: Request, device: str = "") -> Response:
        """Ask what a new study is to do."""
        free = [d for d in operations.devices() if not d.study]
        return pages.page(request, "study_new", devices=free, chosen=device)

    @router.get("/{study}")
    def show(request: Request, study: str, page: int = 1) -> Response:
        """Show a study."""
        look = looks.at(study)
        trials = look.trials[::-1]
        last = max(1, -(-len(trials) // PAGE))
        at = min(max(page, 1), last)
        return pages.page(
            request, "study", report=look.report, view=look.report.study,
            trials=trials[(at - 1) * PAGE : at * PAGE], at=at, last=last,
            metrics=asked_metrics(look.report.study),
            cloud=against_limit(look.report, look.trials, operations.pareto(study)),
            course=course(look.report, look.trials),
            revisions=operations.revisions(study)[::-1],
            events=operations.events(study=study, last=20)[::-1],
            followed=_followed(look.report.study, operations),
        )  # fmt: skip

    @router.get("/{study}/explain")
    def explain(request: Request, study: str) -> Response:
        """Show what the study's policy believes."""
        view, told = operations.study(study), operations.explain(study)
        return pages.page(request, "explain", view=view, told=told, charts=knob_slices(told))

    @router.get("/{study}/trials/{number}")
    def trial(request: Request, study: str, number: int) -> Response:
        """Show one trial with everything it measured."""
        look = looks.at(study)
        found = [t for t in look.trials if t.number == number]
        return side_by_side(pages, request, [(look.report.study, t) for t in found])

    return router


def _followed(view: StudyView, operations: Operations) -> Followed | None:
    """Return what is followed now; None where one setting is held whatever the load, or nothing."""
    plan = view.plan
    if plan is None or len(plan.rows) == 1:
        return None
    devices = operations.devices(view.devices)
    loads = {d.device.id: d.context[plan.by] for d in devices if plan.by in d.context}
    rows = []
    for span, row in zip(row_spans(plan), plan.rows, strict=True):
        held = [d for d in devices if d.applied is not None and d.applied.study == view.id]
        key = setting_key(row.setting)
        on = [d.device.id for d in held if d.applied and setting_key(d.applied.setting) == key]
        rows.append(FollowedRow(span, change(row.setting, view.baseline.setting), joined(on, "–")))
    told = [d for d in devices if d.device.id in loads]
    return Followed(plan.by, told, rows, plan_steps(plan, loads))
