"""The status of a study, a device or the whole fleet as text, with problems first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuner.core import HELD, Limit, Phase, Setting, setting_key
from tuner.moments import when
from tuner.presentation.figures import change, figure, joined
from tuner.study.moves import LIMIT_NOT_MET
from tuner.wire import (
    BudgetMemberView,
    DeviceView,
    FleetRow,
    Health,
    RevisionView,
    StopView,
    StudyReport,
    StudyView,
    TrialView,
)

if TYPE_CHECKING:
    from typing_extensions import Self


SEARCHING = frozenset({Phase.BASELINE, Phase.TUNING, Phase.CONFIRMING})
WORST_FIRST = (
    Health.UNREADABLE, Health.LIMIT_NOT_MET, Health.OFFLINE, Health.NOT_MEASURED, Health.PAUSED,
    Health.STOPPED, Health.PROPOSED, Health.TRYING, Health.HOLDING, Health.SAFE, Health.OBSERVED,
)  # fmt: skip
"""The order of devices by health; those that need an operator come first."""


def worst_first(
    rows: Iterable[FleetRow], group: Callable[[FleetRow], str] | None = None
) -> list[FleetRow]:
    """Sort devices by group, then by their need for an operator, then by name."""

    def place(row: FleetRow) -> tuple[str, bool, int, str]:
        return (
            group(row) if group else "",
            not row.unable,
            WORST_FIRST.index(row.health),
            row.device,
        )

    return sorted(rows, key=place)


def status(view: StudyView) -> str:
    """Return a study's status in a few words, the worst first, without numbers."""
    if view.error:
        return "unreadable"
    word = "awaiting approval" if view.phase is Phase.PROPOSED else str(view.phase)
    unmet = view.unmet is not None or view.capped
    parts = [str(Health.LIMIT_NOT_MET) if unmet else word]
    if view.stopped and view.phase is not Phase.STOPPED:
        parts.append("stop-all")
    if view.offline:
        parts.append("offline")
    if view.unable:
        parts.append("blocked")
    if waiting(view):
        parts.append("frozen" if view.exploration.frozen else "waiting")
    return ", ".join(parts)


def waiting(view: StudyView) -> str:
    """Return the freeze or exploration window for which a study waits; empty if it does not wait."""
    stays = view.exploration.frozen or view.phase in SEARCHING
    return view.waits if stays else ""


def device_status(view: DeviceView) -> str:
    """Return a device's status in a few words: offline, unreadable, blocked, observed, or its level."""
    if not view.online:
        return "offline"
    if view.error:
        return str(Health.UNREADABLE)
    if view.unable and (view.released or not view.device.observed):
        return "released" if view.released else "blocked"
    if view.device.observed:
        return str(Health.NOT_MEASURED if view.unable else Health.OBSERVED)
    return str(view.applied.level) if view.applied else "–"


def standing(view: StudyView) -> str:
    """Return a study's phase, or its broken limit, with everything that blocks the study."""
    if view.error:
        return f"{view.phase}, CANNOT BE SHOWN: {view.error}"
    parts = [
        f"{LIMIT_NOT_MET}: {_holding(view, view.unmet)}" if view.unmet is not None else _phase(view)
    ]
    if view.capped:
        parts.append(f"{LIMIT_NOT_MET}: {view.capped}")
    if view.stopped and view.phase is not Phase.STOPPED:
        parts.append("STOPPED by stop-all")
    if view.offline:
        parts.append(f"OFFLINE: {joined(view.offline)}")
    if view.unable:
        parts.append(f"ACCEPTS NO ASSIGNMENTS: {view.unable}")
    if waits := waiting(view):
        parts.append(waits)
    return ", ".join(parts)


def in_full(view: StudyView) -> str:
    """Return a study's status with the reason; a broken limit is named only once."""
    in_why = view.phase_why.startswith(LIMIT_NOT_MET)
    shown = view.model_copy(update={"unmet": None}) if in_why else view
    return f"{standing(shown)} (revision {view.revision}): {view.phase_why}"


def _phase(view: StudyView) -> str:
    """Return a study's phase, with the pending approval or the canary device."""
    if view.phase is Phase.PROPOSED:
        return "proposed: awaiting approval"
    if view.phase is Phase.CANARY:
        return f"canary: held on {view.terms.canary} only"
    return str(view.phase)


def _holding(view: StudyView, limit: Limit) -> str:
    """Return the held setting that breaks a limit, with its value of the limited metric."""
    name, measured, bound = held_against(view, limit)
    return (
        f"holding {name} ({f'{measured}, ' if measured else ''}the limit is {limit.metric} {bound})"
    )


