"""The report of a study's saving and cost with their uncertainty, in lines for a terminal, file or page."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from tuner.core import (
    ALL_DAY,
    FOREIGN_SHARE,
    Mode,
    Phase,
    Quantities,
    Verdict,
    called,
    render_setting,
)
from tuner.moments import when
from tuner.presentation.figures import change, figure, how_many, joined, percent, shown
from tuner.presentation.standing import StudyOutcome, in_full, not_applied
from tuner.presentation.texts import (
    billed,
    broken,
    capacity,
    changed_fields,
    described,
    gained,
    grown,
    idle_texts,
    improved,
    plan_rows,
    requested_metrics,
    row_spans,
    saved_by_period,
    sized,
)
from tuner.wire import (
    ConstraintRevision,
    HeldUnder,
    PlanRowView,
    SettingView,
    StudyReport,
    StudyView,
    TrialView,
)

PLAN_COLUMNS = ("load", "setting", "rests on", "against the limit", "saves")
NOTHING = "–"


def plan_table(report: StudyReport) -> list[tuple[str, ...]]:
    """Return the rows of a plan, with the columns `PLAN_COLUMNS`.

    Empty without a plan, or if the plan has one setting for all loads.
    """
    plan, base = report.study.plan, report.baseline.setting
    if plan is None or len(plan.rows) != len(report.rows):
        return []
    quantities = report.study.quantities
    spans = zip(row_spans(plan), report.rows, strict=True)
    return [
        (
            f"{plan.by} {span}",
            change(row.setting, base),
            _rests_on(row),
            "; ".join(_measured_limits(row, quantities)) or NOTHING,
            NOTHING if row.saving is None else percent(row.saving.mean, row.saving.stderr),
        )
        for span, row in spans
    ]


def plan_lines(report: StudyReport) -> Iterator[str]:
    """Yield one sentence per row of a plan."""
    for load, setting, rests_on, limits, saves in plan_table(report):
        parts = [f"{load}: {setting}", *(x for x in (rests_on, limits) if x != NOTHING)]
        if saves != NOTHING:
            parts.append(f"saves {saves} against the baseline at this load")
        yield "; ".join(parts)


def _rests_on(row: PlanRowView) -> str:
    """Return the number of windows that a row rests on, and their load."""
    if not row.windows:
        return NOTHING
    return how_many(row.windows, "window") + ("" if row.at is None else f" at {row.at:.4g}")


def _measured_limits(row: PlanRowView, quantities: Quantities) -> Iterator[str]:
    """Yield the measured value of the row's setting for each limit."""
    for limit in row.limits:
        estimate = row.metrics.get(limit.metric)
        if estimate is not None:
            shown = figure(limit.metric, estimate.mean, declared=quantities)
            yield f"{limit.metric} {shown} (limit {figure(limit.metric, limit.value, declared=quantities)})"


ALWAYS = ("energy_j", "power_w", "cpu_time_ms", "latency_p99_ms", "throughput_per_s")
"""Metrics that are shown beside the requested ones, if they were measured."""
MOST_FAILURES = 5
FIGURE = re.compile(r"\d+(?:\.\d+)?")


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
    alike = dict[tuple[str, str], list[TrialView]]()
    for trial in main.report.failures:
        where = f"{trial.state} at {change(trial.setting, baseline)}"
        alike.setdefault((where, FIGURE.sub("", trial.reason)), []).append(trial)
    shown = list(alike.items())[:MOST_FAILURES]
    for (where, _), trials in shown:
        numbers = joined(str(trial.number) for trial in trials)
        why = trials[-1].reason or "no reason given"
        why = "see above" if not main.won and why in main.why else why
        yield f"          trial{'s' * (len(trials) > 1)} {numbers} {where}: {why}"
    more = len(main.report.failures) - sum(len(trials) for _, trials in shown)
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


