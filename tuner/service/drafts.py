"""An operator's draft of a study: open values are chosen, and all are checked against the devices."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from tuner.core import (
    ENERGY,
    Condition,
    Constraint,
    Device,
    Estimate,
    FollowsLoad,
    InvalidInput,
    Knob,
    MetricUnavailable,
    Objective,
    Origin,
    Part,
    Policy,
    RefusesStudies,
    Role,
    Safety,
    SaysWhatItHeeds,
    Signal,
    Space,
    Study,
    Terms,
    by_reason,
    called,
    limits,
    quantity_of,
    refuse_contradiction,
    refuse_two_signals,
)
from tuner.wire import StudyDraft

LATENCIES = ("latency_p99_ms", "latency_ms")
OBJECTIVES = ("energy_j", "cpu_time_ms", *LATENCIES)
SLACK = 1.2
MOST_DEVICES, MOST_CONSTRAINTS, MOST_CHOICES = 256, 32, 10_000
"""The most devices, constraints, and knob values in all, so that creating a study takes milliseconds."""


def usual_constraint(measured: Collection[str], objective: str) -> str:
    """Return the default limit: a latency of at most 1.2 times the baseline's.

    Empty if no latency is measured, or only the one that is the objective.
    """
    latency = next((m for m in LATENCIES if m in measured and m != objective), None)
    return f"{latency} <= {SLACK}x baseline" if latency else ""


def refuse_too_much(draft: StudyDraft) -> None:
    """Refuse a draft whose study would keep the tuner busy for longer than a request may.

    Raises:
        InvalidInput: it has too many devices, values or conditions.
    """
    counts = {
        "devices": (len(draft.devices), MOST_DEVICES),
        "choices": (sum(map(len, draft.choices.values())), MOST_CHOICES),
        "conditions": (len(draft.conditions), MOST_CHOICES),
    }
    for name, (count, most) in counts.items():
        if count > most:
            raise InvalidInput(
                f"{name}: {count} exceeds the limit of a study", hint=f"give {most} at most"
            )


def usual_draft(draft: StudyDraft, device: Device) -> StudyDraft:
    """Return a draft with its open values chosen, the same for a run and for every interface.

    The default objective is the first that the device measures of energy, CPU time and latency. If the
    constraints are None, the latency may be at most 1.2 times the baseline's. Without a measured latency
    there are no constraints, and a study of energy is refused until the operator disables them.

    Raises:
        InvalidInput: no objective is given, and the device measures neither energy nor time.
    """
    measured = [metric.name for metric in device.metrics]
    objective = draft.objective or next((m for m in OBJECTIVES if m in measured), "")
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


def constraints_of(
    draft: StudyDraft, objective: Objective, device: Device
) -> tuple[Constraint, ...]:
    """Return the constraints of a draft. A study of energy without any needs an explicit empty list.

    Raises:
        ConstraintSyntax: one cannot be read.
        InvalidInput: two contradict each other, or a study of energy gives no list.
    """
    if draft.constraints is None and quantity_of(objective.metric, device.quantities).of_energy:
        raise InvalidInput(
            f"{objective.metric} needs a constraint: without one the slowest setting is best",
            hint="add a --constraint; or set --no-constraint "
            "(`constraints: []` over HTTP) to tune without a limit",
        )
    return read_constraints(draft.constraints or (), {})


def read_constraints(
    texts: Sequence[str], baseline: Mapping[str, Estimate]
) -> tuple[Constraint, ...]:
    """Return the parsed constraints, which together must allow a value of every metric.

    Raises:
        ConstraintSyntax: one cannot be read.
        InvalidInput: there are too many, or two contradict each other, by themselves or at this baseline.
    """
    if len(texts) > MOST_CONSTRAINTS:
        raise InvalidInput(
            f"{len(texts)} constraints exceed the limit of a study",
            hint=f"give {MOST_CONSTRAINTS} at most",
        )
    read = tuple(Constraint.parse(text) for text in texts)
    refuse_contradiction(read)
    in_force = limits(read, baseline) or ()
    refuse_contradiction([Constraint(x.metric, x.op, x.value) for x in in_force])
    return read


def space_of(devices: Sequence[Device], draft: StudyDraft) -> Space:
    """Return the space that a study of similar devices searches, restricted by the draft's choices.

    A device's knob whose values are words (a governor, a power mode) stays at its default unless the draft
    names values: the optimiser would assume that the words have an order. So does a knob that is by choice
    only, and one that restarts the workload, unless the terms allow restarts.

    Raises:
        InvalidInput and its subclasses: the devices differ, or no knob has more than one value.
    """
    first = devices[0]
    for device in devices[1:]:
        if (device.space, device.workload) != (first.space, first.workload):
            raise InvalidInput(
                f"{device.id} and {first.id} differ in hardware or workload",
                hint="create one study for each kind of device and workload",
            )
    choices = {name: tuple(values) for name, values in draft.choices.items()}
    fixed = {k.name: (k.default,) for k in first.space.knobs if _waits_for_a_choice(k, draft.terms)}
    conditions = {name: Condition.parse(text) for name, text in draft.conditions.items()}
    space = first.space.restricted({**fixed, **choices}).conditioned(conditions)
    if space.size < 2:
        single = ", ".join(knob.name for knob in space.knobs)
        missing = "; ".join(f"{names}: {why}" for names, why in by_reason(first.cannot))
        restart = [k.name for k in first.space.knobs if k.cost.restart]
        if restart and not draft.terms.allow_restart:
            raise InvalidInput(
                f"no knob of {first.id} may be changed: {', '.join(restart)} restart the workload",
                hint="allow restarts: add --allow-restart, or leave out --no-restart",
            )
        raise InvalidInput(
            f"no knob of {first.id} has more than one value",
            hint=f"offer more than one value of {single}"
            if single
            else missing or "offer more values",
        )
    return space


def _waits_for_a_choice(knob: Knob, terms: Terms) -> bool:
    """Return whether a knob stays at its default unless the operator names values."""
    ordered = knob.role is not Role.UNKNOWN
    words = knob.part is Part.DEVICE and isinstance(knob.default, str) and not ordered
    return words or knob.by_choice or (knob.cost.restart and not terms.allow_restart)


def refuse_controls(draft: StudyDraft) -> None:
    """Refuse control windows of several devices: the saving of these together is not billed.

    Raises:
        InvalidInput: the draft has control windows and several devices.
    """
    if draft.terms.control_share > 0.0 and len(draft.devices) > 1:
        raise InvalidInput(
            "control windows need a study of one device, because a "
            "held window is measured on one device and the baseline on all",
            hint="set the control share to 0, or create one study for each device",
        )


def refuse_shared_joules(draft: StudyDraft, devices: Sequence[Device]) -> None:
    """Refuse a shared device unless the draft gives this workload's share of its energy.

    Raises:
        InvalidInput: a device is shared, and `energy_share` is not given.
    """
    shared = next((device for device in devices if device.shared), None)
    if shared is not None and draft.terms.energy_share is None:
        raise InvalidInput(
            f"{shared.id} is shared ({shared.shared}): the energy of this workload alone is not measured",
            hint="set energy_share in the study's terms to the "
            "workload's part (1: all), or do not share the device",
        )


def refuse_unsupported(study: Study, policy: Policy) -> None:
    """Refuse a study with a part that its policy does not support.

    Raises:
        InvalidInput: it has such a part; the message names it.
    """
    supported = (
        policy.heeds if isinstance(policy, SaysWhatItHeeds) else {"objective", "constraints"}
    )
    metric, energy = study.objective.metric, called(ENERGY, study.quantities)
    parts: Mapping[str, tuple[str, str]] = {
        "second_objective": (
            f"the second objective {study.second_objective.metric}"
            if study.second_objective
            else "",
            "leave the second objective out",
        ),
        "constraints": (
            f'the constraint "{study.constraints[0]}"' if study.constraints else "",
            "leave the constraints out (--no-constraint)",
        ),
        "safety": (
            "the safety strict" if study.terms.safety is Safety.STRICT else "",
            "leave --safety out",
        ),
        "objective": (
            f"the objective {metric}" if metric != energy else "",
            f"choose the objective {energy}",
        ),
    }
    for part, (phrase, instead) in parts.items():
        if phrase and part not in supported:
            other = "pareto" if part == "second_objective" else "polythrottle"
            raise InvalidInput(
                f"the policy {study.policy} does not support {phrase}",
                hint=f"{instead}, or choose the policy {other}",
            )
    if isinstance(policy, RefusesStudies):
        policy.refuse(study)


def signals_of(devices: Sequence[Device]) -> tuple[Signal, ...]:
    """Return the signals that all devices offer in the same unit.

    A signal is askable, or followed, only if it is on every device.
    """
    offered = [{s.name: s for s in device.signals} for device in devices]
    return tuple(
        replace(
            signal,
            askable=all(o[signal.name].askable for o in offered),
            followed=all(o[signal.name].followed for o in offered),
        )
        for signal in devices[0].signals
        if all(o.get(signal.name, signal).unit == signal.unit and signal.name in o for o in offered)
    )


def refuse_plan(study: Study, policy: Policy) -> None:
    """Refuse to follow a signal that not all devices offer, or with a policy that has rows of its own.

    Raises:
        InvalidInput: it is one of these, the plan is by two signals, or the study has several devices.
    """
    by, offered = study.terms.plan_by, {s.name for s in study.signals}
    if not by:
        return
    refuse_two_signals(by)
    if by not in offered:
        raise InvalidInput(
            f"plan_by cannot be {by!r}: the target has no such signal",
            hint=f"its signals: {', '.join(sorted(offered)) or 'none'}",
        )
    if not isinstance(policy, FollowsLoad) or not policy.follows_load:
        raise InvalidInput(
            f"plan_by cannot be {by!r}: the policy {study.policy} follows no chosen signal",
            hint="leave --plan-by out, or choose polythrottle",
        )
    if len(study.devices) > 1:
        raise InvalidInput(
            "to follow a load needs a study of one device: each device has a load of its own",
            hint="make a study for each device",
        )


def require(device: Device, name: str, study: Study) -> None:
    """Refuse a metric that a device does not measure, or only estimates; the hint gives the alternatives.

    Raises:
        MetricUnavailable: it is not measured, or is an estimate that the study does not allow.
    """
    metric = device.metric(name)
    measured = ", ".join(m.name for m in device.metrics) or "nothing"
    if metric is None:
        reason = device.cannot.get(name, "no meter of this device measures it")
        ways = f"choose another metric ({measured}) or add a meter"
        raise MetricUnavailable(f"{name} is not measured on {device.id}: {reason}", hint=ways)
    if metric.origin is Origin.ESTIMATED and not study.terms.allow_estimated:
        raise MetricUnavailable(
            f"{name} on {device.id} is an estimate, not a measurement",
            hint="allow it explicitly (allow_estimated), add a meter, or choose another metric",
        )
