"""Texts about studies and trials, for every place that shows them."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tuner.core import (
    CAPACITY,
    ENERGY,
    HELD,
    IDLE,
    IDLE_UNLOADED,
    IN_ALL,
    JOULES_PER_KWH,
    BelievedSetting,
    Bill,
    Estimate,
    Exploration,
    Improvement,
    Origin,
    PeriodSaving,
    Phase,
    Plan,
    Quantities,
    Setting,
    Terms,
    Verdict,
    Written,
    called,
    capacity_beside,
    described_fields,
    improvement,
    render_setting,
    slower_by,
)
from tuner.moments import day, when
from tuner.presentation.figures import (
    THE_BASELINE,
    amount,
    change,
    duration,
    figure,
    how_many,
    joined,
    percent,
    shown,
)
from tuner.presentation.standing import applied_now, not_applied
from tuner.study.moves import in_words
from tuner.wire import (
    ConstraintPreview,
    ExplanationView,
    FleetView,
    ObservedView,
    SettingView,
    StudyReport,
    StudyView,
    TrialView,
)

DERIVED = {
    "trials": "a changed constraint extends them",
    "max_window_s": "it follows from window_s",
}
"""The described fields that are not compared with their default, with the reason."""


def changed_fields(view: StudyView, apart: Collection[str] = ()) -> dict[str, str]:
    """Return the described fields of a study that differ from their default, by name, as text.

    Those of `apart` are left out.
    """
    return {
        field.name: f"{value} s" if field.name.endswith("_s") else str(value)
        for kind, values in ((Written, view), (Terms, view.terms), (Exploration, view.exploration))
        for field in described_fields(kind)
        if (value := getattr(values, field.name)) != field.default
        and field.name not in DERIVED.keys() | apart
    }


def requested_metrics(view: StudyView) -> list[str]:
    """Return the metrics of a study's objective and constraints, in this order."""
    names = [view.objective.rpartition(" ")[2], *(c.split()[0] for c in view.constraints)]
    return list(dict.fromkeys(names))


def remark(trial: TrialView) -> str:
    """Return a trial's remarks: the only device that ran it, the reason of its end, and throttling."""
    alone = f"on {trial.device}" if trial.device else ""
    throttled = f"throttled: {', '.join(trial.throttled)}" if trial.throttled else ""
    return "; ".join(text for text in (alone, trial.reason, throttled) if text)


def described(candidate: SettingView, view: StudyView) -> str:
    """Return a setting with its values of the requested metrics, in one line."""
    has, quantities = candidate.metrics, view.quantities
    metrics = [f"{m} {shown(m, has, quantities)}" for m in requested_metrics(view) if m in has]
    numbers = ", ".join(metrics) or "not measured yet"
    doubt = "" if candidate.verdict in (None, Verdict.FEASIBLE) else f", {candidate.verdict}"
    windows = f"{candidate.windows} window{'' if candidate.windows == 1 else 's'}"
    return f"{render_setting(candidate.setting)}: {numbers} ({windows}{doubt})"


def gained(report: StudyReport) -> str:
    """Return the saving of the best setting so far in the objective, and its effect on the capacity.

    The best may also cost more, if a limit requires it. A setting "saves" only while it is applied;
    otherwise it "would save", with the reason. Empty without a best, or if the best is the baseline.
    """
    view, gain = report.study, improved(report)
    if view.best is None or gain is None:
        return ""
    if change(view.best.setting, view.baseline.setting) == THE_BASELINE:
        return ""
    how = "in alternating windows" if report.alternating else "over all windows"
    metric = requested_metrics(view)[0]
    stays = "" if applied_now(view) else f"; {not_applied(view) or 'not confirmed yet'}"
    beside = capacity(report)
    if report.baseline_shift is not None:
        how = "counted from the present baseline"
        beside = f"{beside}; {report.baseline_shift.in_words(metric)}"
    size = sized(gain, metric, view.quantities)
    if not gain.relative:
        way = "worse" if gain.amount.mean < 0.0 else "better"
        return f"{metric} {size} {way}, {how}{beside}{stays}"
    if gain.amount.mean < 0.0:
        return f"costs {size} more {metric}, {how}{beside}{stays}"
    saves = "saves" if applied_now(view) else "would save"
    return f"{saves} {size} of {metric}, {how}{beside}{stays}"


def improved(report: StudyReport) -> Improvement | None:
    """Return the improvement of a study's best over its baseline; None if it was not measured."""
    if report.saving is not None:
        return Improvement(report.saving, True)
    return None if report.difference is None else Improvement(report.difference, False)


