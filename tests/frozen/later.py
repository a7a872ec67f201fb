"""Further frozen data of 0.2.0: groups, labels, budgets, an audit log."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

from db import Store
from tests.builders import START, completed, setting, study
from tests.frozen.content import AGENT, LIMIT, PLAN, at, described, fill
from tests.frozen.messages import MESSAGES
from tuner.core import (
    AuditEntry,
    BudgetGroup,
    CapKnob,
    CapSchedule,
    CapStep,
    Delivery,
    Device,
    Exploration,
    GridEvent,
    HourRow,
    MaintenanceWindow,
    MemberPower,
    MemberRecord,
    Objective,
    Phase,
    Plan,
    Row,
    Safety,
    Terms,
    TimeSeries,
    TunerReplica,
)
from tuner.wire import (
    Assignment,
    BudgetOrder,
    BudgetReport,
    CapOrder,
    HoldOrder,
    Message,
    Registration,
)

GROUPED = "5c5c5c5c"
"""The study of two devices that a fleet file declared."""
FOLLOWED = Plan((Row(2.0, setting(800)), Row(math.inf, setting(1000))), by="requests_in_system")


WATTS = CapKnob("gpu.power_limit_w", 100.0, 100.0, 350.0)
RACK = BudgetGroup(
    name="rack",
    select={"rack": ("b*",), "id": ("sim*",)},
    watts=TimeSeries(name="by hour", rows=(HourRow(500.0, "8-20", ("mon",)), HourRow(700.0))),
    reboot_after_s=90.0,
    priorities={"sim3*": 2},
    events=(
        GridEvent(
            share=0.75,
            effective_at=at(50.0),
            expires_at=at(50.0) + timedelta(hours=1),
            who="utility",
        ),
    ),
)
MEMBER = MemberRecord(
    device="sim3@edge",
    knobs=(WATTS,),
    group="rack",
    power=MemberPower(
        floor_w=100.0,
        default_w=350.0,
        reboot_after_s=90.0,
        heard_s=1.5,
        sent=(CapSchedule(3, (CapStep(2.0, 120.0, {"gpu.power_limit_w": 120.0}),)),),
    ),
)


def labelled(name: str) -> Device:
    """Return a device with labels, whose joules are shared with others."""
    return replace(described(name), labels={"rack": "b1", "pool": "a100"}, shared="2 MPS clients")


def fill_later(store: Store) -> None:
    """Fill an empty store, as a tuner of 0.2.0 would."""
    fill(store)
    for name in ("sim3@edge", "sim4@edge"):
        store.devices.put(labelled(name))
    store.devices.refuse("sim4@edge", "the disk is full")
    _grouped(store)
    store.budgets.put_group(RACK)
    store.budgets.put_member(MEMBER)
    store.audit.add(
        AuditEntry(
            at=at(44.0), who="ann", role="operator", address="10.0.0.7", method="POST",
            path="/v1/studies", status=201,
        )
    )  # fmt: skip
    store.deliveries.put(
        Delivery("slack", event=2, attempts=3, next_at=at(60.0), why="503", given_up=1)
    )
    store.replicas.tell(
        TunerReplica(
            id="replica-1", host="desk", version="0.2.0", started_at=START, seen_at=at(54.0),
            leads=True, bus_lag_s=0.25, agents={1: 2}, token_mark="ab12", cpu_s=12.5,
            memory_bytes=400_000_000,
        )
    )  # fmt: skip


def _grouped(store: Store) -> None:
    """Add the study in which each device tries a different setting, then a plan by the load."""
    made = study(
        Phase.TUNING,
        ("latency_p99_ms <= 1.2x baseline",),
        ("sim3@edge", "sim4@edge"),
        id=GROUPED,
        group="web",
        objective=Objective("energy_j"),
        second_objective=Objective("latency_p99_ms"),
        terms=Terms(
            trials=6,
            window_s=10.0,
            max_window_s=30.0,
            safety=Safety.ADVISE,
            canary="sim3@edge",
            control_share=0.02,
            control_hours="22-6",
            energy_share=0.5,
            plan_by="requests_in_system",
        ),
        exploration=Exploration(
            windows=(MaintenanceWindow("0 22 * * *", 8.0),),
            time_zone="Europe/Zurich",
            frozen="release day",
            max_time_share=0.5,
            max_energy_share=0.25,
            min_saving=0.02,
        ),
        signals=described("sim3@edge").signals,
        created_at=at(43.0),
    )
    store.studies.add(made, "ann", "declared by fleet.toml")
    for number, name in enumerate(made.devices, 1):
        tried = setting(800) if number == 1 else setting(600)
        store.trials.begin(GROUPED, tried, Phase.TUNING, "its own", at(44.0), {}, device=name)
        store.trials.end(GROUPED, number, completed(8.0, 104.0), at(45.0))
    store.trials.begin(
        GROUPED,
        FOLLOWED.rows[0].setting,
        Phase.CONFIRMING,
        "the table",
        at(46.0),
        {},
        plan=FOLLOWED,
    )
    store.trials.end(GROUPED, 3, completed(7.5, 103.0), at(47.0))


def _later_messages() -> dict[str, Message]:
    """Return messages with the fields that the other messages leave empty."""
    assignment, order = MESSAGES["assignment"], MESSAGES["hold-order"]
    assert isinstance(assignment, Assignment)
    assert isinstance(order, HoldOrder)
    table = {"setting": FOLLOWED.rows[0].setting, "plan": FOLLOWED, "follows": FOLLOWED.by}
    return {
        "registration-with-labels": Registration(device=labelled("sim3@edge")),
        "budget-report": BudgetReport(
            agent=f"{AGENT}/start-1",
            knobs=(WATTS,),
            group="rack",
            revision=3,
            at_most={WATTS.name: 120.0},
            most_w=350.0,
            unable="the driver does not answer",
        ),
        "budget-order": BudgetOrder(
            kind="caps",
            group="rack",
            revision=4,
            steps=(CapOrder(in_s=0.0, cap_w=120.0, at_most={WATTS.name: 120.0}),),
        ),
        "assignment-of-a-plan": assignment.model_copy(update=table),
        "hold-order-that-follows": order.model_copy(
            update={"plan": PLAN, "limits": ((LIMIT,), (), ()), "report_s": 4.0, "follows": PLAN.by}
        ),
    }


LATER_MESSAGES: Mapping[str, Message] = {**MESSAGES, **_later_messages()}
