"""`jouletune study`: create, list, show, pause, resume, stop and delete studies."""

from __future__ import annotations

import getpass
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.options import (
    CONSTRAINT,
    AsJson,
    Db,
    NoConstraint,
    SafetyName,
    StudyId,
    TokenFile,
    TunerUrl,
    Why,
    wished,
)
from tuner.cli.watching import Watch, looks

if TYPE_CHECKING:
    from tuner.core import Knob, Value
    from tuner.verbs.table import Verbs
    from tuner.wire import StudyView

Revision = Annotated[
    int | None,
    typer.Option(
        metavar="N", help="Only what this revision proposes, as `study show` told it; else refuse."
    ),
]

commands = typer.Typer()


@commands.command()
def create(
    device: Annotated[
        list[str], typer.Option(metavar="ID", help="A device to tune; repeat for several alike.")
    ],
    objective: Annotated[
        str,
        typer.Option(
            metavar="METRIC",
            help='Metric to optimise ("minimize METRIC" where its direction is unknown); else energy, or '
            "CPU time without a meter.",
            show_default=False,
        ),
    ] = "",
    constraint: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help=CONSTRAINT),
    ] = None,
    no_constraint: NoConstraint = False,
    policy: Annotated[str, typer.Option(help="The search policy.")] = "polythrottle",
    trials: Annotated[int, typer.Option(help="How many settings to try.")] = 20,
    window: Annotated[float, typer.Option(metavar="SECONDS", help="Length of a window.")] = 10.0,
    max_window: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            help="Longest window, where a tail needs more requests; 0: six windows.",
        ),
    ] = 0.0,
    seed: Annotated[int, typer.Option(help="Same seed, same suggestions.")] = 0,
    choose: Annotated[
        list[str] | None,
        typer.Option(metavar="KNOB=V1,V2,…", help="Try only these values of a knob; repeatable."),
    ] = None,
    allow_estimated: Annotated[
        bool, typer.Option("--allow-estimated", help="Tune on estimates where nothing is measured.")
    ] = False,
    safety: Annotated[
        SafetyName,
        typer.Option(help="Safety margin to the limits; advise: balanced, held after your yes."),
    ] = "balanced",
    canary: Annotated[
        str,
        typer.Option(
            metavar="ID",
            help="One of the devices: a plan is held on it first, alone, to be proven.",
        ),
    ] = "",
    no_restart: Annotated[
        bool, typer.Option("--no-restart", help="Do not change knobs that restart the workload.")
    ] = False,
    control_share: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            help="Measure the baseline again in this share of a hold's windows; 0.02 is one in 50.",
        ),
    ] = 0.0,
    tuner: TunerUrl = "",
    token_file: TokenFile = None,
    db: Db = "",
    as_json: AsJson = False,
) -> None:
    """Create a study; the tuner starts it at once.

    What is left open is chosen as by `jouletune run`. What saves energy may cost latency or throughput: say
    with --constraint what has to be kept.
    """
    from tuner.cli.operator_api import open_api
    from tuner.core import Safety, Terms
    from tuner.wire import StudyDraft

    terms = Terms(
        trials=trials,
        window_s=window,
        max_window_s=max_window,
        allow_estimated=allow_estimated,
        allow_restart=not no_restart,
        safety=Safety(safety),
        canary=canary,
        control_share=control_share,
    )
    wishes = wished(constraint, no_constraint)
    with open_api(tuner, token_file, db) as api:
        draft = StudyDraft(
            devices=tuple(device),
            objective=objective,
            constraints=wishes,
            policy=policy,
            seed=seed,
            terms=terms,
            choices=_choices(api, device, choose or []),
            who=getpass.getuser(),
        )
        view = api.create(draft)
    for text in _cautions(view, chosen=wishes is None):
        typer.echo(text, err=True)
    _say(view, as_json, f"study {view.id} created: {_asked(view)}")


def _asked(view: StudyView) -> str:
    from tuner.presentation.figures import joined

    return f"{view.objective} under {joined(view.constraints, 'no constraint')}"


