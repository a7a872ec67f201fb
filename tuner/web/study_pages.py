"""The pages of one study: its status and next step, its trials, its saving, and its changes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fastapi import APIRouter, Request
from fastapi.responses import Response

from tuner.core import Unreadable, Value, setting_key
from tuner.presentation.charts import Chart, against_limit, course, plan_steps, scale
from tuner.presentation.figures import ShownUnit, change, joined
from tuner.presentation.knob_charts import (
    importance,
    importance_bars,
    knob_effects,
    knob_slices,
    parallel,
    varying_knobs,
)
from tuner.presentation.standing import last_change, sentence, status_reason
from tuner.presentation.studies import readable
from tuner.presentation.texts import gained, requested_metrics, row_spans
from tuner.service.http.bodies import BoundedRoute
from tuner.service.http.gate import status_of
from tuner.service.operations import Operations
from tuner.service.reports import StudyLook
from tuner.web.history_pages import side_by_side
from tuner.web.looks import Explanations, Looks
from tuner.web.render import Pages
from tuner.web.study_actions import new_study
from tuner.wire import DeviceView, Problem, StudyView, TrialView

PAGE = 50
SUGGESTED = re.compile(r'[:;,]? add (?:the |--)constraint "([^"]+)" to keep it')
"""The advice in a text to add a constraint that would keep the capacity."""


@dataclass(frozen=True, slots=True)
class FollowedRow:
    """A row of a plan: its range, its setting, and the devices that have this setting now."""

    span: str
    setting: str
    on: str


@dataclass(frozen=True, slots=True)
class Followed:
    """A plan of several rows by a quantity, with the devices that report the quantity."""

    by: str
    reported: Sequence[DeviceView]
    rows: Sequence[FollowedRow]
    chart: Chart


@dataclass(frozen=True, slots=True)
class TrialTable:
    """A page of a study's trials: its columns with their units, and its rows in the requested order.

    `groups` are the numbers of trials by verdict or state.
    """

    knobs: Sequence[str]
    metrics: Sequence[str]
    units: dict[str, ShownUnit]
    groups: dict[str, int]
    rows: Sequence[TrialView]
    page: int
    last: int


def study_pages(pages: Pages, operations: Operations, looks: Looks) -> APIRouter:
    """Return the routes of a study's pages."""
    router = APIRouter(prefix="/studies", route_class=BoundedRoute)
    explanations = Explanations(operations)

    @router.get("/new")
    def new(request: Request, device: str = "") -> Response:
        """Show the form for a new study of devices without a study."""
        return new_study(pages, request, operations, {"device": (device,)})

    @router.get("/{study}")
    def show(
        request: Request, study: str, sort: str = "-trial", only: str = "", page: int = 1
    ) -> Response:
        """Show a study, with a page of its trials in the order `sort`."""
        look = readable(looks.at, study)
        if isinstance(look, Unreadable):
            shown = Problem(code=look.code, message=look.message, hint=look.hint)
            return pages.page(request, "error", status_of(look), error=shown, study=study)
        report, view = look.report, look.report.study
        revisions = operations.revisions(study)
        saving = gained(report)
        reason = status_reason(view)
        suggestion = SUGGESTED.search(saving) or SUGGESTED.search(reason)
        return pages.page(
            request, "study", report=report, view=view, table=trial_table(look, sort, only, page),
            sort=sort, only=only, reason=sentence(SUGGESTED.sub("", reason)),
            gain=SUGGESTED.sub("", saving), kept=suggestion[1] if suggestion else "",
            changed=last_change(revisions), revisions=revisions[::-1],
            cloud=against_limit(report, look.trials, look.front),
            course=course(report, look.trials), effects=knob_effects(report, look.trials),
            parallel=parallel(report, look.trials),
            events=operations.events(study=study, last=20)[::-1],
            followed=_followed(view, operations),
        )  # fmt: skip

    @router.get("/{study}/importance")
    def knob_importance(request: Request, study: str) -> Response:
        """Return the part of a study's page that is loaded later, because the model takes seconds."""
        model = explanations.of(study)
        shares = importance(model.explanation, model.metrics[0])
        return pages.page(
            request, "importance", model=model, shares=shares, figure_data=importance_bars(shares)
        )

    @router.get("/{study}/explain")
    def explain(request: Request, study: str, setting: str = "") -> Response:
        """Show the predictions of the model of a study's policy, and why `setting` is not chosen."""
        view, model = operations.study(study), explanations.of(study, setting)
        held = view.best.setting if view.best else None
        charts = knob_slices(model, held)
        return pages.page(
            request, "explain", view=view, model=model, charts=charts, setting=setting
        )

    @router.get("/{study}/trials/{number}")
    def trial(request: Request, study: str, number: int) -> Response:
        """Show one trial with all its metrics."""
        look = looks.at(study)
        shown = [t for t in look.trials if t.number == number]
        return side_by_side(pages, request, [(look.report.study, t) for t in shown])

    return router


def trial_table(look: StudyLook, sort: str, only: str, page: int) -> TrialTable:
    """Return a page of a study's trials.

    `sort` is a column; with a leading minus the largest value comes first. Trials without a value in
    the column come last. `only` is the verdict or state of the trials; empty for all trials.
    """
    metrics = requested_metrics(look.report.study)
    groups: dict[str, int] = {}
    for trial in look.trials:
        groups[_group(trial)] = groups.get(_group(trial), 0) + 1
    rows = [t for t in look.trials if only in ("", _group(t))]
    name, down = sort.removeprefix("-"), sort.startswith("-")
    key = _sort_key(name, metrics)
    sortable = [t for t in rows if key(t) is not None]
    missing = [t for t in rows if key(t) is None]
    sortable.sort(key=lambda t: key(t) or (0, 0.0, ""), reverse=down)
    ordered = sortable + missing
    last = max(1, math.ceil(len(ordered) / PAGE))
    at = min(max(page, 1), last)
    return TrialTable(
        knobs=varying_knobs(look.trials),
        metrics=metrics,
        units={m: scale(look.report, m) for m in metrics},
        groups=groups,
        rows=ordered[(at - 1) * PAGE : at * PAGE],
        page=at,
        last=last,
    )


def _group(trial: TrialView) -> str:
    """Return a trial's verdict, or its state without a verdict."""
    return str(trial.verdict or trial.state)


def _sort_key(
    name: str, metrics: Sequence[str]
) -> Callable[[TrialView], tuple[int, float, str] | None]:
    """Return the function that gives a trial's sort key for a column, or None without a value."""

    def key(trial: TrialView) -> tuple[int, float, str] | None:
        if name in metrics:
            shown = trial.metrics.get(name)
            return None if shown is None else (0, shown.mean, "")
        if name in trial.setting:
            return _ordered(trial.setting[name])
        if name in ("verdict", "phase"):
            return 0, 0.0, str(trial.verdict if name == "verdict" else trial.phase)
        return 0, float(trial.number), ""

    return key


def _ordered(value: Value) -> tuple[int, float, str]:
    """Return the sort key of a knob's value: numbers by size, then other values as text."""
    return (1, 0.0, str(value)) if isinstance(value, bool | str) else (0, float(value), "")


def _followed(view: StudyView, operations: Operations) -> Followed | None:
    """Return the plan that is followed now; None without a plan, or if it has one setting for all loads."""
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
    reported = [d for d in devices if d.device.id in loads]
    return Followed(plan.by, reported, rows, plan_steps(plan, loads))