def improvement_of(report: StudyReport) -> str:
    """Return the improvement of a study's best, with a minus if it is worse; empty if not measured."""
    view, gain = report.study, improved(report)
    if gain is None:
        return ""
    size = sized(gain, requested_metrics(view)[0], view.quantities)
    return f"-{size}" if gain.amount.mean < 0.0 else size


def sized(by: Improvement, metric: str, declared: Quantities) -> str:
    """Return the size of an improvement with its standard error, without its sign."""
    mean, stderr = abs(by.amount.mean), by.amount.stderr
    return percent(mean, stderr) if by.relative else figure(metric, mean, stderr, declared)


def grown(before: Estimate, after: Estimate, metric: str, declared: Quantities) -> str:
    """Return a change with its sign and standard error, in percent, else in the metric's unit."""
    by = improvement(before, after, -1.0)
    mean, stderr = by.amount.mean, by.amount.stderr
    text = percent(mean, stderr) if by.relative else figure(metric, mean, stderr, declared)
    return f"{'+' if mean > 0 else ''}{text}"


def capacity(report: StudyReport) -> str:
    """Return a clause about a saving's cost in capacity, and in latency if no limit bounds it.

    The clause begins with a semicolon. Empty if capacity is the objective or there is no best.
    """
    requested, quantities = requested_metrics(report.study), report.study.quantities
    if requested[0] == called(CAPACITY, quantities) or report.best is None:
        return ""
    compared = report.baseline.metrics, report.best.metrics, requested, quantities
    slower = slower_by(*compared)
    return f"; {capacity_beside(*compared)}{f'; {slower}' if slower else ''}"


def broken(view: StudyView) -> str:
    """Return the number of windows that broke a limit, and their duration."""
    violations = view.violations
    if not view.constraints:
        return "no limit was set"
    holds = f"; {violations.held} held windows broke them" if violations.held else ""
    if violations.rate is None:
        return f"only the baseline was measured{holds}"
    lasting = f" ({duration(violations.seconds)} in total)" if violations.broken else ""
    of = f"{violations.broken} of {violations.tried} non-baseline windows"
    return f"{of} broke the current limits{lasting}{holds}"


def plan_rows(plan: Plan, baseline: Setting) -> Iterator[str]:
    """Yield the setting of each row of a plan; with several rows, each with its range of the quantity."""
    if len(plan.rows) == 1:
        yield change(plan.rows[0].setting, baseline)
        return
    for span, row in zip(row_spans(plan), plan.rows, strict=True):
        yield f"{plan.by} {span}: {change(row.setting, baseline)}"


def row_spans(plan: Plan) -> Iterator[str]:
    """Yield the range of the plan's quantity for each row of a plan."""
    lower = 0.0
    for row in plan.rows[:-1]:
        yield f"{lower:g} to {row.below:g}" if lower else f"below {row.below:g}"
        lower = row.below
    yield f"from {lower:g} on"


def line(trial: TrialView, view: StudyView) -> str:
    """Return an ended trial in one line."""
    has, quantities = trial.metrics, view.quantities
    numbers = [f"{m} {shown(m, has, quantities)}" for m in requested_metrics(view) if m in has]
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


def why_not(answer: ExplanationView) -> Iterator[str]:
    """Yield why a setting was not chosen, then its figures and those of the best setting."""
    if answer.query is None:
        return
    yield f"{render_setting(answer.query.setting)}: {answer.why_not}"
    if (point := answer.explanation.query) is not None and not answer.query.metrics:
        each = (f"{m} {n}" for m, n in zip(answer.metrics, _numbers(point, answer), strict=True))
        yield f"predicted: {', '.join(each)}, chance to keep every limit {percent(point.chance)}"
    for name, view in (("measured", answer.query), ("best", answer.held)):
        if view is not None and view.metrics:
            figures = [f"{m} {shown(m, view.metrics, answer.quantities)}" for m in answer.metrics]
            of = "" if view is answer.query else f"{render_setting(view.setting)}: "
            yield f"{name}: {of}{', '.join(figures)} ({how_many(view.windows, 'window')})"


def believed_rows(answer: ExplanationView) -> Iterator[tuple[str, ...]]:
    """Yield the predictions along each knob; `(here)` marks the setting that all of them contain."""
    through = answer.explanation.through
    for along in answer.explanation.slices:
        for point in along.points:
            value = f"{along.knob}={point.setting[along.knob]}"
            yield _believed(value + " (here)" * (point.setting == through), point, answer)


