"""The changes that a fleet file needs: studies to create, change, replace or stop, in order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

from tuner.core import (
    BudgetGroup,
    Exploration,
    Study,
    Terms,
    Unreadable,
    UnreadableStudy,
)
from tuner.service.declared.desired import Desired
from tuner.study.loop import Loop
from tuner.wire import FleetChange

Action = Literal["create", "change", "stop"]
MOST_VALUES = 6
"""The most values of a knob that a line lists."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A change as operators see it, and the study or budget that it stores; without either it is a stop."""

    shown: FleetChange
    study: Study | None
    budget: BudgetGroup | None = None


def changes(loop: Loop, file: Desired, *, prune: bool) -> list[Planned]:
    """Return the changes, stops first. Raises Unreadable: a study that is in the way cannot be read."""
    active = {study.id: study for study in loop.store.studies.stored(active=True)}
    owners = {device: study for study in active.values() for device in study.devices}
    stops: dict[str, Planned] = {}
    others: list[Planned] = []
    continuing: set[str] = set()
    for declared in file.studies:
        study = declared.study
        present = {o.id: o for device in study.devices if (o := owners.get(device))}
        like = _same(study, present)
        if like is None:
            stops |= {id: _stop(o, study.group) for id, o in present.items()}
            others.append(_create(study))
            continue
        continuing.add(like.id)
        # Without `frozen` in the file a present freeze stays, even if the study is replaced.
        limits = declared.exploration.over(like.exploration)
        target = replace(study, exploration=limits)
        if reasons := tuple(_replacing(like, target)):
            stops[like.id] = _stop(like, study.group)
            others.append(_create(target, reasons))
        elif details := tuple(_changing(like, target)):
            others.append(Planned(_change("change", like, target, details), target))
    for device in file.observed:
        if (owner := owners.get(device)) is not None:
            stops[owner.id] = _stop(owner, file.observed[device])
    if prune:
        grouped = (s for s in active.values() if isinstance(s, Study) and s.group)
        stops |= {s.id: _stop(s, "") for s in grouped if s.id not in continuing | stops.keys()}
    return [*stops.values(), *others]


def fingerprint(planned: Sequence[Planned]) -> str:
    """Return a digest of a list of changes, which covers the revisions of the studies to change."""
    text = "\n".join(
        f"{p.shown.action} {p.shown.study} {p.shown.revision} {p.shown.devices} {p.shown.details}"
        f"{p.shown.budget}"
        for p in planned
    )
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _same(study: Study, present: Mapping[str, Study | UnreadableStudy]) -> Study | None:
    """Return the active study of exactly these devices; None if no study has exactly these."""
    if len(present) != 1:
        return None
    (owner,) = present.values()
    if set(owner.devices) != set(study.devices):
        return None
    if isinstance(owner, UnreadableStudy):
        raise Unreadable(
            f"study {owner.id} of {owner.devices[0]} cannot be read: {owner.error}",
            hint="delete it, then apply again",
        )
    return owner


def _create(study: Study, why: Sequence[str] = ()) -> Planned:
    """Return the creation of a study, with the reasons for it."""
    limits = ", ".join(map(str, study.constraints)) or "no constraint"
    details = (*why, f"{study.objective} under {limits}")
    return Planned(_change("create", study, study, details), study)


def _stop(study: Study | UnreadableStudy, group: str) -> Planned:
    """Return the stop of a study.

    `group` declares its device; it is empty if the file no longer has the study.
    """
    own = study.group if isinstance(study, Study) else ""
    why = f"its device is declared in group {group!r}" if group else f"group {own!r} has it no more"
    shown = FleetChange(
        action="stop",
        group=own,
        devices=study.devices,
        study=study.id,
        revision=study.revision,
        details=(why,),
    )
    return Planned(shown, None)


def _change(action: Action, present: Study, target: Study, details: Sequence[str]) -> FleetChange:
    """Return a change of a study as operators see it."""
    new = action == "create"
    return FleetChange(
        action=action,
        group=target.group,
        devices=target.devices,
        study="" if new else present.id,
        revision=0 if new else present.revision,
        details=tuple(details),
    )


def _replacing(present: Study, target: Study) -> Iterator[str]:
    """Yield the differences that need a new study."""
    written = target.written
    for name, then in present.written.items():
        if name not in ("name", "terms", "constraints") and then != written[name]:
            yield f"{name}: {_shown(then)} → {_shown(written[name])}"
    # A change of constraints may have granted trials beyond the declared number: ignored here.
    granted = replace(present.terms, trials=min(present.terms.trials, target.terms.trials))
    for field in fields(Terms):
        then, now = getattr(granted, field.name), getattr(target.terms, field.name)
        if then != now:
            yield f"terms.{field.name}: {then} → {now}"
    then_knobs, now_knobs = (
        {k.name: (k.values, str(k.condition or "")) for k in s.space.knobs}
        for s in (present, target)
    )
    for name in dict.fromkeys([*then_knobs, *now_knobs]):
        then, now = then_knobs.get(name, ((), "")), now_knobs.get(name, ((), ""))
        if then != now:
            yield f"{name}: {_values(*then)} → {_values(*now)}"


def _changing(present: Study, target: Study) -> Iterator[str]:
    """Yield the differences that a study accepts while it continues."""
    if present.constraints != target.constraints:
        then, now = (", ".join(map(str, s.constraints)) or "none" for s in (present, target))
        yield f"constraints: {then} → {now}"
    for field in fields(Exploration):
        then, now = (getattr(s.exploration, field.name) for s in (present, target))
        if then != now:
            yield f"exploration.{field.name}: {_shown(then)} → {_shown(now)}"
    if present.group != target.group:
        yield f"group: {present.group or 'none'} → {target.group}"


def _values(values: Sequence[object], condition: str) -> str:
    """Return the values of a knob as text; of more than six, the first and the last."""
    if not values:
        return "none"
    many = len(values) > MOST_VALUES
    text = (
        f"{values[0]} … {values[-1]} ({len(values)} values)"
        if many
        else ", ".join(map(str, values))
    )
    return f"{text} if {condition}" if condition else text


def _shown(value: object) -> str:
    """Return a compared value as text."""
    if isinstance(value, tuple):
        return ", ".join(f"{window.cron} for {window.hours:g} h" for window in value) or "none"
    return str(value) or "none"
