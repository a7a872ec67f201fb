"""Changes of the limits of exploring while a study runs: windows, shares, freeze and thaw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tuner.core import (
    POWER,
    Device,
    Exploration,
    IllegalTransition,
    InvalidInput,
    MetricUnavailable,
    Mode,
    Study,
    called,
)
from tuner.service.constraining import revise
from tuner.service.inventory import device_of
from tuner.study.loop import Loop
from tuner.study.maintenance_windows import check_windows
from tuner.study.stale import looking_again
from tuner.wire import Change, ExplorationChange


@looking_again
def set_exploration(loop: Loop, study: str, change: ExplorationChange) -> None:
    """Replace the limits of a study's exploring; raises as `Operations.set_exploration` does."""
    with loop.changes.lock(study):
        current = loop.store.studies.get(study)
        if not current.active:
            raise IllegalTransition(f"study {study} is stopped", hint="create a new study")
        if change.exploration == current.exploration:
            return
        changed = replace(current, exploration=change.exploration)
        refuse_exploration(changed, [device_of(loop, name) for name in current.devices])
        why = change.why or f"exploration changed by {change.who}"
        if change.exploration.frozen and not current.exploration.frozen:
            loop.changes.abort(current, f"frozen: {change.exploration.frozen}")
        revise(loop, loop.changes.with_reason(changed), change.who, why, kind="exploration")


def freeze(loop: Loop, study: str, change: Change) -> None:
    """Start no trials until the study is thawed; a held setting stays."""
    exploration = loop.store.studies.get(study).exploration
    frozen = replace(exploration, frozen=change.why or f"by {change.who}")
    set_exploration(
        loop, study, ExplorationChange(exploration=frozen, who=change.who, why=change.why)
    )


def thaw(loop: Loop, study: str, change: Change) -> None:
    """Let a frozen study start trials again."""
    thawed = replace(loop.store.studies.get(study).exploration, frozen="")
    set_exploration(
        loop, study, ExplorationChange(exploration=thawed, who=change.who, why=change.why)
    )


def refuse_exploration(study: Study, devices: Sequence[Device]) -> None:
    """Refuse limits of exploring that cannot be kept.

    Raises:
        InvalidInput: a window cannot open, or the study is continuous, so that all of it is exploring.
        MetricUnavailable: `max_energy_share` is below 1, and a device does not measure its power.
    """
    limits = study.exploration
    if limits == Exploration():
        return
    if study.terms.mode is Mode.CONTINUOUS:
        raise InvalidInput(
            "a continuous study has no exploration to limit: it applies every step",
            hint="leave the exploration out, or pause the study",
        )
    check_windows(limits)
    power = called(POWER, study.quantities)
    blind = next((d.id for d in devices if d.metric(power) is None), None)
    if limits.max_energy_share < 1.0 and blind is not None:
        raise MetricUnavailable(
            f"max_energy_share needs {power}, which {blind} does not measure",
            hint="limit max_time_share instead, or add a meter",
        )
