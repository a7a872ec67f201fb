"""A study out of what an operator asks for: chosen where it is left open, refused where it does not fit."""

from __future__ import annotations

import uuid

from tuner.core import InvalidInput, Objective, Study
from tuner.service.drafts import (
    constraints_of,
    refuse_controls,
    refuse_plan,
    refuse_shared_joules,
    refuse_too_much,
    refuse_unheeded,
    require,
    signals_of,
    space_of,
    usual_draft,
)
from tuner.service.inventory import device_of
from tuner.study.loop import Loop
from tuner.wire import StudyDraft


def create(loop: Loop, draft: StudyDraft) -> str:
    """Store a study, have its devices told, and return its id. Raises as `Operations.create` does."""
    refuse_too_much(draft)
    devices = [device_of(loop, name) for name in draft.devices]
    if not devices:
        raise InvalidInput("a study needs a device", hint="list them with `device list`")
    draft = usual_draft(draft, devices[0])
    refuse_controls(draft)
    refuse_shared_joules(draft, devices)
    policy = loop.policies(draft.policy)
    objective = Objective.parse(draft.objective, devices[0].quantities)
    study = Study(
        id=uuid.uuid4().hex[:8],
        devices=draft.devices,
        workload=devices[0].workload,
        space=space_of(devices, draft),
        objective=objective,
        quantities={n: q for d in reversed(devices) for n, q in d.quantities.items()},
        signals=signals_of(devices),
        constraints=constraints_of(draft, objective, devices[0]),
        policy=draft.policy,
        seed=draft.seed,
        terms=draft.terms,
        created_at=loop.now(),
    )
    for device in devices:
        for metric in (objective.metric, *(c.metric for c in study.constraints)):
            require(device, metric, study)
    refuse_unheeded(study, policy)
    refuse_plan(study, policy)
    loop.store.studies.add(study, draft.who, "created")
    loop.changes.publish(study)
    wishes = ", ".join(map(str, study.constraints)) or "no constraint"
    asked = f"{objective.goal} {objective.metric} under {wishes}"
    loop.changes.note("created", f"{asked} by {draft.who}", study.id)
    return study.id
