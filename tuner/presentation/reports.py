"""The report of a study's saving and cost with their uncertainty, in lines for a terminal, file or page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tuner.core import FOREIGN_SHARE, Verdict, called, render_setting
from tuner.presentation.figures import change, figure, how_many, joined, percent, shown
from tuner.presentation.outcomes import StudyOutcome, not_applied
from tuner.presentation.plans import plan_lines
from tuner.presentation.texts import (
    billed,
    broken,
    capacity,
    grown,
    idle_texts,
    improved,
    plan_rows,
    requested_metrics,
    saved_by_period,
    sized,
)
from tuner.wire import SettingView, StudyReport

ALWAYS = ("energy_j", "power_w", "cpu_time_ms", "latency_p99_ms", "throughput_per_s")
"""Metrics that are shown beside the requested ones, if they were measured."""
MOST_FAILURES = 5


def about(main: StudyOutcome) -> str:
    """Return a study's objective, constraints, policy and number of settings, in one line."""
    view = main.report.study
    wishes = joined(view.constraints, "no constraint")
    return f"{view.objective}, {wishes}; {view.policy}, {view.settings} settings"


def comparison(main: StudyOutcome) -> Iterator[tuple[str, str, str, str]]:
    """Yield a row per metric: its name, the baseline, the best, and the change with its standard error."""
    report = main.report
    base, best = report.baseline.metrics, report.best.metrics if report.best else {}
    quantities = report.study.quantities
    always = [called(metric, quantities) for metric in ALWAYS]
    for metric in dict.fromkeys((*requested_metrics(report.study), *always)):
        if metric not in base:
            continue
        then, by = "–", "–"
        if main.won:
            then = shown(metric, best, quantities)
            by = grown(base[metric], best[metric], metric, quantities) if metric in best else by
        yield (metric, shown(metric, base, quantities), then, by)


def verdict(main: StudyOutcome) -> Iterator[str]:
    """Yield the result: the baseline, the best setting, its improvement, and whether limits are kept."""
    report = main.report
    yield f"baseline  {render_setting(report.baseline.setting)}"
    if not report.baseline.metrics:
        yield f"No baseline, so nothing was tuned: {main.why}"
        return
    if not main.won:
        unmet = report.study.unmet is not None
        yield main.why if unmet else f"No setting won, the baseline stays: {main.why}"
        yield from _limits(report, report.baseline, " by the baseline")
        return
    yield f"best      {render_setting(main.held)}"
    if why_not := not_applied(report.study):
        yield f"applied   {why_not}"
    plan = report.study.plan
    if plan is not None and len(plan.rows) > 1:
        rows = iter([*plan_lines(report)] or [*plan_rows(plan, report.baseline.setting)])
        yield f"plan      {next(rows)}"
        yield from (f"          {row}" for row in rows)
        yield f"held      {main.why}"
    elif main.proposed:
        yield f"search    {main.proposed}"
    gain = improved(report)
    if gain is not None:
        metric = requested_metrics(report.study)[0]
        size = sized(gain, metric, report.study.quantities)
        way = "better" if gain.amount.mean >= 0.0 else "worse"
        where = (
            "compared in alternating windows, baseline and best in turn (the confirming phase)"
            if report.alternating
            else "compared over all windows, not in alternation"
        )
        if report.baseline_shift is not None:
            where = f"counted from {report.baseline_shift.in_words(metric)}"
        yield f"{metric} is {size} {way}{capacity(report)}; {where}"
    yield from _limits(report, report.best or report.baseline)


def _limits(report: StudyReport, by: SettingView, owner: str = "") -> Iterator[str]:
    """Yield a line per limit: whether the setting keeps it, with the 95 % bound."""
    quantities = report.study.quantities
    for limit in report.study.limits:
        estimate = by.metrics.get(limit.metric)
        judgement = {
            Verdict.FEASIBLE: f"kept{owner}",
            Verdict.INFEASIBLE: f"BROKEN{owner}",
            Verdict.UNSURE: "not proven either way",
        }[limit.verdict(estimate)]
        bound = ""
        if estimate is not None:
            side = estimate.high if limit.op == "<=" else estimate.low
            bound = (
                f" (95 % bound {figure(limit.metric, side, declared=quantities)})"
                if abs(side) < 1e300
                else ""
            )
        required = figure(limit.metric, limit.value, declared=quantities)
        yield f"limit     {limit.metric} {limit.op} {required}: {judgement}{bound}"
    limited = joined(dict.fromkeys(c.split()[0] for c in report.study.constraints), "")
    yield f"limited   only {limited}" if limited else "limited   nothing: no limit was set"


def account(main: StudyOutcome) -> Iterator[str]:
    """Yield the trials, the failures, the bill, and the savings by period."""
    states = Counter(str(t.state) for t in main.trials)
    phases = Counter(str(t.phase) for t in main.trials)
    yield (
        f"trials    {joined(f'{n} {state}' for state, n in states.items())} "
        f"({joined(f'{n} {phase}' for phase, n in phases.items())})"
    )
    yield f"          {broken(main.report.study)}"
    yield from _disturbed(main)
    baseline = main.report.study.baseline.setting
    for trial in main.report.failures[:MOST_FAILURES]:
        where, why = change(trial.setting, baseline), trial.reason or "no reason given"
        yield f"          trial {trial.number} {trial.state} at {where}: {why}"
    more = len(main.report.failures) - MOST_FAILURES
    if more > 0:
        yield f"          and {more} more: `jouletune trial list {main.report.study.id}`"
    yield f"bill      {billed(main.report.bill, main.report.study)}"
    for text in idle_texts(main.report.study):
        yield f"idle      {text}"
    if main.report.bill.whole is not None:
        for name, saved, basis in saved_by_period(main.report):
            yield f"saved     {name}: {saved} ({basis})"


def _disturbed(main: StudyOutcome) -> Iterator[str]:
    """Yield the number of counted windows in which other programs exceeded the usual share, if any."""
    foreign = [t.foreign for t in main.trials if t.state.evidence and t.foreign is not None]
    shares = [share for share in foreign if share > FOREIGN_SHARE]
    if shares:
        yield (
            f"          in {how_many(len(shares), 'window')} "
            "of the comparison other programs used more than "
            f"{percent(FOREIGN_SHARE)} of the machine, up to {percent(max(shares))}, as --foreign-share "
            "allows: the comparison may show their load"
        )


def provenance(report: StudyReport) -> Iterator[str]:
    """Yield a line per origin of numbers (like measured or estimated), with its metrics."""
    sources: dict[str, list[str]] = {}
    for metric, origin in sorted(report.origins.items()):
        sources.setdefault(origin, []).append(metric)
    for origin, metrics in sources.items():
        yield f"origin    {origin} ({joined(metrics)})"
