"""Studies that follow a load: one setting is held up to the highest load that its windows met.

Above that load, and while unusually many requests wait, the agent holds the baseline. The setting is
confirmed again at a higher load that lasts, so that a growing service is not left at the baseline.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import timedelta

from tuner.core import Context, Past, Phase, Plan, Row, Safety, Study, peak_name
from tuner.study.moves import Assign, Move

REACH = 1.1
"""A setting is held up to this multiple of the highest load of its windows: our choice, like the others."""
LASTS_S = 300.0
"""A higher load counts once it has lasted for this many seconds."""
AGAIN = timedelta(hours=1)
"""The time from the start of a hold to its confirmation at a higher load."""


def unsupported(study: Study) -> str:
    """Return why a study must pause whose plan cannot be followed, with the way on; empty for others.

    Earlier releases had a row for each load or hour; a plug-in may return several rows.
    """
    by, plan = study.terms.plan_by, study.plan
    what = (
        "a plan by the hour" if by == "hour"
        else f"a plan by two signals ({by})" if "," in by
        else "a plan with several rows beside --plan-by"
        if by and plan is not None and len(plan.rows) > 2
        else ""
    )  # fmt: skip
    if not what or study.phase is Phase.PAUSED:
        return ""
    way = f"stop it with `jouletune study stop {study.id}` and create it again with one signal"
    return f"{what} is not supported any more; {way}"


def up_to_confirmed(past: Past, step: Assign | Move) -> Assign | Move:
    """Return the move to a hold with the setting only up to the highest load that it was measured at.

    A setting that is not confirmed at a higher load is held as before.
    """
    study, by = past.study, past.study.terms.plan_by
    if not by or not isinstance(step, Move) or step.phase is not Phase.HOLDING or not step.plan:
        return step
    setting = step.plan.rows[0].setting
    if study.rests(setting):
        before = _kept(past, by)
        return Move(step.phase, f"{step.why}; held as before", before) if before else step
    own = [t.ran_at for t in past.trials if t.solid and t.tries(setting)]
    top = max((at.get(peak_name(by), 0.0) for at in own), default=0.0)
    if top <= 0.0:
        why = f"no window reported {by}, so no load is known to be safe: the baseline is held"
        return Move(step.phase, why, Plan.single(study.baseline))
    plan = Plan((Row(REACH * top, setting), Row(math.inf, study.baseline)), by, eager=True)
    why = (
        f"{step.why}, up to {by} = {top:.4g}; above, and while requests wait, the baseline is held"
    )
    return Move(step.phase, why, plan)


def _kept(past: Past, by: str) -> Plan | None:
    """Return the held plan if its setting stays proven within its range; None without one.

    It was confirmed before this phase, and none of its windows since is above a limit within the range.
    """
    plan, limits = past.study.plan, past.evidence.limits or ()
    if plan is None or not plan.by:
        return None
    row = plan.rows[0]
    own = [t for t in past.trials if t.tries(row.setting) and t.phase is Phase.CONFIRMING]
    before = [t for t in own if t.number < past.study.phase_since and t.solid]
    within = [t for t in own if t.ran_at.get(peak_name(by), 0.0) < row.below]
    broke = any(
        x.metric in t.shown and not x.holds(t.shown[x.metric].mean) for t in within for x in limits
    )
    return plan if before and not broke else None


@dataclass
class Growth:
    """Decide whether a held setting is to be confirmed at a higher load."""

    _since: dict[str, float] = field(default_factory=dict)

    def why(self, study: Study, load: Context, seconds: float, held: timedelta) -> str:
        """Return the reason to confirm it at the present load, empty without one.

        `seconds` is a monotonic time, `held` the time since the revision with which the hold began. A study
        that only advises keeps what was approved.
        """
        plan, by = study.plan, study.terms.plan_by
        here = load.get(by, 0.0) if by else 0.0
        if plan is None or len(plan.rows) < 2 or here < plan.rows[0].below:
            self._since.pop(study.id, None)
            return ""
        lasted = seconds - self._since.setdefault(study.id, seconds) >= LASTS_S
        if not lasted or study.terms.safety is Safety.ADVISE or held < AGAIN:
            return ""
        return f"confirming the held setting at a higher load: {by} = {here:.4g}"
