"""The outcome of a study, the same for every report, page and list.

It answers three questions: whether a setting was confirmed, whether the setting is applied now, and
(`texts.billed`) whether the exploring pays off.
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
    """Return whether the confirmed setting is in force on at least one device that is online."""
    online = set(view.devices) - set(view.offline)
    in_force = view.phase in HELD and not (view.stopped or view.unable)
    return view.confirmed is not None and in_force and bool(online)


def not_applied(view: StudyView) -> str:
    """Return the reason why a confirmed setting is not applied now; empty if it is applied.

    Also empty if no setting is confirmed.
    """
    if view.confirmed is None or applied_now(view):
        return ""
    if view.phase not in HELD:
        why = "awaiting approval" if view.phase is Phase.PROPOSED else f"the study is {view.phase}"
    elif view.stopped:
        why = "all devices are stopped"
    elif view.unable:
        why = view.unable
    else:  # an agent continues to hold a setting without the tuner
        return f"not known to be applied now: no message from {', '.join(view.offline)}"
    return f"not applied now: {why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyOutcome:
    """The final or current state of a study.

    `why` is the reason for this state. `proposed` is the policy's reason for its proposal; empty if it
    never made one.
    """

    report: StudyReport
    why: str
    proposed: str
    trials: tuple[TrialView, ...]

    @classmethod
    def of(
        cls, report: StudyReport, revisions: Sequence[RevisionView], trials: Sequence[TrialView]
    ) -> Self:
        """Return the outcome of a study, with the reasons from the revisions of its latest search."""
        reasons = dict[Phase, str]()
        for revision in revisions:
            if revision.phase in (Phase.BASELINE, Phase.TUNING):  # a new search, or the same
                reasons.clear()
            reasons[revision.phase] = revision.reason or revision.why
        return cls(
            report=report,
            why=reasons.get(Phase.HOLDING, report.study.phase_why),
            proposed=reasons.get(Phase.CONFIRMING, ""),
            trials=tuple(trials),
        )

    @property
    def held(self) -> Setting:
        """The confirmed setting, or the baseline if none is confirmed."""
        study = self.report.study
        return study.baseline.setting if study.confirmed is None else study.confirmed

    @property
    def won(self) -> bool:
        """Whether a setting other than the baseline was confirmed, even if it is not applied now."""
        return self.report.study.confirmed is not None

    @property
    def tuned(self) -> bool:
        """Whether a setting other than the baseline was measured, and the study is not paused."""
        base = setting_key(self.report.study.baseline.setting)
        measured = [t for t in self.trials if t.state.evidence and setting_key(t.setting) != base]
        return bool(measured) and self.report.study.phase is not Phase.PAUSED
