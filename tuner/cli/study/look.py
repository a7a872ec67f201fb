"""`jouletune study list`, `compare`, `show` and `explain`."""

from __future__ import annotations

import shlex
from datetime import datetime, timezone
from typing import Annotated

import typer

from tuner.cli.answers import Answer, Rows
from tuner.cli.asking import Api, with_api
from tuner.cli.options import OfGroup, Since, StudyId
from tuner.cli.study.choosing import of_group
from tuner.core import Unreadable
from tuner.moments import day, when
from tuner.presentation.facts import facts
from tuner.presentation.figures import change, shown
from tuner.presentation.standing import status, waiting
from tuner.presentation.studies import (
    SORTS,
    StudyFilters,
    comparable,
    readable,
    side_by_side,
    titled,
)
from tuner.presentation.texts import believed_rows, refused_rows, requested_metrics, why_not
from tuner.wire import StudyView

COLUMNS = (
    "study", "status", "=device", ">objective", "created", "~best so far", "+=name", "+>trials",
    "+workload", "+policy", "+group", "+reason",
)  # fmt: skip


WhyNot = Annotated[
    list[str] | None,
    typer.Argument(metavar="KNOB=VALUE", help="A setting that was not chosen."),
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
