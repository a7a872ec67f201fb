"""`jouletune study create`: a study from options."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

import typer

from tuner.cli.answers import Answer
from tuner.cli.asking import Api, with_api
from tuner.cli.conditions import parted
from tuner.cli.options import (
    CONSTRAINT,
    OBJECTIVE,
    POLICY,
    NoConstraint,
    SafetyName,
    user_name,
    wished,
)
from tuner.core import CAPACITY, InvalidInput, Knob, Safety, Terms, Value, called
from tuner.presentation.figures import joined
from tuner.presentation.standing import standing
from tuner.presentation.texts import requested_metrics
from tuner.wire import StudyDraft, StudyView


@with_api()
def create(
    api: Api,
    device: Annotated[
        list[str],
        typer.Option(metavar="ID", help="A device to tune; repeatable for identical devices."),
    ],
    objective: Annotated[
        str,
        typer.Option(
            metavar="METRIC",
            help=OBJECTIVE,
            show_default=False,
        ),
    ] = "",
    second_objective: Annotated[
        str,
        typer.Option(
            metavar="METRIC",
            help="With --policy pareto: search the trade-off of both objectives.",
            show_default=False,
        ),
    ] = "",
    constraint: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help=CONSTRAINT),
    ] = None,
    no_constraint: NoConstraint = False,
    policy: Annotated[str, typer.Option(metavar="NAME", help=POLICY)] = "polythrottle",
    trials: Annotated[int, typer.Option(help="Maximum number of trials.")] = 20,
    window: Annotated[
        float, typer.Option(metavar="SECONDS", help="Length of a measurement window.")
    ] = 10.0,
    max_window: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            help="Longest window, for tail latencies that need more requests. 0 is 6 x --window; with "
            "--plan-by this value grows to 60 x --window where few requests arrive.",
        ),
    ] = 0.0,
    seed: Annotated[int, typer.Option(help="Same seed, same suggestions.")] = 0,
    choose: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KNOB=V1,V2,…",
            help="Try only these values of a knob. With a condition: prefetch=2,4 if workers > 0. "
            "Repeatable.",
        ),
    ] = None,
    allow_estimated: Annotated[
        bool,
        typer.Option("--allow-estimated", help="Accept estimated metrics that are not measured."),
    ] = False,
    safety: Annotated[
        SafetyName,
        typer.Option(
            help="Safety margin to the limits; advise: balanced, and holds only after approval."
        ),
    ] = "balanced",
    canary: Annotated[
        str,
        typer.Option(
            metavar="ID",
            help="Hold a plan on this device only, until its windows confirm it.",
        ),
    ] = "",
    no_restart: Annotated[
        bool, typer.Option("--no-restart", help="Leave out knobs that restart the workload.")
    ] = False,
    control_share: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            help="Share of a hold's windows that measure the baseline again; 0.02 is one in 50.",
        ),
    ] = 0.0,
    plan_by: Annotated[
        str,
        typer.Option(
            metavar="SIGNAL",
            help="Follow this signal: give each range of the load its own setting if that saves energy.",
        ),
    ] = "",
    no_transfer: Annotated[
        bool,
        typer.Option("--no-transfer", help="Ignore finished studies of like devices."),
    ] = False,
) -> Answer:
    """Create a study; the tuner starts it at once.

    Defaults are those of `jouletune run`. Saving energy may cost latency or throughput: give a limit for
    each with --constraint.
    """
    terms = Terms(
        trials=trials,
        window_s=window,
        max_window_s=max_window,
        allow_estimated=allow_estimated,
        allow_restart=not no_restart,
        safety=Safety(safety),
        canary=canary,
        control_share=control_share,
        plan_by=plan_by,
        transfer=not no_transfer,
    )
    wishes = wished(constraint, no_constraint)
    pairs = [parted(text) for text in choose or []]
    draft = StudyDraft(
        devices=tuple(device),
        objective=objective,
        second_objective=second_objective,
        constraints=wishes,
        policy=policy,
        seed=seed,
        terms=terms,
        choices=_choices(api, device, [text for text, _ in pairs]),
        conditions={text.partition("=")[0]: str(when) for text, when in pairs if when},
        who=user_name(),
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
        chosen[name] = tuple(_value(knob, value) for value in values.split(","))
    return chosen


def _value(knob: Knob, text: str) -> Value:
    """Return the knob's value with this text."""
    spelled: Mapping[str, Value] = {str(value): value for value in knob.values}
    return spelled[text] if text in spelled else knob.values[knob.index(text)]
