"""The rows of a plan as operators see them."""

from __future__ import annotations

import math
from dataclasses import replace

from tests.unit.tuner.bo.served import BY, SPACE, asked, at_baseline
from tuner.core import Past, Plan, Row, Terms
from tuner.service.plan_views import row_views


def test_windows_of_the_baseline_at_another_load_are_not_claimed_for_a_row() -> None:
    plan = Plan((Row(20.0, SPACE.default, at=15.0), Row(math.inf, SPACE.default, at=90.0)), BY)
    windows = at_baseline(15.0)
    low, high = row_views(
        Past(study=replace(asked(), terms=Terms(), plan=plan), trials=tuple(windows))
    )
    assert low.windows == 2 and low.metrics
    assert high.windows == 0 and not high.metrics
