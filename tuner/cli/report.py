"""The final report of a run, study by study, for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tuner.cli.output import table
from tuner.core import Verdict, called, render_setting, saving, setting_key
from tuner.presentation.figures import change, figure, joined, percent, shown
from tuner.presentation.texts import asked_metrics, billed, broken, capacity, plan_rows

if TYPE_CHECKING:
    from rich.console import Console

    from tuner.bench.true_score import Score
    from tuner.cli.results import Result, StudyResult
    from tuner.wire import SettingView, StudyReport

ALWAYS = ("energy_j", "power_w", "cpu_time_ms", "latency_p99_ms", "throughput_per_s")
"""Metrics shown beside those a study asks for, where they were measured."""
MOST_FAILURES = 5


def print_report(console: Console, result: Result) -> None:
    """Print what a study gained and cost, and how sure that is."""
    report = result.main.report
    view = report.study
    console.print()
    title = f"Study {view.id}: {view.workload} on {result.board or view.devices[0]}"
    console.print(title, style="bold", soft_wrap=True)
    wishes = joined(view.constraints, "no constraint")
    about = f"  {view.objective}, {wishes}; {view.policy}, {view.settings} settings"
    console.print(about, soft_wrap=True)
    rows = list(comparison(result.main))
    if rows:
        console.print(table("", ">baseline", ">best", ">change", rows=rows))
    for text in (*verdict(result.main), *account(result), *provenance(result)):
        console.print(f"  {text}", soft_wrap=True)


def comparison(main: StudyResult) -> Iterator[tuple[str, str, str, str]]:
    """Yield metric by metric: the baseline, the best, and the change with its standard error."""
    report = main.report
    base, best = report.baseline.metrics, report.best.metrics if report.best else {}
    known = report.study.quantities
    always = [called(metric, known) for metric in ALWAYS]
    for metric in dict.fromkeys((*asked_metrics(report.study), *always)):
        if metric not in base:
            continue
        grown = "–"
        if main.won and metric in best:
            share = saving(base[metric], best[metric], -1.0)
            grown = f"{'+' if share.mean > 0 else ''}{percent(share.mean, share.stderr)}"
        then = shown(metric, best, known) if main.won else "–"
        yield (metric, shown(metric, base, known), then, grown)


def verdict(main: StudyResult) -> Iterator[str]:
    """Yield whether the best won, at which setting, and whether the limits are kept."""
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
    plan = report.study.plan
    if plan is not None and len(plan.rows) > 1:
        rows = plan_rows(plan, report.baseline.setting)
        yield f"plan      {next(rows)}"
        yield from (f"          {row}" for row in rows)
        yield f"held      {main.why}"
    if main.proposed:
        yield f"search    {main.proposed}"
    if report.saving is not None:
        gain = percent(abs(report.saving.mean), report.saving.stderr)
        way = "better" if report.saving.mean >= 0.0 else "worse"
        metric = asked_metrics(report.study)[0]
        where = (
            "compared in alternating windows, baseline and best in turn (the confirming phase)"
            if report.alternating
            else "compared over all windows, not in alternation"
        )
        if report.baseline_shift is not None:
            where = f"counted from {report.baseline_shift.in_words(metric)}"
        yield f"{metric} is {gain} {way}{capacity(report)}; {where}"
    yield from _limits(report, report.best or report.baseline)


def _limits(report: StudyReport, by: SettingView, whose: str = "") -> Iterator[str]:
    """Yield for each limit whether a setting keeps it."""
    known = report.study.quantities
    for limit in report.study.limits:
        found = by.metrics.get(limit.metric)
        kept = {
            Verdict.FEASIBLE: f"kept{whose}",
            Verdict.INFEASIBLE: f"BROKEN{whose}",
            Verdict.UNSURE: "not proven either way",
        }[limit.verdict(found)]
        bound = ""
        if found is not None:
            side = found.high if limit.op == "<=" else found.low
            bound = (
                f" (95 % bound {figure(limit.metric, side, declared=known)})"
                if abs(side) < 1e300
                else ""
            )
        asked = figure(limit.metric, limit.value, declared=known)
        yield f"limit     {limit.metric} {limit.op} {asked}: {kept}{bound}"


def account(result: Result) -> Iterator[str]:
    """Yield the trials, failures, the bill, the true values and the control."""
    main = result.main
    states = Counter(str(t.state) for t in main.trials)
    phases = Counter(str(t.phase) for t in main.trials)
    yield (
        f"trials    {joined(f'{n} {state}' for state, n in states.items())} "
        f"({joined(f'{n} {phase}' for phase, n in phases.items())})"
    )
    yield f"          {broken(main.report.study)}"
    baseline = main.report.study.baseline.setting
    for trial in main.report.failures[:MOST_FAILURES]:
        where, why = change(trial.setting, baseline), trial.reason or "no reason given"
        yield f"          trial {trial.number} {trial.state} at {where}: {why}"
    more = len(main.report.failures) - MOST_FAILURES
    if more > 0:
        yield f"          and {more} more: `jouletune trial list {main.report.study.id}`"
    yield f"bill      {billed(main.report.bill, won=main.won)}"
    if main.score is not None:
        yield f"truth     {true_worth(main.score)}"
    if result.control is not None:
        yield f"control   {_control(result.control)}"


def true_worth(worth: Score) -> str:
    """Return what a choice is worth by the device's true values."""
    kept = "keeps" if worth.feasible else "BREAKS"
    if not worth.baseline_feasible:
        # The baseline stands for the best where nothing keeps the limits.
        if setting_key(worth.oracle.setting) == setting_key(worth.baseline.setting):
            return f"nothing keeps the limits here; the choice {_saved(worth.saving_percent)}"
        best = render_setting(worth.oracle.setting)
        return (
            f"the baseline truly breaks a limit; the choice {kept} them and "
            f"{_saved(worth.saving_percent)}; the best that keeps them is {best}"
        )
    if worth.captured is None:
        return f"nothing can be saved here; the choice truly {kept} the limits"
    return (
        f"{worth.saving_percent:.1f} % saved, {percent(worth.captured)} of the best possible "
        f"({render_setting(worth.oracle.setting)}); it truly {kept} the limits"
    )


def _saved(share: float) -> str:
    """Return in words what a percentage saved is, which may be negative."""
    return f"saves {share:.1f} %" if share >= 0.0 else f"costs {-share:.1f} % more"


def _control(control: StudyResult) -> str:
    report = control.report
    name = f"{report.study.policy} with as many trials"
    at = change(control.held, report.study.baseline.setting)
    return f"{name}: {true_worth(control.score)}, at {at}" if control.score else f"{name}: {at}"


def provenance(result: Result) -> Iterator[str]:
    """Yield where each number comes from, and what could not be measured or set."""
    sources: dict[str, list[str]] = {}
    for metric, origin in sorted(result.main.report.origins.items()):
        sources.setdefault(origin, []).append(metric)
    for origin, metrics in sources.items():
        yield f"origin    {origin} ({joined(metrics)})"
    for name, why in sorted(result.cannot.items()):
        yield f"unavailable  {name}: {why}"


def next_steps(results: list[Result], reach: str) -> Iterator[str]:
    """Yield what to type next. `reach` is the options that lead there, from a leading blank on."""
    for result in results:
        yield f"jouletune trial list {result.main.report.study.id}{reach}"
    yield f"jouletune history{reach}"
    yield f"jouletune history --format parquet --output trials.parquet{reach}"
