"""The forms with which operators create and change studies."""

from __future__ import annotations

import re
from collections.abc import Callable

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response
from pydantic import ValidationError

from tuner.core import InvalidInput, TuningError, first_fault, request_fields, requested
from tuner.service.http.bodies import BoundedRoute
from tuner.service.http.gate import status_of
from tuner.service.http.sessions import Sessions
from tuner.service.operations import Operations
from tuner.web.render import Pages
from tuner.web.requests import Fields, Form, Posted, read_form
from tuner.wire import (
    Change,
    ConstraintChange,
    ConstraintPreview,
    Decision,
    StudyDraft,
    StudyView,
)


def study_actions(pages: Pages, operations: Operations, sessions: Sessions) -> APIRouter:
    """Return the routes that create and change a study."""
    router = APIRouter(prefix="/studies", route_class=BoundedRoute)

    @router.post("/new")
    def create(request: Request, fields: Posted) -> Response:
        """Create a study from a form, and show its page; after an error the form with its fields."""
        form = read_form(request, fields, sessions)
        try:
            created = operations.create(_draft(form))
        except (TuningError, ValidationError) as error:
            return new_study(pages, request, operations, form.fields, error)
        return RedirectResponse(f"/studies/{created.id}", status_code=303)

    verbs: dict[str, Callable[[str, Form], StudyView]] = {
        "pause": lambda study, form: operations.pause(study, _change(form)),
        "resume": lambda study, form: operations.resume(study, _change(form)),
        "stop": lambda study, form: operations.stop(study, _change(form)),
        "approve": lambda study, form: operations.approve(study, _decision(form)),
        "reject": lambda study, form: operations.reject(study, _decision(form)),
    }
    for name, verb in verbs.items():
        router.add_api_route(f"/{{study}}/{name}", _doing(verb, sessions), methods=["POST"])

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
    def change(request: Request, study: str, fields: Posted) -> Response:
        """Preview the effect of other constraints; set them if the form's field `do` is `set`."""
        form = read_form(request, fields, sessions)
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


def _doing(verb: Callable[[str, Form], StudyView], sessions: Sessions) -> Callable[..., object]:
    """Return a route's function that applies a verb to a study and then shows the study's page."""

    def act(request: Request, study: str, fields: Posted) -> Response:
        verb(study, read_form(request, fields, sessions))
        return RedirectResponse(f"/studies/{study}", status_code=303)

    return act


def _change(form: Form) -> Change:
    """Return the caller and the reason of a change."""
    return Change(who=form.caller.name, why=form.text("why"))


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
