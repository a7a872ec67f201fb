"""A fleet file compared with the present fleet, and applied.

Each change is complete by itself. Applying the file again changes nothing.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from tuner.core import Conflict, Study, TuningError
from tuner.service.budgets.divider import WattDivider
from tuner.service.creation import store
from tuner.service.declared.diff import (
    DeclaredWatts,
    Planned,
    change_watts,
    changes,
    declared_watts,
    fingerprint,
    watts_changes,
)
from tuner.service.declared.file import Desired, FleetFile, desired
from tuner.service.study_changes import constrain, halt, revise, set_exploration
from tuner.study.changes import looking_again
from tuner.study.loop import Loop
from tuner.typed_toml import TomlText
from tuner.wire import Change, ConstraintChange, ExplorationChange, FleetDiff, FleetDraft

FLEET = "fleet file"
"""The lock of all appliers in this process; no study has this id."""


@dataclass(frozen=True)
class DeclaredFleet:
    """The studies and budgets that a file declares, and the changes that they need."""

    studies: Desired
    watts: DeclaredWatts
    planned: list[Planned]


def diff(divider: WattDivider, draft: FleetDraft) -> FleetDiff:
    """Return the changes that a file would make; raises as `Operations.diff_fleet` does."""
    return _view(draft, _planned(divider, draft))


def apply(divider: WattDivider, draft: FleetDraft) -> FleetDiff:
    """Make the changes of a file; raises as `Operations.apply_fleet` does."""
    loop = divider.loop
    with loop.changes.lock(FLEET):
        target = _planned(divider, draft)
        if draft.expects and draft.expects != fingerprint(target.planned):
            raise Conflict(
                "the fleet has changed since its diff was made",
                hint="look at the diff once more, then apply",
            )
        why = f"{draft.name} {_digest(draft)}{f': {draft.why}' if draft.why else ''}"
        for one in target.planned:
            try:
                _make(divider, one, draft.who, why)
            except TuningError as error:
                subject = one.shown.budget or ", ".join(one.shown.devices)
                error.message = f"{one.shown.action} of {subject}: {error.message}"
                error.hint = "; then ".join(filter(None, [error.hint, "apply the file again"]))
                raise
        return _view(draft, target)


def _planned(divider: WattDivider, draft: FleetDraft) -> DeclaredFleet:
    """Return a file's contents and changes: those of budgets before those of the studies within them."""
    text = TomlText.parse(draft.name, "\n".join(draft.lines))
    file = text.into(FleetFile)
    studies = desired(divider.loop, divider.price, text, file)
    watts = declared_watts(divider, text, file, prune=draft.prune)
    planned = watts_changes(divider, watts, prune=draft.prune)
    return DeclaredFleet(
        studies, watts, [*planned, *changes(divider.loop, studies, prune=draft.prune)]
    )


def _view(draft: FleetDraft, target: DeclaredFleet) -> FleetDiff:
    """Return a file's changes as operators see them."""
    planned = target.planned
    declared = {one.shown.devices for one in planned if one.study is not None}
    budgets = sum(one.budget is not None for one in planned)
    return FleetDiff(
        changes=tuple(one.shown for one in planned),
        same=len(target.studies.studies) - len(declared),
        same_budgets=len(target.watts.groups) - budgets,
        empty=(*target.studies.empty, *target.watts.empty),
        observed=tuple(target.studies.observed),
        digest=_digest(draft),
        fingerprint=fingerprint(planned),
    )


def _digest(draft: FleetDraft) -> str:
    """Return the first 12 digits of the SHA-256 of a file's text."""
    whole = "\n".join(draft.lines).encode()
    return f"sha256:{hashlib.sha256(whole).hexdigest()[:12]}"


def _make(divider: WattDivider, one: Planned, who: str, why: str) -> None:
    """Make one change, of a budget or of a study."""
    loop = divider.loop
    if one.shown.budget:
        change_watts(divider, one, who, why)
    elif one.study is None:
        halt(loop, one.shown.study, Change(who=who, why=why))
    elif one.shown.action == "create":
        store(loop, one.study, who, why)
    else:
        _change(loop, one.shown.study, one.study, who, why)


@looking_again
def _change(loop: Loop, study: str, target: Study, who: str, why: str) -> None:
    """Bring a study that continues to its declared state; each step is complete by itself."""
    with loop.changes.lock(study):
        texts = tuple(map(str, target.constraints))
        constrain(loop, study, ConstraintChange(constraints=texts, who=who, why=why))
        limits = ExplorationChange(exploration=target.exploration, who=who, why=why)
        set_exploration(loop, study, limits)
        current = loop.store.studies.get(study)
        if current.group != target.group:
            named = replace(current, group=target.group)
            revise(loop, loop.changes.with_reason(named), who, why, kind="group")
