from __future__ import annotations

import math

import pytest

from tests.builders import START, setting
from tuner.core import Bill, Estimate, Limit, Phase, Plan, Row, Terms
from tuner.presentation.reports import PLAN_COLUMNS, plan_lines, plan_table
from tuner.wire import PlanRowView, SettingView, StudyReport, StudyView

BY = "arrival_rate_per_s"
PLAN = Plan((Row(12.0, setting(600), at=11.0), Row(math.inf, setting())), BY, eager=True)


def report(plan: Plan = PLAN, *rows: PlanRowView) -> StudyReport:
    view = StudyView(
        id="s1",
        devices=("sim",),
        workload="inference",
        policy="polythrottle",
        seed=0,
        objective="minimize energy_j",
        constraints=("latency_p99_ms <= 60",),
        phase=Phase.HOLDING,
        phase_why="confirmed",
        revision=3,
        terms=Terms(plan_by=BY),
        settings=12,
        trials={},
        baseline=SettingView(setting=setting(), metrics={}),
        plan=plan,
        created_at=START,
    )
    return StudyReport(study=view, baseline=view.baseline, bill=Bill(), origins={}, rows=rows)


SLOW = PlanRowView(
    setting=setting(600),
    at=11.0,
    windows=2,
    limits=(Limit("latency_p99_ms", "<=", 60.0),),
    metrics={"latency_p99_ms": Estimate.of_mean(45.2, 1.0, 500)},
    saving=Estimate.of_mean(0.393, 0.006, 2),
)
BASE = PlanRowView(setting=setting())


def test_a_row_shows_its_range_setting_reason_limit_and_saving() -> None:
    first, last = plan_table(report(PLAN, SLOW, BASE))
    assert len(first) == len(PLAN_COLUMNS)
    assert first[0] == f"{BY} below 12" and "600" in first[1]
    assert first[2:] == (
        "2 windows at 11",
        "latency_p99_ms 45.20 ms (limit 60.00 ms)",
        "39.3 ± 0.6 %",
    )
    assert last[0] == f"{BY} from 12 on" and last[2:] == ("–", "–", "–")


def test_a_line_leaves_out_unknown_values() -> None:
    first, last = plan_lines(report(PLAN, SLOW, BASE))
    assert "saves 39.3 ± 0.6 %" in first and "–" not in last


@pytest.mark.parametrize("plan", [PLAN, Plan.single(setting(600))])
def test_without_rows_there_is_no_table(plan: Plan) -> None:
    assert plan_table(report(plan)) == [] or len(plan.rows) == 1
