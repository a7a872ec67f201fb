"""`jouletune best`: the held or best feasible setting of a study, or its Pareto front."""

from __future__ import annotations

from typing import Annotated

import typer

from tuner.cli.answers import Answer, Rows
from tuner.cli.asking import Api, with_api
from tuner.cli.options import StudyId
from tuner.core import Phase, render_setting
from tuner.presentation.figures import shown
from tuner.presentation.texts import described, gained, plan_rows, requested_metrics


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
