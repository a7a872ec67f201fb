"""`jouletune study list`, `compare`, `show` and `explain`."""

from __future__ import annotations

import shlex
from datetime import datetime, timezone
from typing import Annotated, Literal

import typer

from tuner.cli.answers import Answer, Rows
from tuner.cli.asking import Api, with_api
from tuner.cli.options import OfGroup, Since, StudyId
from tuner.cli.study.choosing import of_group
from tuner.core import Conflict, NotFound, Phase, Unreadable, render_setting
from tuner.moments import day, when
from tuner.presentation.figures import change, shown
from tuner.presentation.reports import facts
from tuner.presentation.setting_files import ReviewedSetting, SettingForm, setting_file
from tuner.presentation.standing import status, waiting
from tuner.presentation.studies import (
    SORTS,
    StudyFilters,
    comparable,
    readable,
    side_by_side,
    titled,
)
from tuner.presentation.texts import (
    believed_rows,
    described,
    gained,
    plan_rows,
    refused_rows,
    requested_metrics,
    why_not,
)
from tuner.wire import StudyView

COLUMNS = (
    "study", "status", "=device", ">objective", "created", "~best so far", "+=name", "+>trials",
    "+workload", "+policy", "+group", "+reason",
)  # fmt: skip


WhyNot = Annotated[
    list[str] | None, typer.Argument(metavar="KNOB=VALUE", help="A setting that was not chosen.")
]


@with_api(watch=True, lists=True)
def list_(
    api: Api,
    find: Annotated[
        str, typer.Option("--find", metavar="TEXT", help="Only with these words.")
    ] = "",
    phase: Annotated[
        str, typer.Option("--phase", metavar="PHASE", help="Only in this phase.")
    ] = "",
    device: Annotated[
        str, typer.Option("--device", metavar="ID", help="Only of this device.")
    ] = "",
    since: Since = "",
    sort: Annotated[
        str, typer.Option("--sort", metavar="ORDER", help=f"{', '.join(SORTS)}.")
    ] = "newest",
    group: OfGroup = "",
) -> Answer:
    """List studies, active and newest first, one a line."""
    views = of_group(api.studies(), group)
    filters = StudyFilters(find=find, phase=phase, device=device, since=since, sort=sort)
    matches = filters.of(views, datetime.now(timezone.utc))
    nothing = "no studies yet; create one with `jouletune study create`"
    nothing = "no study matches the filters" if views else nothing
    return Answer(matches, Rows(COLUMNS, map(_row, matches), nothing))


@with_api(lists=True)
def compare(api: Api, studies: Annotated[list[str], typer.Argument(metavar="STUDY...")]) -> Answer:
    """Show two to four studies side by side: status, saving, setting, metrics and limits."""
    sides = [readable(api.report, study) for study in comparable(studies)]
    value = [{"error": str(side)} if isinstance(side, Unreadable) else side for side in sides]
    columns = ("fact", *(f"!{study}" for study in studies))
    return Answer(value, Rows(columns, side_by_side(sides), ""))


def _row(view: StudyView) -> tuple[str, ...]:
    """Return a study in `COLUMNS`."""
    first, *others = view.devices
    best = view.best
    return (
        view.id,
        status(view),
        f"{first} +{len(others)}" if others else first,
        shown(requested_metrics(view)[0], best.metrics, view.quantities) if best else "–",
        day(view.created_at),
        change(best.setting, view.baseline.setting) if best else "–",
        titled(view),
        str(sum(view.trials.values())),
        view.workload,
        view.policy,
        view.group or "–",
        view.error or view.unable or waiting(view) or view.phase_why,
    )


@with_api()
def show(api: Api, study: StudyId) -> Answer:
    """Show one study: status, baseline, best setting, saving and cost of exploring."""
    report, revisions = api.report(study), api.revisions(study)
    sections = {"study": report.study, "saving": report.saving, "bill": report.bill}
    lines = [f"{name:<12}{text}" for name, text in facts(report)]
    lines.append("revisions")
    lines += [f"  {r.revision:>3}  {when(r.at)}  {r.who}: {r.phase}, {r.why}" for r in revisions]
    return Answer({**sections, "revisions": revisions}, lines)