def held_against(view: StudyView, limit: Limit) -> tuple[str, str, str]:
    """Return the held setting, its value of a limited metric (empty if not measured), and the limit."""
    held, quantities = view.best or view.baseline, view.quantities
    estimate = held.metrics.get(limit.metric) or view.baseline.metrics.get(limit.metric)
    measured = (
        figure(limit.metric, estimate.mean, declared=quantities) if estimate is not None else ""
    )
    bound = f"{limit.op} {figure(limit.metric, limit.value, declared=quantities)}"
    return change(held.setting, view.baseline.setting), measured, bound


def power_front(member: BudgetMemberView) -> str:
    """Return the metric by which a budget member's watts are valued, or a note that it has none."""
    clock = "; by clock: not a hard cap" if member.by_clock else ""
    if member.measured_by and not member.front:
        return f"measured now by study {member.measured_by}{clock}"
    return f"{member.front or 'none: shares uniformly'}{clock}"


def stopped(stop: StopView) -> str:
    """Return the warning that is shown above everything else while all devices are stopped."""
    since = f" since {when(stop.at)}" if stop.at is not None else ""
    why = f": {stop.why}" if stop.why else ""
    return (
        f"ALL DEVICES ARE STOPPED{since} by {stop.who}{why}; nothing is tried or held; "
        "lift it with `jouletune stop-all --lift`"
    )


def confirmed(stop: StopView) -> str:
    """Return the number of stopped devices that confirm their original setting."""
    back = sum(device.state == "original" for device in stop.devices)
    return f"{back} of {len(stop.devices)} confirmed"


def released(device: str, study: StudyView | None) -> str:
    """Return the effect of a device's release on its study, and the way to end it."""
    lift = f"until `jouletune device release {device} --lift`"
    if study is None:
        return f"no study tries or holds a setting on it {lift}"
    others = ", ".join(name for name in study.devices if name != device)
    if study.phase in SEARCHING:
        return f"study {study.id} starts no trial{f' on {others} either' if others else ''} {lift}"
    beside = f" (it continues on {others})" if others else ""
    return f"study {study.id} stays {study.phase}{beside}, but holds nothing here {lift}"


def status_reason(view: StudyView) -> str:
    """Return the reason for a study's status, as one sentence."""
    if view.error:
        return sentence(view.error)
    if view.stopped and view.phase is not Phase.STOPPED:
        return "All devices are stopped; no setting is tried or held."
    if view.offline and view.phase is not Phase.PAUSED:
        return f"No message from {joined(view.offline)}."
    if view.unmet is not None:
        name, measured, bound = held_against(view, view.unmet)
        metric = view.unmet.metric
        return f"Holding {name}: {metric} is {measured or 'not measured'}, the limit is {bound}."
    if view.capped:
        return sentence(view.capped)
    return sentence(view.phase_why.removeprefix(f"{LIMIT_NOT_MET}: "))


def next_step(view: StudyView) -> str:
    """Return the next step for an operator, by a study's status."""
    if view.error:
        return "Read the tuner's log."
    if view.phase is Phase.STOPPED:
        return "Create a new study to tune these devices again."
    if view.stopped:
        return "Resume all studies on the fleet page."
    if view.offline and view.phase is not Phase.PAUSED:
        return "Start the agents of these devices, or check their network."
    if view.unable:
        return f"Let the device take orders again: {view.unable}"
    if view.unmet is not None:
        return "Loosen the limit, or end the study: no measured setting keeps it."
    if view.capped:
        return "Give the budget more watts, or the device a higher priority."
    return _of_phase(view)


def _of_phase(view: StudyView) -> str:
    """Return the next step for an operator, by the phase of a study without problems."""
    if view.phase is Phase.PROPOSED:
        proposed = view.plan.chief(view.baseline.setting) if view.plan else {}
        return f"Approve or reject the proposed setting: {change(proposed, view.baseline.setting)}."
    if view.phase is Phase.PAUSED:
        return "Resume the study, or end it."
    if view.phase is Phase.CANARY:
        return f"Nothing to do. The other devices follow when {view.terms.canary} confirms it."
    if view.phase in SEARCHING:
        count = sum(view.trials.values())
        most = view.terms.trials
        return f"Nothing to do. {count} trials so far; the policy may make at most {most}."
    return "Nothing to do. The held setting is checked against the limits in every window."


def last_change(revisions: list[RevisionView]) -> RevisionView | None:
    """Return the last revision by a person; None if the tuner made all of them."""
    return next((r for r in reversed(revisions) if r.who not in ("", "tuner")), None)


def sentence(text: str) -> str:
    """Return a text as a sentence: with a capital first letter, unless it is a name, and a full stop."""
    text = text.strip()
    first = text.split(" ", 1)[0]
    capitalised = text if "_" in first or "=" in first else text[:1].upper() + text[1:]
    return (
        capitalised
        if not capitalised or capitalised.endswith((".", "!", "?"))
        else f"{capitalised}."
    )


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
    """The final or current state of a study, the same for every report, page and list.

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
