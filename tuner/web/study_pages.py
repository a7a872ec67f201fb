"""The pages of one study, and the forms with which operators create and change studies."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response
from pydantic import ValidationError

from tuner.core import (
    InvalidInput,
    TuningError,
    Unreadable,
    Value,
    first_fault,
    request_fields,
    requested,
    setting_key,
)
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
from tuner.service.http.sessions import Sessions
from tuner.service.operations import Operations
from tuner.service.reports import StudyLook
from tuner.web.history_pages import side_by_side
from tuner.web.looks import Explanations, Looks
from tuner.web.render import Pages
from tuner.web.requests import Fields, Form, signed_form
from tuner.wire import (
    ConstraintChange,
    ConstraintPreview,
    Decision,
    DeviceView,
    Problem,
    StudyDraft,
    StudyView,
    TrialView,
)

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


def study_actions(pages: Pages, operations: Operations, sessions: Sessions) -> APIRouter:
    """Return the routes that create and change a study."""
    router = APIRouter(prefix="/studies", route_class=BoundedRoute)
    signed: Form = signed_form(sessions)

    @router.post("/new")
    def create(request: Request, form: Form = signed) -> Response:
        """Create a study from a form, and show its page; after an error the form with its fields."""
        try:
            created = operations.create(_draft(form))
        except (TuningError, ValidationError) as error:
            return new_study(pages, request, operations, form.fields, error)
        return RedirectResponse(f"/studies/{created.id}", status_code=303)

    verbs: dict[str, Callable[[str, Form], StudyView]] = {
        "pause": lambda study, form: operations.pause(study, form.change),
        "resume": lambda study, form: operations.resume(study, form.change),
        "stop": lambda study, form: operations.stop(study, form.change),
        "approve": lambda study, form: operations.approve(study, _decision(form)),
        "reject": lambda study, form: operations.reject(study, _decision(form)),
    }
    for name, verb in verbs.items():
        router.add_api_route(f"/{{study}}/{name}", _doing(verb, signed), methods=["POST"])

    @router.get("/{study}/constraints")
    def ask(request: Request, study: str, revision: int = 0, add: str = "") -> Response:
        """Show a form with a study's constraints, and their changes.

        The form has the current constraints or those of `revision`, with the constraint `add` appended.
        """
        view = operations.study(study)
        earlier = [r for r in operations.revisions(study) if r.revision == revision]
        constraints = earlier[0].constraints if earlier else view.constraints
        if add and add not in constraints:
            constraints = (*constraints, add)
        return _constraints(
            request, view, "\n".join(constraints), f"back to revision {revision}" if earlier else ""
        )

    @router.post("/{study}/constraints")
    def change(request: Request, study: str, form: Form = signed) -> Response:
        """Preview the effect of other constraints; set them if the form's field `do` is `set`."""
        requested = ConstraintChange(
            who=form.caller.name, why=form.text("why"), constraints=form.lines("constraints")
        )
        view = operations.study(study)
        text, why = "\n".join(requested.constraints), requested.why
        try:
            if form.text("do") == "set":
                operations.set_constraints(study, requested)
                return RedirectResponse(f"/studies/{study}", status_code=303)
            preview = operations.preview(study, requested)
        except TuningError as error:
            return _constraints(request, view, text, why, status_of(error), error)
        return _constraints(request, view, text, why, preview=preview)

    def _constraints(
        request: Request,
        view: StudyView,
        text: str,
        why: str = "",
        status: int = 200,
        error: TuningError | None = None,
        preview: ConstraintPreview | None = None,
    ) -> Response:
        """Return the page with the form of constraints; `text` is the content of its field."""
        return pages.page(
            request, "constraints", status, view=view, text=text, why=why, error=error,
            preview=preview, changes=operations.constraint_changes(view.id)[::-1],
        )  # fmt: skip

    return router


def new_study(
    pages: Pages,
    request: Request,
    operations: Operations,
    given: Fields,
    error: TuningError | ValidationError | None = None,
) -> Response:
    """Return the form for a new study of devices without a study, with the fields given so far.

    An error is shown at the field that it names first, else above the form.
    """
    if isinstance(error, ValidationError):
        error = InvalidInput(first_fault(error))
    fields, free = (
        request_fields(),
        [d for d in operations.devices() if not d.study and d.device.space.knobs],
    )
    words = _places(error) if error else []
    names = {"constraints", *(field.name for field in fields)}
    return pages.page(
        request, "study_new", status_of(error) if error else 200, devices=free, fields=fields,
        given=given, error=error, at=next((word for word in words if word in names), ""),
    )  # fmt: skip


def _places(error: TuningError) -> list[str]:
    """Return the words of an error that name a field: its key, its first words, what it quotes, `a_b`."""
    first = re.match(r"[\w.]*", error.message)
    return [
        error.key,
        *(first[0].split(".") if first else []),
        *re.findall(r"['\"`](\w+)['\"`]", error.message),
        *re.findall(r"\w+_\w+", error.message),
    ]


def _doing(verb: Callable[[str, Form], StudyView], signed: Form) -> Callable[..., object]:
    """Return a route's function that applies a verb to a study and then shows the study's page."""

    def act(study: str, form: Form = signed) -> Response:
        verb(study, form)
        return RedirectResponse(f"/studies/{study}", status_code=303)

    return act


def _decision(form: Form) -> Decision:
    """Return a decision on the proposal that the caller saw, by its revision. Raises InvalidInput."""
    text = form.text("revision")
    if not re.fullmatch("[0-9]{0,18}", text):
        raise InvalidInput(f"revision: {text!r} is not a number", hint="reload the page")
    revision = int(text) if text else None
    return Decision(who=form.caller.name, why=form.text("why"), revision=revision)


def _draft(form: Form) -> StudyDraft:
    """Return the study that a form requests. Raises InvalidInput: a field is not valid."""
    given = {
        field.name: field.read(text)
        for field in request_fields()
        if (text := form.text(field.name))
    }
    limits = form.lines("constraints")
    if limits and form.text("no_constraint"):
        raise InvalidInput(
            "no_constraint: constraints are given, too", hint="leave one of the two empty"
        )
    return StudyDraft(
        devices=form.fields.get("device", ()),
        constraints=limits if limits or form.text("no_constraint") else None,
        who=form.caller.name,
        **requested(given),
    )
