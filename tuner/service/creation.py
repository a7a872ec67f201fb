"""Creation of a study from an operator's draft: open values are chosen, unfit ones refused."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from types import MappingProxyType

from tuner.core import (
    POWER,
    Device,
    Exploration,
    InvalidInput,
    MetricUnavailable,
    Mode,
    Objective,
    Requested,
    Study,
    TuningError,
    called,
)
from tuner.service.drafts import (
    constraints_of,
    refuse_controls,
    refuse_plan,
    refuse_shared_joules,
    refuse_too_much,
    refuse_unsupported,
    require,
    signals_of,
    space_of,
    usual_draft,
)
from tuner.service.inventory import device_of
from tuner.study.exploring import check_windows
from tuner.study.loop import Loop
from tuner.wire import StudyDraft


def create(loop: Loop, draft: StudyDraft) -> str:
    """Store a study, notify its devices, and return its id. Raises as `Operations.create` does."""
    study = drafted(loop, draft)
    store(loop, study, draft.who, "created")
    return study.id


def store(loop: Loop, study: Study, who: str, why: str) -> None:
    """Store a new study and notify its devices. Raises DeviceBusy."""
    loop.store.studies.add(study, who, why)
    loop.changes.publish(study)
    constraints = ", ".join(map(str, study.constraints)) or "no constraint"
    text = f"{study.objective} under {constraints} by {who}"
    loop.changes.note("created", text, study.id)


def drafted(
    loop: Loop, draft: StudyDraft, registered: Mapping[str, Device] = MappingProxyType({})
) -> Study:
    """Return the study of a draft without storing it; an error names the draft's `key` at fault.

    `registered` are devices that need not be read from the store.

    Raises:
        NotFound, InvalidInput and its subclasses: as `Operations.create` does.
    """
    refuse_too_much(draft)
    with about("devices"):
        devices = [registered.get(name) or device_of(loop, name) for name in draft.devices]
        if not devices:
            raise InvalidInput("a study needs a device", hint="list them with `device list`")
        for device in devices:
            if device.observed:
                raise InvalidInput(
                    f"{device.id} is only observed: its agent has no actuator for it",
                    hint="remove `observe` from its [[device]] table in agent.toml, and restart the agent",
                )
    with about("objective"):
        draft = usual_draft(draft, devices[0])
        objective = Objective.parse(draft.objective, devices[0].quantities)
    with about("second_objective"):
        second = (
            Objective.parse(draft.second_objective, devices[0].quantities)
            if draft.second_objective
            else None
        )
    with about("terms"):
        refuse_controls(draft)
        refuse_shared_joules(draft, devices)
    with about("policy"):
        policy = loop.policies(draft.policy)
    with about("choices"):
        space = space_of(devices, draft)
    with about("constraints"):
        constraints = constraints_of(draft, objective, devices[0])
    with about("terms"):
        study = Study(
            **{field.name: getattr(draft, field.name) for field in fields(Requested)},
            id=uuid.uuid4().hex[:8],
            devices=draft.devices,
            workload=devices[0].workload,
            space=space,
            objective=objective,
            second_objective=second,
            quantities={n: q for d in reversed(devices) for n, q in d.quantities.items()},
            signals=signals_of(devices),
            constraints=constraints,
            exploration=draft.exploration,
            group=draft.group,
            created_at=loop.now(),
        )
    for key, metrics in (
        ("objective", [objective.metric]),
        ("second_objective", [second.metric] if second else []),
        ("constraints", [c.metric for c in constraints]),
    ):
        with about(key):
            for device in devices:
                for metric in metrics:
                    require(device, metric, study)
    with about("exploration"):
        refuse_exploration(study, devices)
    with about("policy"):
        refuse_unsupported(study, policy)
    with about("terms"):
        refuse_plan(study, policy)
    return study


@contextmanager
def about(key: str) -> Iterator[None]:
    """Set the draft's key in errors of the block that name no key."""
    try:
        yield
    except TuningError as error:
        error.key = error.key or key
        raise


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