def refused_rows(answer: ExplanationView) -> Iterator[tuple[str, ...]]:
    """Yield the predictions of settings that look better but are not tried."""
    for point in answer.explanation.refused:
        yield _believed(change(point.setting, answer.explanation.through), point, answer)


def _believed(name: str, point: BelievedSetting, answer: ExplanationView) -> tuple[str, ...]:
    """Return a row with the predictions for one setting."""
    remark = point.refused or ("measured" if point.measured else "")
    return (name, *_numbers(point, answer), percent(point.chance), remark)


def _numbers(point: BelievedSetting, answer: ExplanationView) -> Iterator[str]:
    """Yield the prediction of each metric of an answer."""
    has, quantities = point.predicted, answer.quantities
    for m in answer.metrics:
        yield figure(m, has[m].mean, has[m].sd, quantities) if m in has else "–"


def billed(bill: Bill, view: StudyView) -> str:
    """Return the cost of exploring, its payback time, and the saving so far.

    A confirmed setting "pays off" only while it is applied; otherwise it "would pay off".
    """
    spent = f"exploring took {duration(bill.seconds)}"
    if bill.granted > 0:
        spent += f", with {bill.granted} trials granted by changed constraints"
    if bill.explored_j is None:
        return f"{spent}; its energy is unknown: not all of it was measured"
    origin = f" ({bill.origin})" if bill.origin is not None else ""
    if bill.share != 1.0:
        origin += f", {percent(bill.share)} of the measured energy, by the operator's energy_share"
    text = f"{spent} and {figure('energy_j', bill.explored_j)}{origin}"
    if view.confirmed is None:
        searching = view.phase not in HELD and view.phase is not Phase.STOPPED
        none = "no setting is confirmed yet" if searching else "nothing beats the baseline"
        return f"{text}; it does not pay off{' yet' if searching else ''}: {none}"
    if bill.saving_w is None:
        return f"{text}; payback unknown: no throughput was measured"
    if bill.break_even_s is None:
        return f"{text}; it does not pay off: the best saves no energy"
    saves, pays = ("saves", "pays") if applied_now(view) else ("would save", "would pay")
    return (
        f"{text}; at the baseline's throughput it {saves} {figure('power_w', bill.saving_w)}; "
        f"exploring {pays} off after {duration(bill.break_even_s)}{_saved_since(bill)}"
    )


def idle_texts(view: StudyView) -> Iterator[str]:
    """Yield the power without requests at the baseline; at the best setting if the baseline has none."""
    best = view.best.metrics if view.best else {}
    for metric, state in ((IDLE, "with the model in memory"), (IDLE_UNLOADED, "after its unload")):
        estimate = view.baseline.metrics.get(metric) or best.get(metric)
        if estimate is not None:
            power = figure(metric, estimate.mean, estimate.stderr, view.quantities)
            yield f"{power} without requests, {state}: {0.024 * estimate.mean:.3g} kWh a day"


def _saved_since(bill: Bill) -> str:
    """Return a clause with the saving by holding, and the baseline measurements behind it."""
    if bill.whole is None:
        return ""
    amount = worth(bill.whole, bill.currency)
    if bill.priced_by:
        amount += f", by {', '.join(bill.priced_by)}"
    text = f"; saved since {day(bill.whole.since)}: {amount}"
    old = bill.extrapolated_since
    if bill.measured_again_at is not None:
        windows = f"{bill.controls} control window{'' if bill.controls == 1 else 's'}"
        text += f", baseline re-measured at {when(bill.measured_again_at)}, {windows}"
        rest = (
            f"; partly estimated since {when(old)}, where no control window is near" if old else ""
        )
        return f"{text}{rest}"
    return f"{text}, estimated; baseline not re-measured since {when(old)}" if old else text


def worth(saving: PeriodSaving, currency: str = "") -> str:
    """Return a saving in J with its error, kWh, money and CO₂e as far as known, and of the baseline."""
    if saving.saved_j is None:
        return "unknown"
    parts = [f"{saving.saved_j / JOULES_PER_KWH:.3g} kWh"]
    if saving.cost is not None:
        parts.append(f"{saving.cost:.4g} {currency or 'in money'}")
    if saving.co2e_g is not None:
        parts.append(f"{saving.co2e_g / 1000.0:.4g} kg CO₂e")
    if saving.baseline_j:
        parts.append(f"{percent(saving.saved_j / saving.baseline_j)} of the baseline")
    return f"{figure('energy_j', saving.saved_j, saving.stderr_j or 0.0)} ({', '.join(parts)})"