@with_api()
def explain(api: Api, study: StudyId, setting: WhyNot = None) -> Answer:
    """Show the predicted effect of each knob, settings that are not tried, and related metrics.

    `chance` is that of keeping every limit. With KNOB=VALUE: why that setting was not chosen; other
    knobs are as in the best one.
    """
    beliefs = api.explain(study, shlex.join(setting or []) or None)
    lines: list[str | Rows] = [*why_not(beliefs), f"{beliefs.policy}: {beliefs.explanation.text}"]
    if beliefs.explained and not setting:
        columns = ("setting", *(f">{metric}" for metric in beliefs.metrics), ">chance", "!remark")
        nothing = "no predictions before the baseline is measured"
        lines.append(Rows(columns, believed_rows(beliefs), nothing))
        if beliefs.explanation.refused:
            lines += ["predicted to be better, but not tried:"]
            lines.append(Rows(columns, refused_rows(beliefs), ""))
    if beliefs.correlations and not setting:
        each = ", ".join(f"{name} {value:+.2f}" for name, value in beliefs.correlations.items())
        lines.append(f"rank correlation with {beliefs.metrics[0]} over the trials: {each}")
    return Answer(beliefs, lines)


@with_api()
def best(
    api: Api,
    study: StudyId,
    pareto: Annotated[
        bool,
        typer.Option(
            "--pareto",
            help="The Pareto front: settings that no other setting beats in every metric.",
        ),
    ] = False,
) -> Answer:
    """Show the best setting of a study: the held one, else the best feasible one measured."""
    report = api.report(study)
    view = report.study
    if pareto:
        front, metrics = api.pareto(study), requested_metrics(view)
        rows = (
            [
                *(shown(m, f.metrics, view.quantities) for m in metrics),
                str(f.verdict or "–"),
                render_setting(f.setting),
            ]
            for f in front
        )
        columns = (*(f">{m}" for m in metrics), "verdict", "setting")
        return Answer(front, Rows(columns, rows, f"study {view.id} has no measurements yet"))
    best_setting = api.best(study)
    lines = [described(best_setting, view)]
    if saved := gained(report):
        lines.append(saved)
    if view.plan is not None and len(view.plan.rows) > 1 and view.phase is not Phase.CONFIRMING:
        lines += [f"  {row}" for row in plan_rows(view.plan, view.baseline.setting)]
    return Answer(best_setting, lines)


CHOSEN = (Phase.HOLDING, Phase.CANARY, Phase.PROPOSED)


@with_api()
def setting(
    api: Api,
    study: StudyId,
    kind: Annotated[
        SettingForm,
        typer.Option(
            "--as",
            help="shell, systemd (a unit), nvidia-smi, compose, helm-values (environment variables), json.",
        ),
    ] = SettingForm.SHELL,
    part: Annotated[
        Literal["", "device", "workload"],
        typer.Option(metavar="PART", help="Only the knobs of the device, or of the workload."),
    ] = "",
    device: Annotated[
        str, typer.Option(metavar="ID", help="Only this device of the study; default: all.")
    ] = "",
) -> Answer:
    """Print the held or proposed setting as commands or a patch, with the reason and the way back.

    A knob that the form cannot express is refused by its name.
    """
    report = api.report(study)
    view = report.study
    if view.plan is None or view.phase not in CHOSEN:
        raise Conflict(
            f"study {view.id} is {view.phase} and holds or proposes no setting",
            hint=f"wait for it: `jouletune study wait {view.id}`",
        )
    if len(view.plan.rows) > 1:
        raise Conflict(
            f"study {view.id} holds a plan of {len(view.plan.rows)} rows by load",
            hint="a file has one setting; `jouletune best --json` has the plan",
        )
    devices = {one.device.id: one.device for one in api.devices()}
    first = devices[view.devices[0]]
    if device and device not in view.devices:
        raise NotFound(f"study {view.id} has no device {device}", hint=", ".join(view.devices))
    held = view.plan.rows[0].setting
    knobs = [k for k in first.space.knobs if part in ("", k.part) and k.name in held]
    chosen = {k.name: held[k.name] for k in knobs}
    baseline = {k.name: view.baseline.setting[k.name] for k in knobs}
    if chosen == baseline:
        what = f"the {part}'s part of the baseline" if part else "the baseline"
        raise Conflict(
            f"study {view.id} holds {what}, so there is nothing to set", hint=view.phase_why
        )
    verb = "proposed" if view.phase is Phase.PROPOSED else "held"
    remarks = [
        f"jouletune study {view.id}, {verb} since {when(api.revisions(study)[-1].at)}",
        f"reason: {view.phase_why}",
        gained(report) or "saving: not measured",
        f"limits: {', '.join(view.constraints) or 'none'}",
        f"measured on: {', '.join(view.devices)} ({first.board})",
    ]
    file = ReviewedSetting(
        chosen, baseline, [device] if device else view.devices, knobs, view.workload, remarks
    )
    text = setting_file(file, kind)
    return Answer(
        {"form": kind, "text": text, "setting": chosen, "baseline": baseline}, text.rstrip()
    )
