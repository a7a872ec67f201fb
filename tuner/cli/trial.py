"""`jouletune trial list`: every trial of a study with its verdict as of now."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import typer

from tuner.cli.options import AsJson, Db, StudyId, TokenFile, TunerUrl

if TYPE_CHECKING:
    from tuner.core import Plan, Setting
    from tuner.wire import SettingView, StudyView, TrialView

commands = typer.Typer(help="List the trials of a study.")


@commands.callback()
def nouns() -> None:
    """List the trials of a study."""


@commands.command("list")
def list_(
    study: StudyId,
    tuner: TunerUrl = "",
    token_file: TokenFile = None,
    db: Db = "",
    as_json: AsJson = False,
) -> None:
    """List every trial of a study, with its verdict under today's constraints."""
    from tuner.cli.desk import open_desk
    from tuner.cli.output import echo_json, echo_table

    with open_desk(tuner, token_file, db) as desk:
        view = desk.study(study)
        trials = desk.trials(study)
    if as_json:
        echo_json(trials)
        return
    metrics = asked_metrics(view)
    echo_table(
        ">#", "phase", "state", "verdict", *(f">{m}" for m in metrics), "setting", "remark",
        rows=(row(t, view, metrics) for t in trials),
        nothing=f"study {study} has no trials yet",
    )  # fmt: skip


def asked_metrics(view: StudyView) -> list[str]:
    """Return the metrics a study asks for: the objective's first, then the constraints'."""
    names = [view.objective.rpartition(" ")[2], *(c.split()[0] for c in view.constraints)]
    return list(dict.fromkeys(names))


def row(trial: TrialView, view: StudyView, metrics: Sequence[str]) -> list[str]:
    """Return a trial as a row: number, phase, state, verdict, its metrics, setting, remark."""
    from tuner.cli.figures import change, shown

    return [
        str(trial.number),
        str(trial.phase),
        f"{trial.state}, cut short" if trial.censored else str(trial.state),
        str(trial.verdict) if trial.verdict else "–",
        *(shown(m, trial.metrics) for m in metrics),
        change(trial.setting, view.baseline.setting),
        remark(trial),
    ]


def remark(trial: TrialView) -> str:
    """Return what qualifies a trial: why it ended so, and whether the device throttled."""
    throttled = f"throttled: {', '.join(trial.throttled)}" if trial.throttled else ""
    return "; ".join(text for text in (trial.reason, throttled) if text)


def described(found: SettingView, view: StudyView) -> str:
    """Return a setting with what it showed of the metrics asked for, in one line."""
    from tuner.cli.figures import shown
    from tuner.core import render_setting

    metrics = [f"{m} {shown(m, found.metrics)}" for m in asked_metrics(view) if m in found.metrics]
    numbers = ", ".join(metrics) or "not measured yet"
    return f"{render_setting(found.setting)}: {numbers} ({found.windows} windows)"


def plan_rows(plan: Plan, baseline: Setting) -> Iterator[str]:
    """Yield the rows of a plan that chooses by a quantity: from where to where, which setting."""
    from tuner.cli.figures import change

    lower = 0.0
    for row in plan.rows:
        span = f"{lower:g} to {row.below:g}" if row is not plan.rows[-1] else f"from {lower:g} on"
        if lower == 0.0:
            span = f"below {row.below:g}"
        yield f"{plan.by} {span}: {change(row.setting, baseline)}"
        lower = row.below