def saved_texts(view: FleetView) -> list[str]:
    """Return the savings of a fleet by origin: last week and in all, with its start and what they lack."""
    shown = [s for s in view.savings if s.period.period in ("last 7 d", IN_ALL)]
    texts = [
        f"saved {s.period.period}{f' since {day(s.period.since)}' if s.period.period == IN_ALL else ''}: "
        f"{worth(s.period, s.currency)}{'' if s.origin == 'measured' else f', {s.origin}'}"
        for s in shown
    ]
    return texts + uncounted_texts(view)


def uncounted_texts(view: FleetView) -> list[str]:
    """Return the studies that the savings of a fleet lack, by reason."""
    counts = {
        "on several devices together": view.uncounted,
        "whose evaluation failed": view.failed,
    }
    return [
        f"not counted: {how_many(count, 'study', 'studies')} {why}"
        for why, count in counts.items()
        if count
    ]


def saved_by_period(report: StudyReport) -> list[tuple[str, str, str]]:
    """Return the savings by holding: the name of the period, its joules, and their basis.

    Periods with the same windows are one entry. Empty if the study has never held a setting.
    """
    view, bill = report.study, report.bill
    if bill.whole is None and view.phase not in HELD:
        return []
    if len(view.devices) > 1:
        return [("this hold", "unknown", "not computed for a study of several devices")]
    if bill.whole is None:
        measured = report.baseline.metrics
        without = measured and called(ENERGY, view.quantities) not in measured
        why = "its energy is not measured" if without else "no window of it was measured yet"
        return [("this hold", "unknown", why)]
    names: dict[tuple[str, str], list[str]] = {}
    for period in bill.periods:
        names.setdefault(_saved_in(period, bill), []).append(period.period)
    return [(joined(periods), saved, basis) for (saved, basis), periods in names.items()]


def observed_lines(seen: ObservedView, declared: Quantities) -> Iterator[str]:
    """Yield what was measured of an observed device: its windows, then each metric with its origin."""
    if not seen.windows or seen.first is None or seen.last is None:
        last = f"; the last one began {when(seen.last)}, see --since" if seen.last else ""
        yield f"no window since {when(seen.since)}{last}"
        return
    windows = how_many(seen.windows, "window")
    energy = "" if seen.joules is None else f", {amount('J', seen.joules)} in them"
    yield f"{windows} from {when(seen.first)} to {when(seen.last)}, {duration(seen.seconds)}{energy}"
    for name, one in seen.metrics.items():
        shown = figure(name, one.mean, one.stderr, declared)
        yield f"{name} {shown} ({one.origin}, {one.scope})"


def _saved_in(period: PeriodSaving, bill: Bill) -> tuple[str, str]:
    """Return the saving in a period, and its basis in time and windows."""
    if period.saved_j is None:
        return "unknown", "no window of a hold was measured"
    label = "" if bill.origin in (None, Origin.MEASURED) else f", {bill.origin}"
    saved = worth(period, bill.currency)
    windows = how_many(period.windows, "window")
    return f"{saved}{label}", f"{duration(period.seconds)} of holding, {windows}"


def previewed(preview: ConstraintPreview, view: StudyView) -> tuple[str, ...]:
    """Return the effect of other constraints in three sentences: verdicts, the best, the study's course."""
    before, after = preview.before, preview.after
    worse = after.get("infeasible", 0) - before.get("infeasible", 0)
    if worse > 0:
        judged = f"{worse} of {preview.judged} trials become infeasible"
    elif worse < 0:
        judged = f"{-worse} of {preview.judged} trials are no longer infeasible"
    elif preview.flipped:
        judged = f"{len(preview.flipped)} of {preview.judged} trials change their verdict"
    else:
        judged = "no trial changes its verdict"
    counts = ", ".join(f"{after.get(v, 0)} {v}" for v in ("feasible", "infeasible", "unsure"))
    old, new = preview.best_before, preview.best_after
    if old and new and old.setting == new.setting:
        best = f"The best stays {described(new, view)}."
    elif new:
        earlier = f" from {described(old, view)}" if old else ""
        best = f"The best changes{earlier} to {described(new, view)}."
    elif old:
        best = (
            f"The former best, {described(old, view)}, does "
            "not meet them, and no other measured setting does."
        )
    else:
        best = "No measured setting meets them."
    follows = (
        f"The study continues unchanged ({preview.phase})."
        if preview.stays
        else f"The hold is released and the study searches again ({preview.phase}): "
        f"{preview.more_trials} more trials expected."
    )
    return f"{judged}; then {counts}.", best, follows
