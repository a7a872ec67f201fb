"""The facts about a study that `jouletune study show` lists."""

from __future__ import annotations

from tuner.core import ALL_DAY, Mode, Phase
from tuner.presentation.figures import figure, joined, percent
from tuner.presentation.plans import plan_lines
from tuner.presentation.standing import in_full
from tuner.presentation.texts import (
    billed,
    broken,
    changed_fields,
    described,
    gained,
    idle_texts,
    plan_rows,
    saved_by_period,
)
from tuner.wire import StudyReport, StudyView


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
