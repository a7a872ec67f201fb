"""A fleet file seen against what is, and applied: each change is made by itself, and all again is none."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from tuner.core import Conflict, Phase, Study, TuningError
from tuner.service.constraining import constrain, revise
from tuner.service.creation import store
from tuner.service.declared.desired import Desired, desired
from tuner.service.declared.diff import Planned, changes, fingerprint
from tuner.service.energy_price import EnergyPrice
from tuner.service.exploration import set_exploration
from tuner.service.halting import halt
from tuner.study.loop import Loop
from tuner.study.stale import looking_again
from tuner.typed_toml import TomlText
from tuner.wire import Change, ConstraintChange, ExplorationChange, FleetDiff, FleetDraft

FLEET = "fleet file"
"""The lock of all appliers of this process, named as no study is."""


def diff(loop: Loop, price: EnergyPrice, draft: FleetDraft) -> FleetDiff:
    """Return what a file would change; raises as `Operations.diff_fleet` does."""
    target, planned = _planned(loop, price, draft)
    return _view(draft, target, planned)


def apply(loop: Loop, price: EnergyPrice, draft: FleetDraft) -> FleetDiff:
    """Make the changes of a file; raises as `Operations.apply_fleet` does."""
    with loop.changes.lock(FLEET):
        target, planned = _planned(loop, price, draft)
        now = fingerprint(planned)
        if draft.expects and draft.expects != now:
            raise Conflict(
                "the fleet has changed since its diff was made",
                hint="look at the diff once more, then apply",
            )
        why = f"{draft.name} {_digest(draft)}{f': {draft.why}' if draft.why else ''}"
        for one in planned:
            try:
                _make(loop, one, draft.who, why)
            except TuningError as error:
                subject = ", ".join(one.shown.devices)
                error.message = f"{one.shown.action} of {subject}: {error.message}"
                error.hint = "; then ".join(filter(None, [error.hint, "apply the file again"]))
                raise
        return _view(draft, target, planned)


def _planned(loop: Loop, price: EnergyPrice, draft: FleetDraft) -> tuple[Desired, list[Planned]]:
    target = desired(loop, price, TomlText.parse(draft.name, "\n".join(draft.lines)))
    return target, changes(loop, target, prune=draft.prune)


def _view(draft: FleetDraft, target: Desired, planned: list[Planned]) -> FleetDiff:
    declared = {one.shown.devices for one in planned if one.study is not None}
    return FleetDiff(
        changes=tuple(one.shown for one in planned),
        same=len(target.studies) - len(declared),
        empty=tuple(target.empty),
        digest=_digest(draft),
        fingerprint=fingerprint(planned),
    )


def _digest(draft: FleetDraft) -> str:
    whole = "\n".join(draft.lines).encode()
    return f"sha256:{hashlib.sha256(whole).hexdigest()[:12]}"


def _make(loop: Loop, one: Planned, who: str, why: str) -> None:
    """Make one change."""
    if one.study is None:
        halt(loop, one.shown.study, Phase.STOPPED, Change(who=who, why=why))
    elif one.shown.action == "create":
        store(loop, one.study, who, why)
    else:
        _change(loop, one.shown.study, one.study, who, why)


@looking_again
def _change(loop: Loop, study: str, target: Study, who: str, why: str) -> None:
    """Bring a study that continues to what is declared; each step is whole by itself."""
    with loop.changes.lock(study):
        texts = tuple(map(str, target.constraints))
        constrain(loop, study, ConstraintChange(constraints=texts, who=who, why=why))
        limits = ExplorationChange(exploration=target.exploration, who=who, why=why)
        set_exploration(loop, study, limits)
        current = loop.store.studies.get(study)
        if current.group != target.group:
            named = replace(current, group=target.group)
            revise(loop, loop.changes.with_reason(named), who, why, kind="group")