def facts(report: StudyReport) -> list[tuple[str, str]]:
    """Return the facts about a study, as pairs of a name and a text."""
    view = report.study
    quantities = view.quantities
    limits = joined(
        (
            f"{x.metric} {x.op} {figure(x.metric, x.value, declared=quantities)}"
            for x in view.limits
        ),
        "unknown before the baseline" if view.constraints else "none",
    )
    entries = [
        ("study", view.id),
        ("device", joined(view.devices)),
        ("workload", view.workload),
        ("policy", f"{view.policy}, seed {view.seed}, {view.settings} settings"),
        *((("conditions", joined(view.conditions)),) if view.conditions else ()),
        ("mode", str(view.terms.mode)),
        ("objective", view.objective),
        *([("and", view.second_objective)] if view.second_objective else []),
        ("constraints", joined(view.constraints)),
        ("limits", limits),
        ("phase", in_full(view)),
        *_declared(view),
        ("trials", joined(f"{count} {state}" for state, count in view.trials.items())),
        ("violations", broken(view)),
        ("control", _control_windows(view)),
        ("baseline", described(view.baseline, view)),
    ]
    if view.terms.mode is not Mode.CONTINUOUS:  # a continuous study seeks no setting to hold
        best = described(view.best, view) if view.best else "none is feasible yet"
        entries.append(("best", best))
    if view.plan is not None and (len(view.plan.rows) > 1 or view.phase is Phase.PROPOSED):
        name = "proposed" if view.phase in (Phase.CONFIRMING, Phase.PROPOSED) else "plan"
        rows = [*plan_lines(report)] or plan_rows(view.plan, view.baseline.setting)
        entries += [(name, row) for row in rows]
    if view.terms.canary:
        after = f"the others follow after {view.terms.canary_windows} confirming windows"
        entries.append(("canary", f"{view.terms.canary}; {after}"))
    if saved := gained(report):
        entries.append(("saving", saved.removeprefix("saves ")))
    if view.phase is Phase.PROPOSED:
        entries.append(
            ("decide", f"`jouletune study approve {view.id}` or `jouletune study reject {view.id}`")
        )
    changed = changed_fields(view, apart=OWN_LINES).items()
    entries += [(name.removesuffix("_s").replace("_", " "), text) for name, text in changed]
    entries.append(("bill", billed(report.bill, view)))
    entries += [("idle", text) for text in idle_texts(view)]
    entries += [
        ("saved", f"{name}: {saved} ({basis})") for name, saved, basis in saved_by_period(report)
    ]
    return entries


OWN_LINES = {"policy", "seed", "objective", "second_objective", "mode", "canary", "canary_windows"}
OWN_LINES |= {"control_share", "control_hours", "max_time_share", "max_energy_share", "min_saving"}
"""The described fields that have lines of their own."""


def _declared(view: StudyView) -> list[tuple[str, str]]:
    """Return the study's group and the limits of its exploring, if it has any."""
    limits, entries = view.exploration, []
    windows = joined((f"{w.cron} for {w.hours:g} h" for w in limits.windows), "")
    texts = [
        f"frozen: {limits.frozen}" if limits.frozen else "",
        f"in windows {windows} ({limits.time_zone})" if windows else "",
        f"≤ {percent(limits.max_time_share)} of the time" if limits.max_time_share < 1.0 else "",
        f"≤ {percent(limits.max_energy_share)} of the energy"
        if limits.max_energy_share < 1.0
        else "",
        f"holds only a saving of ≥ {percent(limits.min_saving)}" if limits.min_saving else "",
    ]
    if view.group:
        entries.append(("group", view.group))
    if exploring := joined(filter(None, texts), ""):
        entries.append(("exploring", exploring))
    return entries


def _control_windows(view: StudyView) -> str:
    """Return the share of windows that re-measure the baseline while a plan is held."""
    terms = view.terms
    if terms.control_share <= 0.0:
        return "none: the baseline is not re-measured while a plan is held"
    hours = "" if terms.control_hours == ALL_DAY else f", from {terms.control_hours} o'clock only"
    return f"{percent(terms.control_share)} of the windows of a hold re-measure the baseline{hours}"


def effect_lines(changed: ConstraintRevision, view: StudyView) -> list[str]:
    """Return the effect of a change: the result, then the held settings before and after, if any."""
    effect = changed.effect
    if effect is None:
        return ["The study was created with these."]
    held = f"held since {when(effect.held_at)}" if effect.held_at is not None else ""
    result = {
        "kept": "No change: the held setting keeps the new limits.",
        "other": f"The study searched again; another setting is {held}."
        if effect.before
        else f"No setting was held then; one is {held}.",
        "same": f"The study searched again; the same setting is {held}.",
        "searching": "The study is searching again.",
        "ended": "The study searched again, but held nothing before its next change.",
    }[effect.result]
    sides = (("Before", effect.before), ("After", effect.after))
    return [result, *(f"{name}: {_held(one, view)}." for name, one in sides if one)]


def _held(held: HeldUnder, view: StudyView) -> str:
    """Return a held setting with its objective, its value for each limit, and its saving."""
    quantities, metrics = view.quantities, held.setting.metrics
    limits = {limit.metric: limit for limit in held.limits}
    parts = []
    for metric in dict.fromkeys((*requested_metrics(view)[:1], *limits)):
        estimate, limit = metrics.get(metric), limits.get(metric)
        text = "not measured"
        if estimate is not None:
            text = figure(metric, estimate.mean, estimate.stderr, quantities)
        bound = ""
        if limit is not None:
            bound = f" (limit {limit.op} {figure(metric, limit.value, declared=quantities)})"
        parts.append(f"{metric} {text}{bound}")
    if held.saving is not None:
        parts.append(f"saves {percent(held.saving.mean, held.saving.stderr)}")
    return f"{change(held.setting.setting, view.baseline.setting)}: {joined(parts)}"