def _cautions(view: StudyView, *, chosen: bool) -> Iterator[str]:
    """Yield what an operator should know before the study ends."""
    from tuner.core import CAPACITY, called
    from tuner.presentation.figures import joined
    from tuner.presentation.standing import standing
    from tuner.presentation.texts import asked_metrics

    if chosen and view.constraints:
        yield f"no --constraint was given, so it is {joined(view.constraints)}"
    capacity = called(CAPACITY, view.quantities)
    if capacity in view.quantities and capacity not in asked_metrics(view):
        yield f'what saves may cost {capacity}; --constraint "{capacity} >= 0.95x baseline" keeps it'
    if view.offline or view.unable or view.stopped:
        yield f"it waits: {standing(view)}"


@commands.command("list")
def list_(
    watch: Watch = False,
    tuner: TunerUrl = "",
    token_file: TokenFile = None,
    db: Db = "",
    as_json: AsJson = False,
) -> None:
    """List all studies, oldest first."""
    from tuner.cli.operator_api import open_api
    from tuner.cli.output import echo_json, echo_table
    from tuner.presentation.figures import change, joined, shown
    from tuner.presentation.standing import standing

    with open_api(tuner, token_file, db) as api:
        for _ in looks(api, watch):
            views = api.studies()
            if as_json:
                echo_json(views)
                continue
            echo_table(
                "study", "device", "workload", "policy", "phase", ">trials", "objective", "best so far",
                rows=(
                    (
                        v.id,
                        joined(v.devices),
                        v.workload,
                        v.policy,
                        standing(v),
                        str(sum(v.trials.values())),
                        shown(_metric(v), v.best.metrics, v.quantities) if v.best else "–",
                        change(v.best.setting, v.baseline.setting) if v.best else "–",
                    )
                    for v in views
                ),
                nothing="no studies yet; create one with `jouletune study create`",
            )  # fmt: skip


@commands.command()
def show(
    study: StudyId,
    tuner: TunerUrl = "",
    token_file: TokenFile = None,
    db: Db = "",
    as_json: AsJson = False,
) -> None:
    """Show one study.

    What is asked, where it stands, its baseline, its best, what that saves and what finding it cost.
    """
    from tuner.cli.operator_api import open_api
    from tuner.cli.output import echo_json
    from tuner.presentation.facts import facts
    from tuner.presentation.figures import when

    with open_api(tuner, token_file, db) as api:
        report = api.report(study)
        revisions = api.revisions(study)
    if as_json:
        found = {"study": report.study, "saving": report.saving, "bill": report.bill}
        echo_json({**found, "revisions": revisions})
        return
    for name, text in facts(report):
        typer.echo(f"{name:<12}{text}")
    typer.echo("revisions")
    for r in revisions:
        typer.echo(f"  {r.revision:>3}  {when(r.at)}  {r.who}: {r.phase}, {r.why}")


@commands.command()
def pause(
    study: StudyId,
    why: Why = "",
    tuner: TunerUrl = "",
    token_file: TokenFile = None,
    db: Db = "",
    as_json: AsJson = False,
) -> None:
    """Stop trying until `resume`.

    The devices go back to their original settings.
    """
    from tuner.cli.operator_api import open_api
    from tuner.wire import Change

    with open_api(tuner, token_file, db) as api:
        before = api.study(study)
        view = api.pause(study, Change(who=getpass.getuser(), why=why))
    how = "was paused already" if view.revision == before.revision else "is paused"
    _say(view, as_json, f"study {view.id} {how}; go on with `jouletune study resume {view.id}`")


@commands.command()
def resume(
    study: StudyId,
    why: Why = "",
    tuner: TunerUrl = "",
    token_file: TokenFile = None,
    db: Db = "",
    as_json: AsJson = False,
) -> None:
    """Go on where a paused study was."""
    from tuner.cli.operator_api import open_api
    from tuner.wire import Change

    with open_api(tuner, token_file, db) as api:
        before = api.study(study)
        view = api.resume(study, Change(who=getpass.getuser(), why=why))
    again = f"was not paused: it is {view.phase}"
    how = again if view.revision == before.revision else f"is {view.phase} again"
    _say(view, as_json, f"study {view.id} {how}")


@commands.command()
def stop(
    study: StudyId,
    why: Why = "",
    tuner: TunerUrl = "",
    token_file: TokenFile = None,
    db: Db = "",
    as_json: AsJson = False,
) -> None:
    """End a study for good.

    Its devices go back to their original settings and are free.
    """
    from tuner.cli.operator_api import open_api
    from tuner.wire import Change

    with open_api(tuner, token_file, db) as api:
        before = api.study(study)
        view = api.stop(study, Change(who=getpass.getuser(), why=why))
    how = "was stopped already" if view.revision == before.revision else "is stopped"
    _say(view, as_json, f"study {view.id} {how}; its history stays")


