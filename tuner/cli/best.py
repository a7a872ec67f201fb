"""`jouletune best`: the held or best feasible setting of a study, or its Pareto front."""

from __future__ import annotations

from typing import Annotated

import typer

from tuner.cli.options import AsJson, Db, StudyId, TokenFile, TunerUrl


def best(
    study: StudyId,
    pareto: Annotated[
        bool, typer.Option("--pareto", help="All settings that no other beats in every metric.")
    ] = False,
    tuner: TunerUrl = "",
    token_file: TokenFile = None,
    db: Db = "",
    as_json: AsJson = False,
) -> None:
    """Show the best setting of a study.

    The held one, else the best feasible one measured.
    """
    from tuner.cli.operator_api import open_api
    from tuner.cli.output import echo_json, echo_table
    from tuner.core import Phase, render_setting
    from tuner.presentation.figures import shown
    from tuner.presentation.texts import asked_metrics, described, gained, plan_rows

    with open_api(tuner, token_file, db) as api:
        report = api.report(study)
        view = report.study
        found = list(api.pareto(study)) if pareto else [api.best(study)]
    if as_json:
        echo_json(found if pareto else found[0])
    elif pareto:
        metrics = asked_metrics(view)
        echo_table(
            *(f">{m}" for m in metrics), "verdict", "setting",
            rows=(
                [
                    *(shown(m, f.metrics, view.quantities) for m in metrics),
                    str(f.verdict or "–"),
                    render_setting(f.setting),
                ]
                for f in found
            ),
            nothing=f"study {view.id} has measured nothing yet",
        )  # fmt: skip
    else:
        typer.echo(described(found[0], view))
        if saved := gained(report):
            typer.echo(saved)
        proposed = view.phase is Phase.CONFIRMING
        if view.plan is not None and len(view.plan.rows) > 1 and not proposed:
            for row in plan_rows(view.plan, view.baseline.setting):
                typer.echo(f"  {row}")
