"""How a study ended, or stands: what it holds, whether that won, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuner.core import Phase, Setting, setting_key
from tuner.wire import RevisionView, StudyReport, TrialView

if TYPE_CHECKING:
    from typing_extensions import Self


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
        """The setting the study ended with: the confirmed one (its plan's chief), else the baseline."""
        study = self.report.study
        if study.plan is None or study.phase is Phase.PAUSED:  # what was proposed is not held
            return study.baseline.setting
        return study.plan.chief(study.baseline.setting)

    @property
    def won(self) -> bool:
        """Whether a setting other than the baseline was confirmed and is held."""
        return setting_key(self.held) != setting_key(self.report.study.baseline.setting)

    @property
    def tuned(self) -> bool:
        """Whether anything but the baseline was measured, and nothing had to be given up."""
        base = setting_key(self.report.study.baseline.setting)
        measured = [t for t in self.trials if t.state.evidence and setting_key(t.setting) != base]
        return bool(measured) and self.report.study.phase is not Phase.PAUSED
