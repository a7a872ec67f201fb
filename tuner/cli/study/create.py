"""`jouletune study create`: a study from options."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer

from tuner.cli.answers import Answer
from tuner.cli.asking import Api, with_api
from tuner.cli.options import (
    Constraints,
    NoConstraint,
    parted,
    request_options,
    user_name,
    wished,
)
from tuner.core import CAPACITY, InvalidInput, Value, called, requested
from tuner.presentation.figures import joined
from tuner.presentation.standing import standing
from tuner.presentation.texts import requested_metrics
from tuner.wire import StudyDraft, StudyView


@with_api(*request_options())
def create(
    api: Api,
    device: Annotated[
        list[str],
        typer.Option(metavar="ID", help="A device to tune; repeatable for identical devices."),
    ],
    constraint: Constraints = None,
    no_constraint: NoConstraint = False,
    choose: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KNOB=V1,V2,…",
            help="Try only these values of a knob. With a condition: prefetch=2,4 if workers > 0. "
            "Repeatable.",
        ),
    ] = None,
    **given: Any,  # noqa: ANN401  of request_options
) -> Answer:
    """Create a study; the tuner starts it at once.

    Defaults are those of `jouletune run`. Saving energy may cost latency or throughput: give a limit for
    each with --constraint.
    """
    wishes = wished(constraint, no_constraint)
    pairs = [parted(text) for text in choose or []]
    draft = StudyDraft(
        devices=tuple(device),
        constraints=wishes,
        choices=_choices(api, device, [text for text, _ in pairs]),
        conditions={text.partition("=")[0]: str(when) for text, when in pairs if when},
        who=user_name(),
        **requested(given),
    )
    view = api.create(draft)
    for text in _cautions(view, chosen=wishes is None):
        typer.echo(text, err=True)
    constraints = joined(view.constraints, "no constraint")
    return Answer(view, f"study {view.id} created: {view.objective} under {constraints}")


def _cautions(view: StudyView, *, chosen: bool) -> Iterator[str]:
    """Yield notes for the operator: a default constraint, an unlimited capacity, a study that waits."""
    if chosen and view.constraints:
        yield f"no --constraint was given; the default is {joined(view.constraints)}"
    capacity = called(CAPACITY, view.quantities)
    if capacity in view.quantities and capacity not in requested_metrics(view):
        yield f'saving energy may cost {capacity}; --constraint "{capacity} >= 0.95x baseline" keeps it'
    if view.offline or view.unable or view.stopped:
        yield f"it is waiting: {standing(view)}"


def _choices(
    api: Api, devices: Sequence[str], texts: Sequence[str]
) -> dict[str, tuple[Value, ...]]:
    """Return the values of `KNOB=V1,V2` texts in the knobs' types."""
    if not texts:
        return {}
    space = next((d.device.space for d in api.devices() if d.device.id in devices), None)
    if space is None:
        return {}  # `create` refuses a device that is not registered
    chosen: dict[str, tuple[Value, ...]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals or not values:
            raise InvalidInput(f"cannot read the values {text!r}", hint="write KNOB=VALUE,VALUE")
        knob = space.knob(name)
        chosen[name] = tuple(knob.spelled(value) for value in values.split(","))
    return chosen
