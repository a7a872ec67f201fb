from __future__ import annotations

import json

from tests.builders import rate_table, setting
from tuner.core import Plan
from tuner.wire import HoldOrder


def order(plan: Plan) -> HoldOrder:
    return HoldOrder(
        study="s1",
        revision=1,
        plan=plan,
        baseline=setting(),
        limits=((),) * len(plan.rows),
        metrics=("energy_j",),
        valid_for_s=60.0,
        observe_s=60.0,
        window_s=10.0,
    )


def test_a_plan_by_one_signal_is_sent_as_before_there_were_tables() -> None:
    sent = json.loads(order(rate_table("waiting").columns[0]).model_dump_json())["plan"]
    assert set(sent) == {"rows", "by", "hysteresis", "eager"}
    assert all(set(row) == {"below", "setting", "gain", "at"} for row in sent["rows"])


def test_a_table_arrives_as_it_was_sent() -> None:
    sent = order(rate_table("waiting"))
    assert HoldOrder.model_validate_json(sent.model_dump_json()) == sent
