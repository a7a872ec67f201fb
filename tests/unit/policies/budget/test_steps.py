"""Caps in order: after every death, silence or late answer their sum stays within the budget."""

from __future__ import annotations

import pytest

from policies.budget.division import BudgetMember
from policies.budget.steps import ANSWER_S, SILENT_S, GroupMember, plan_group
from tests.bench.budgets.random_fleets import play
from tuner.core import LATE_S, CapSchedule, CapStep, MemberPower

FRONT = ((100.0, 1.0), (150.0, 1.5), (200.0, 1.9), (250.0, 2.2), (300.0, 2.4))


@pytest.mark.parametrize("seed", range(30))
def test_random_fleets_keep_their_budget_their_floors_and_use_their_watts(seed: int) -> None:
    outcome = play(seed)
    assert outcome.above_w <= 1e-6
    assert outcome.below_floor == 0
    assert outcome.unused_w <= 6.0
    assert outcome.drawn_above_w <= 1e-6


def member(
    name: str, cap_w: float, heard_s: float = 0.0, sent: tuple[CapSchedule, ...] = ()
) -> GroupMember:
    """Return a member that has acknowledged a cap."""
    schedule = CapSchedule(1, (CapStep(-100.0, cap_w),))
    power = MemberPower(
        floor_w=100.0,
        default_w=350.0,
        reboot_after_s=300.0,
        heard_s=heard_s,
        member=True,
        acknowledged=schedule,
        sent=sent,
    )
    return GroupMember(BudgetMember(name, 100.0, 300.0, FRONT), power, 0.0 if sent else None)


def cap_of(schedule: CapSchedule, at_s: float) -> float:
    step = schedule.step(at_s)
    assert step is not None
    return step.cap_w


def test_a_cap_is_raised_only_once_the_other_member_has_acknowledged_its_lower_cap() -> None:
    high, low = member("high", 300.0), member("low", 100.0)
    flat = BudgetMember("high", 100.0, 300.0, ((100.0, 3.0), (300.0, 3.1)))
    group = [GroupMember(flat, high.power), low]
    first = plan_group(group, [(-50.0, 400.0)], 0.0)
    assert {n: cap_of(s, 0.0) for n, s in first.schedules.items()} == {"high": 100.0}
    lowered = high.power.sending(first.schedules["high"])
    assert not plan_group([GroupMember(flat, lowered, 0.0), low], [(-50.0, 400.0)], 1.0).schedules
    heard = lowered.heard(2.0, 2)
    then = plan_group([GroupMember(flat, heard), low], [(-50.0, 400.0)], 2.0)
    assert {n: cap_of(s, 2.0) for n, s in then.schedules.items()} == {"low": 300.0}


def test_a_step_known_ahead_is_handed_out_before_and_lowers_without_the_tuner() -> None:
    group = [member("a", 200.0), member("b", 200.0)]
    plan = plan_group(group, [(-50.0, 400.0), (60.0, 300.0)], 0.0)
    assert sorted(plan.schedules) == ["a", "b"]
    assert sum(cap_of(s, 0.0) for s in plan.schedules.values()) == 400.0
    assert sum(cap_of(s, 60.0) for s in plan.schedules.values()) <= 300.0


def test_a_cap_a_fraction_of_a_watt_above_the_floor_is_lowered_too() -> None:
    group = [member("a", 100.2), member("b", 100.2)]
    plan = plan_group(group, [(-50.0, 200.0)], 0.0)
    assert {n: cap_of(s, 0.0) for n, s in plan.schedules.items()} == {"a": 100.0, "b": 100.0}


def test_watts_of_a_later_step_are_given_at_its_time() -> None:
    group = [member("a", 200.0), member("b", 200.0)]
    assert not plan_group(group, [(-50.0, 400.0), (60.0, 600.0)], 0.0).schedules
    assert plan_group(group, [(60.0, 600.0)], 61.0).schedules


def test_a_silent_member_keeps_its_cap_and_the_others_give_it_up() -> None:
    group = [member("gone", 300.0, heard_s=-SILENT_S - 1.0), member("here", 300.0)]
    plan = plan_group(group, [(-50.0, 450.0)], 0.0)
    assert plan.unreachable == ("gone",)
    assert cap_of(plan.schedules["here"], 0.0) == 100.0, "to the floor, until the sum fits"
    fits = [group[0], member("here", 100.0)]
    assert cap_of(plan_group(fits, [(-50.0, 450.0)], 1.0).schedules["here"], 1.0) == 150.0


def test_a_member_that_may_have_rebooted_counts_with_its_default_limit() -> None:
    group = [member("gone", 200.0, heard_s=-301.0), member("here", 200.0)]
    plan = plan_group(group, [(-50.0, 400.0)], 0.0)
    assert plan.missing_w == 50.0
    assert cap_of(plan.schedules["here"], 0.0) == 100.0


def test_a_member_that_does_not_acknowledge_is_unreachable_before_the_step_counts() -> None:
    sent = (CapSchedule(2, (CapStep(0.0, 100.0),)),)
    group = [member("slow", 300.0, sent=sent), member("here", 300.0)]
    assert ANSWER_S < LATE_S
    plan = plan_group(group, [(0.0, 450.0)], ANSWER_S + 0.1)
    assert plan.unreachable == ("slow",)
    assert cap_of(plan.schedules["here"], ANSWER_S + 0.1) == 100.0


def test_below_the_floors_all_go_to_the_floor_and_the_missing_watts_are_known() -> None:
    plan = plan_group([member("a", 200.0), member("b", 200.0)], [(0.0, 150.0)], 0.0)
    assert plan.missing_w == 50.0
    assert [cap_of(s, 0.0) for s in plan.schedules.values()] == [100.0, 100.0]


def test_a_group_that_needs_no_change_is_sent_nothing() -> None:
    group = [member("a", 200.0), member("b", 200.0)]
    assert not plan_group(group, [(-50.0, 400.0)], 0.0).schedules


def test_an_old_answer_does_not_undo_acknowledged_caps() -> None:
    late = member("late", 300.0).answered(5.0, 0)
    assert late.watts(6.0, 6.0) == 300.0, "the host may have it still"
    again = late.answered(7.0, 1)
    assert again.power.sent == ()
    assert again.sent_s is None
