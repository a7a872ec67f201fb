from __future__ import annotations

import json
import math

import pytest
from pydantic import ValidationError

from tests.builders import setting
from tests.orders import hold_order
from tuner.core import Plan, Row
from tuner.wire import HoldOrder


def sent() -> dict[str, dict[str, object]]:
    plan = Plan((Row(2.0, setting(600)), Row(math.inf, setting())), "waiting", eager=True)
    order = hold_order(plan, setting(), valid_for_s=60.0)
    made: dict[str, dict[str, object]] = json.loads(order.model_dump_json())
    return made


def test_a_plan_is_sent_as_release_0_2_0_has_it() -> None:
    plan = sent()["plan"]
    assert set(plan) == {"rows", "by", "hysteresis", "eager"}
    assert all(set(row) == {"below", "setting", "gain", "at"} for row in plan["rows"])  # type: ignore[attr-defined]


def test_a_plan_for_two_signals_is_refused_by_their_names() -> None:
    made = sent()
    made["plan"]["columns_by"] = "price"
    with pytest.raises(ValidationError, match="plan_by cannot be 'waiting,price'"):
        HoldOrder.model_validate_json(json.dumps(made))
