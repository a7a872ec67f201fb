"""What an operator asks for, read and checked against the devices it is to be done on."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from tuner.core import (
    ENERGY,
    HOUR,
    Condition,
    Constraint,
    Device,
    Estimate,
    InvalidInput,
    Knob,
    MetricUnavailable,
    Objective,
    Origin,
    Part,
    PlansByLoad,
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
"""What one study may name, so that creating it takes milliseconds: values of knobs in all."""


def usual_objective(measured: Collection[str]) -> str:
    """Return the objective for who names none: the first measured of energy, CPU time and latency.

    Nothing where none of these is measured.
    """
    return next((metric for metric in OBJECTIVES if metric in measured), "")


def usual_constraint(measured: Collection[str], objective: str) -> str:
    """Return the limit for who names none: latency at most 1.2 times the baseline's; or nothing."""
    latency = next((m for m in LATENCIES if m in measured and m != objective), None)
    return f"{latency} <= {SLACK}x baseline" if latency else ""


def refuse_too_much(draft: StudyDraft) -> None:
    """Refuse what would keep the tuner busy for longer than a request may.

    Raises:
        InvalidInput: there are too many devices, constraints or values.
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
    """Return a draft with what it leaves open chosen: the same for a run and through every door.

    Without an objective it is the first that the device measures of energy, CPU time and latency;
    without constraints (None) the latency may be at most 1.2 times the baseline's. Where no latency is
    measured there is none, and a study of energy is refused until the operator disables it.

    Raises:
        InvalidInput: nothing was requested, and the device measures neither energy nor time.
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


def constraints_of(
    draft: StudyDraft, objective: Objective, device: Device
) -> tuple[Constraint, ...]:
    """Return the constraints of a draft. For energy, none needs an explicit empty list.

    Raises:
        ConstraintSyntax: one cannot be read.
        InvalidInput: two contradict each other, or nothing is given of any.
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
    """Read constraints, which together must leave a value of every metric.

    Raises:
        ConstraintSyntax: one cannot be read.
        InvalidInput: two contradict each other, by themselves or at this baseline.
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
    """Return the space the study searches: of like devices, cut down as asked.

    A device's knob whose values are words (a governor, a power mode) is searched only where the draft names
    words: the optimiser sees an order in them that is none. So is one that is by choice only.

    Raises:
        InvalidInput and its kin: the devices are not alike, or nothing is left to set.
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
    """Refuse control windows of several devices: what those save together is not billed.

    Raises:
        InvalidInput: it asks for them.
    """
    if draft.terms.control_share > 0.0 and len(draft.devices) > 1:
        raise InvalidInput(
            "control windows need a study of one device, because a "
            "held window is measured on one device and the baseline on all",
            hint="set the control share to 0, or create one study for each device",
        )


def refuse_shared_joules(draft: StudyDraft, devices: Sequence[Device]) -> None:
    """Refuse to count the joules of a shared device as one workload's, unless it is reported how many are.

    Raises:
        InvalidInput: one is shared, and nothing is given.
    """
    shared = next((device for device in devices if device.shared), None)
    if shared is not None and draft.terms.energy_share is None:
        raise InvalidInput(
            f"{shared.id} is shared ({shared.shared}): the energy of this workload alone is not measured",
            hint="set energy_share in the study's terms to the "
            "workload's part (1: all), or do not share the device",
        )


def refuse_unsupported(study: Study, policy: Policy) -> None:
    """Refuse what a study asks for and its policy does not support.

    Raises:
        InvalidInput: there is such a part; the message names it.
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
    """Return the signals that all devices offer; a trial may ask for those it may ask for on each."""
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
    """Refuse a plan by a signal that not all devices offer, or that the policy cannot plan by.

    Raises:
        InvalidInput: it is either, goes by two signals, or the study has several devices.
    """
    by, offered = study.terms.plan_by, {s.name for s in study.signals}
    if not by:
        return
    refuse_two_signals(by)
    if by != HOUR and by not in offered:
        raise InvalidInput(
            f"the target has no signal {by!r} for --plan-by",
            hint=f"its signals: {', '.join([*sorted(offered), HOUR])}",
        )
    if not isinstance(policy, PlansByLoad):
        raise InvalidInput(
            f"the policy {study.policy} does not plan by a signal that is chosen",
            hint="leave --plan-by out, or choose polythrottle",
        )
    if len(study.devices) > 1:
        raise InvalidInput(
            "a plan by the load needs a study of one device: each device has a load of its own",
            hint="make a study for each device",
        )


def require(device: Device, name: str, study: Study) -> None:
    """Refuse a metric that is not measured, or that is only estimated, with the ways out.

    Raises:
        MetricUnavailable: it is either.
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
