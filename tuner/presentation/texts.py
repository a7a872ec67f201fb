"""Studies and trials as text, wherever they are shown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tuner.core import CAPACITY, Plan, Setting, Verdict, called, capacity_beside, render_setting
from tuner.presentation.figures import THE_BASELINE, change, duration, percent, shown
from tuner.study.moves import in_words
from tuner.wire import SettingView, StudyReport, StudyView, TrialView


def asked_metrics(view: StudyView) -> list[str]:
    """Return the metrics a study asks for: the objective's first, then the constraints'."""
    names = [view.objective.rpartition(" ")[2], *(c.split()[0] for c in view.constraints)]
    return list(dict.fromkeys(names))


def row(trial: TrialView, view: StudyView, metrics: Sequence[str]) -> list[str]:
    """Return a trial as a row: number, phase, state, verdict, its metrics, setting, remark."""
    return [
        str(trial.number),
        str(trial.phase),
        f"{trial.state}, cut short" if trial.censored else str(trial.state),
        str(trial.verdict) if trial.verdict else "–",
        *(shown(m, trial.metrics, view.quantities) for m in metrics),
        change(trial.setting, view.baseline.setting),
        remark(trial),
    ]


def remark(trial: TrialView) -> str:
    """Return what qualifies a trial: why it ended so, and whether the device throttled."""
    throttled = f"throttled: {', '.join(trial.throttled)}" if trial.throttled else ""
    return "; ".join(text for text in (trial.reason, throttled) if text)


def described(found: SettingView, view: StudyView) -> str:
    """Return a setting with what it showed of the metrics asked for, in one line."""
    has, known = found.metrics, view.quantities
    metrics = [f"{m} {shown(m, has, known)}" for m in asked_metrics(view) if m in has]
    numbers = ", ".join(metrics) or "not measured yet"
    doubt = "" if found.verdict in (None, Verdict.FEASIBLE) else f", {found.verdict}"
    windows = f"{found.windows} window{'' if found.windows == 1 else 's'}"
    return f"{render_setting(found.setting)}: {numbers} ({windows}{doubt})"


def gained(report: StudyReport) -> str:
    """Return what the best so far saves of the objective, or costs more, as a limit may ask for.

    With what became of the workload's capacity in the same line. Nothing where that is the baseline.
    """
    view, gain = report.study, report.saving
    if view.best is None or gain is None:
        return ""
    if change(view.best.setting, view.baseline.setting) == THE_BASELINE:
        return ""
    how = "in alternating windows" if report.alternating else "over all windows"
    metric = asked_metrics(view)[0]
    beside = capacity(report)
    if report.baseline_shift is not None:
        how = "counted from what the baseline shows now"
        beside = f"{beside}; {report.baseline_shift.in_words(metric)}"
    if gain.mean < 0.0:
        return f"costs {percent(-gain.mean, gain.stderr)} more {metric}, {how}{beside}"
    return f"saves {percent(gain.mean, gain.stderr)} of {metric}, {how}{beside}"


def capacity(report: StudyReport) -> str:
    """Return a clause, after its semicolon, with what became of the capacity beside a saving."""
    asked, known = asked_metrics(report.study), report.study.quantities
    if asked[0] == called(CAPACITY, known) or report.best is None:
        return ""
    return f"; {capacity_beside(report.baseline.metrics, report.best.metrics, asked, known)}"


def broken(view: StudyView) -> str:
    """Return how often, and for how long, what was tried broke a limit."""
    found = view.violations
    if not view.constraints:
        return "no limit was set"
    if found.rate is None:
        return "only the baseline was measured"
    lasting = f", for {duration(found.seconds)} in all" if found.broken else ""
    of = f"{found.broken} of {found.tried} windows at other settings than the baseline"
    return f"{of} break the limits in force ({percent(found.rate)}){lasting}"


def plan_rows(plan: Plan, baseline: Setting) -> Iterator[str]:
    """Yield the rows of a plan: its setting, or from where to where of its quantity which setting."""
    if len(plan.rows) == 1:
        yield change(plan.rows[0].setting, baseline)
        return
    lower = 0.0
    for row in plan.rows:
        span = f"{lower:g} to {row.below:g}" if row is not plan.rows[-1] else f"from {lower:g} on"
        if lower == 0.0:
            span = f"below {row.below:g}"
        yield f"{plan.by} {span}: {change(row.setting, baseline)}"
        lower = row.below


def line(trial: TrialView, view: StudyView) -> str:
    """Return an ended trial in one line."""
    has, known = trial.metrics, view.quantities
    numbers = [f"{m} {shown(m, has, known)}" for m in asked_metrics(view) if m in has]
    parts = [
        f"trial {trial.number} {trial.state}",
        change(trial.setting, view.baseline.setting),
        *([f"at {in_words(trial.context)}"] if trial.context else []),
        *numbers,
    ]
    if trial.verdict is not None:
        parts.append(str(trial.verdict))
    if note := remark(trial):
        parts.append(note)
    return ", ".join(parts)