@commands.command()
def approve(
    study: StudyId,
    why: Why = "",
    revision: Revision = None,
    tuner: TunerUrl = "",
    token_file: TokenFile = None,
    db: Db = "",
    as_json: AsJson = False,
) -> None:
    """Hold what a study with `--safety advise` proposes."""
    from tuner.cli.operator_api import open_api
    from tuner.study.advice import plan_in_words
    from tuner.wire import Decision

    with open_api(tuner, token_file, db) as api:
        view = api.approve(study, Decision(who=getpass.getuser(), why=why, revision=revision))
    held = plan_in_words(view.plan) if view.plan else "nothing"
    _say(view, as_json, f"study {view.id} is {view.phase}: {held}")


@commands.command()
def reject(
    study: StudyId,
    why: Why = "",
    revision: Revision = None,
    tuner: TunerUrl = "",
    token_file: TokenFile = None,
    db: Db = "",
    as_json: AsJson = False,
) -> None:
    """End a study whose proposal is not wanted.

    To have it search on, change what it is to keep: `constraint set`.
    """
    from tuner.cli.operator_api import open_api
    from tuner.wire import Decision

    with open_api(tuner, token_file, db) as api:
        view = api.reject(study, Decision(who=getpass.getuser(), why=why, revision=revision))
    _say(view, as_json, f"study {view.id} is stopped, nothing is held; its history stays")


@commands.command()
def explain(
    study: StudyId,
    tuner: TunerUrl = "",
    token_file: TokenFile = None,
    db: Db = "",
    as_json: AsJson = False,
) -> None:
    """Show what a study's policy believes each knob does, and what it does not try."""
    from tuner.cli.operator_api import open_api
    from tuner.cli.output import echo_json, echo_table
    from tuner.presentation.texts import believed_rows

    with open_api(tuner, token_file, db) as api:
        told = api.explain(study)
    if as_json:
        echo_json(told)
        return
    typer.echo(f"{told.policy}: {told.explanation.text}")
    if told.explained:
        metrics = (f">{metric}" for metric in told.metrics)
        echo_table(
            "setting", *metrics, ">keeps every limit", "remark",
            rows=believed_rows(told), nothing="nothing is believed before the baseline is measured",
        )  # fmt: skip


@commands.command()
def delete(
    study: StudyId,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    tuner: TunerUrl = "",
    token_file: TokenFile = None,
    db: Db = "",
) -> None:
    """Remove a stopped study and what it measured."""
    from tuner.cli.operator_api import open_api
    from tuner.wire import Change

    with open_api(tuner, token_file, db) as api:
        view = api.study(study)
        if not yes:
            count = sum(view.trials.values())
            typer.confirm(f"delete study {view.id} and its {count} trials?", abort=True, err=True)
        api.delete(view.id, Change(who=getpass.getuser()))
    typer.echo(f"study {view.id} and its {sum(view.trials.values())} trials are deleted")


def _metric(view: StudyView) -> str:
    return view.objective.rpartition(" ")[2]


def _say(view: StudyView, as_json: bool, text: str) -> None:
    from tuner.cli.output import echo_json

    if as_json:
        echo_json(view)
    else:
        typer.echo(text)


def _choices(
    api: Verbs[StudyView], devices: Sequence[str], texts: Sequence[str]
) -> dict[str, tuple[Value, ...]]:
    """Return `KNOB=V1,V2` texts as the knobs' own values."""
    if not texts:
        return {}
    from tuner.core import InvalidInput

    space = next((d.device.space for d in api.devices() if d.device.id in devices), None)
    if space is None:
        return {}  # creating will say that the device is not registered
    chosen: dict[str, tuple[Value, ...]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals or not values:
            raise InvalidInput(f"cannot read the choice {text!r}", hint="write KNOB=VALUE,VALUE")
        knob = space.knob(name)
        chosen[name] = tuple(_value(knob, value) for value in values.split(","))
    return chosen


def _value(knob: Knob, text: str) -> Value:
    """Return the knob's value that is written so."""
    spelled: Mapping[str, Value] = {str(value): value for value in knob.values}
    return spelled[text] if text in spelled else knob.values[knob.index(text)]
