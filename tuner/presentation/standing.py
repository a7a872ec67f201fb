"""The status of a study, a device or the whole fleet as text, with problems first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner.core import Limit, Phase
from tuner.moments import when
from tuner.presentation.figures import change, figure, joined
from tuner.study.moves import LIMIT_NOT_MET
from tuner.wire import Health

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tuner.wire import BudgetMemberView, DeviceView, FleetRow, StopView, StudyView


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
