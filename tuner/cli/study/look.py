"""`jouletune study list`, `show` and `explain`: what there is, and what is believed."""

from __future__ import annotations

from tuner.cli.answers import Answer, Rows
from tuner.cli.asking import Api, asks
from tuner.cli.options import StudyId
from tuner.presentation.facts import facts
from tuner.presentation.figures import change, joined, shown, when
from tuner.presentation.standing import standing
from tuner.presentation.texts import asked_metrics, believed_rows


@asks(watch=True)
def list_(api: Api) -> Answer:
    """List all studies, oldest first."""
    views = api.studies()
    rows = (
        (
            v.id,
            joined(v.devices),
            v.workload,
            v.policy,
            standing(v),
            str(sum(v.trials.values())),
            shown(asked_metrics(v)[0], v.best.metrics, v.quantities) if v.best else "–",
            change(v.best.setting, v.baseline.setting) if v.best else "–",
        )
        for v in views
    )
    columns = (
        "study", "device", "workload", "policy", "phase", ">trials", "objective", "best so far"
    )  # fmt: skip
    nothing = "no studies yet; create one with `jouletune study create`"
    return Answer(views, Rows(columns, rows, nothing))


@asks()
def show(api: Api, study: StudyId) -> Answer:
    """Show one study.

    What is asked, where it stands, its baseline, its best, what that saves and what finding it cost.
    """
    report, revisions = api.report(study), api.revisions(study)
    found = {"study": report.study, "saving": report.saving, "bill": report.bill}
    lines = [f"{name:<12}{text}" for name, text in facts(report)]
    lines.append("revisions")
    lines += [f"  {r.revision:>3}  {when(r.at)}  {r.who}: {r.phase}, {r.why}" for r in revisions]
    return Answer({**found, "revisions": revisions}, lines)


@asks()
def explain(api: Api, study: StudyId) -> Answer:
    """Show what a study's policy believes each knob does, and what it does not try."""
    told = api.explain(study)
    lines: list[str | Rows] = [f"{told.policy}: {told.explanation.text}"]
    if told.explained:
        columns = ("setting", *(f">{m}" for m in told.metrics), ">meets every limit", "remark")
        nothing = "no model before the baseline is measured"
        lines.append(Rows(columns, believed_rows(told), nothing))
    return Answer(told, lines)
