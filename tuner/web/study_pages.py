"""One study: where it stands, what was tried, what it saves, and who changed what."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response

from tuner.presentation.texts import asked_metrics
from tuner.service.operations import Operations
from tuner.web.charts import against_limit, course, knob_slices
from tuner.web.history_pages import side_by_side
from tuner.web.looks import Looks
from tuner.web.render import Pages

PAGE = 50


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
            cloud=against_limit(look, operations.pareto(study)), course=course(look),
            revisions=operations.revisions(study)[::-1],
            events=operations.events(study=study, last=20)[::-1],
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
