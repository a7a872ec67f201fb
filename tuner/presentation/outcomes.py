"""How a study ended, or is going. Three questions, answered here alone for every report, page and list:

was a setting confirmed, is it applied now, and (`texts.billed`) does the exploring pay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuner.core import HELD, Phase, Setting, setting_key
from tuner.wire import RevisionView, StudyReport, StudyView, TrialView

if TYPE_CHECKING:
    from typing_extensions import Self


def applied_now(view: StudyView) -> bool:
    """Return whether the confirmed setting is in force on at least one device that reports."""
    online = set(view.devices) - set(view.offline)
    in_force = view.phase in HELD and not (view.stopped or view.unable)
    return view.confirmed is not None and in_force and bool(online)


def not_applied(view: StudyView) -> str:
    """Return that a confirmed setting is not applied now, with the reason; empty where it is applied."""
    if view.confirmed is None or applied_now(view):
        return ""
    if view.phase not in HELD:
        why = "awaiting approval" if view.phase is Phase.PROPOSED else f"the study is {view.phase}"
    elif view.stopped:
        why = "all devices are stopped"
    elif view.unable:
        why = view.unable
    else:  # its agent holds it without the tuner, too
        return f"not known to be applied now: no message from {', '.join(view.offline)}"
    return f"not applied now: {why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyOutcome:
    """One study at its end, or as it stands, and why it is so.

    `proposed` is what the policy rested its proposal on; empty where it never made one.
    """

    report: StudyReport
    why: str
    proposed: str
    trials: tuple[TrialView, ...]

    @classmethod
    def of(
        cls, report: StudyReport, revisions: Sequence[RevisionView], trials: Sequence[TrialView]
    ) -> Self:
        """Return what a study holds, or held until it was stopped."""
        reasons = {r.phase: r.reason or r.why for r in revisions}
        return cls(
            report=report,
            why=reasons.get(Phase.HOLDING, report.study.phase_why),
            proposed=reasons.get(Phase.CONFIRMING, ""),
            trials=tuple(trials),
        )

    @property
    def held(self) -> Setting:
        """The setting the study ended with: the confirmed one, else the baseline."""
        study = self.report.study
        return study.baseline.setting if study.confirmed is None else study.confirmed

    @property
    def won(self) -> bool:
        """Whether a setting other than the baseline was confirmed, applied now or not."""
        return self.report.study.confirmed is not None

    @property
    def tuned(self) -> bool:
        """Whether anything but the baseline was measured, and nothing had to be given up."""
        base = setting_key(self.report.study.baseline.setting)
        measured = [t for t in self.trials if t.state.evidence and setting_key(t.setting) != base]
        return bool(measured) and self.report.study.phase is not Phase.PAUSED
