"""What a draft leaves open, chosen by what its device measures: the same for a run and for a study."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.core import Device, InvalidInput
from tuner.service.drafts import usual_constraint, usual_objective
from tuner.wire import DeviceView, StudyDraft


def drafted(draft: StudyDraft, known: Sequence[DeviceView]) -> StudyDraft:
    """Return a draft with what it leaves open chosen by its first device.

    A device that is not registered chooses nothing: the tuner refuses it by name.

    Raises:
        InvalidInput: nothing was asked for, and the device measures neither energy nor time.
    """
    first = next((v.device for v in known if v.device.id in draft.devices[:1]), None)
    if first is None:
        return draft.model_copy(update={"objective": draft.objective or "energy_j"})
    return drafted_for(draft, first)


def drafted_for(draft: StudyDraft, device: Device) -> StudyDraft:
    """Return a draft with what it leaves open chosen.

    Without an objective it is the first that the device measures of energy, CPU time and latency;
    without constraints the latency may be at most 1.2 times the baseline's, where it is measured.

    Raises:
        InvalidInput: nothing was asked for, and the device measures neither energy nor time.
    """
    measured = [metric.name for metric in device.metrics]
    objective = draft.objective or usual_objective(measured)
    if not objective:
        raise InvalidInput(
            f"{device.id} measures neither energy nor time",
            hint=f"give --objective, one of: {', '.join(measured) or 'nothing is measured'}",
        )
    constraints = draft.constraints
    if constraints is None:
        usual = usual_constraint(measured, objective.rpartition(" ")[2])
        constraints = (usual,) if usual else None
    return draft.model_copy(update={"objective": objective, "constraints": constraints})
