"""The watts that a member of a budget may draw, and those of a group, over time."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta

import pytest

from tests.builders import START, device
from tests.errors import raised
from tuner.core import (
    CEILING_MARGIN,
    LATE_S,
    BudgetGroup,
    CapKnob,
    CapSchedule,
    CapStep,
    CeilingPower,
    GridEvent,
    HourRow,
    InvalidInput,
    MemberPower,
    MemberRecord,
    TimeSeries,
)

FLOOR_W, DEFAULT_W, REBOOT_S = 100.0, 400.0, 60.0
MEMBER = MemberPower(
    floor_w=FLOOR_W, default_w=DEFAULT_W, reboot_after_s=REBOOT_S, heard_s=0.0, member=True
)


def schedule(revision: int, *steps: tuple[float, float]) -> CapSchedule:
    return CapSchedule(revision, tuple(CapStep(at_s, watts) for at_s, watts in steps))


def test_a_member_without_caps_counts_as_its_floor_and_any_other_as_its_default_limit() -> None:
    assert MEMBER.watts(1.0) == FLOOR_W
    assert MEMBER.releasing().watts(1.0) == DEFAULT_W
    assert MEMBER.heard(1.0, 0, member=False).watts(1.0) == DEFAULT_W


def test_a_cap_counts_as_sent_but_the_earlier_one_counts_until_it_is_acknowledged() -> None:
    high = MEMBER.sending(schedule(1, (0.0, 300.0)))
    assert high.watts(1.0) == 300.0
    low = high.heard(2.0, 1).sending(schedule(2, (3.0, 200.0)))
    assert [low.watts(t) for t in (4.0, 40.0)] == [300.0, 300.0]
    assert low.heard(5.0, 1).watts(5.0) == 300.0
    assert low.heard(5.0, 2).watts(5.0) == 200.0


def test_the_watts_of_a_lower_step_count_from_its_deadline_and_of_a_higher_one_on_time() -> None:
    ahead = MEMBER.sending(schedule(1, (0.0, 300.0), (20.0, 150.0), (40.0, 350.0))).heard(1.0, 1)
    times = (19.0, 19.9 + LATE_S, 20.0 + LATE_S, 39.9, 40.0)
    assert [ahead.watts(t) for t in times] == [300.0, 300.0, 150.0, 150.0, 350.0]


def test_a_silent_member_counts_as_its_last_cap_and_after_a_reboot_as_its_default_limit() -> None:
    silent = MEMBER.sending(schedule(1, (0.0, 200.0))).heard(5.0, 1)
    assert silent.watts(5.0 + REBOOT_S) == 200.0
    assert silent.watts(5.1 + REBOOT_S) == DEFAULT_W
    assert silent.heard(70.0, 0).watts(70.0) == FLOOR_W


def test_if_the_steps_are_unknown_the_highest_counts() -> None:
    assert MEMBER.heard(1.0, 7, most_w=320.0).watts(1.0) == 320.0


def test_a_cap_below_the_floor_counts_as_the_floor() -> None:
    assert MEMBER.sending(schedule(1, (0.0, 50.0))).heard(1.0, 1).watts(1.0) == FLOOR_W


def test_revisions_and_times_ascend() -> None:
    with raised(InvalidInput, "revision 1"):
        MEMBER.sending(schedule(1, (0.0, 1.0))).sending(schedule(1, (0.0, 2.0)))
    with raised(InvalidInput):
        schedule(1, (2.0, 1.0), (1.0, 1.0))


@pytest.mark.parametrize("seed", range(200))
def test_no_host_that_keeps_to_its_steps_exceeds_the_counted_watts(seed: int) -> None:
    """Messages are lost, answers are late, hosts reboot, tuners forget; a step is at most LATE_S late."""
    rng = random.Random(seed)
    counted, now, revision = MEMBER, 0.0, 0
    host, lag_s, up_at = CapSchedule(0), 0.0, -1.0

    def drawn(at_s: float) -> float:
        if at_s < up_at:
            return DEFAULT_W
        step = host.shifted(lag_s).step(at_s)
        return max(FLOOR_W, step.cap_w if step else 0.0)

    for _ in range(60):
        now += rng.choice((0.1, 1.0, 5.0, 15.0))
        if now >= up_at >= 0.0:
            up_at = -1.0
        match rng.choice(("send", "send", "answer", "answer", "reboot", "forget")):
            case "send":
                revision += 1
                steps = sorted(
                    (now + rng.uniform(0.0, 30.0), rng.uniform(50.0, 400.0)) for _ in "ab"
                )
                sent = schedule(revision, (now, rng.uniform(50.0, 400.0)), *steps)
                counted = counted.sending(sent)
                if up_at < 0.0 and rng.random() < 0.7:
                    host, lag_s = sent, rng.uniform(0.0, 0.9 * LATE_S)
                    now += lag_s
            case "answer" if up_at < 0.0:
                most_w = max((step.cap_w for step in host.steps), default=0.0)
                counted = counted.heard(now, host.revision, most_w)
            case "reboot" if now - counted.heard_s > REBOOT_S:
                host, up_at = CapSchedule(0), now + 30.0
            case "forget" if up_at < 0.0:
                counted = MEMBER.heard(
                    now, host.revision, max((s.cap_w for s in host.steps), default=0.0)
                )
        assert drawn(now) <= counted.watts(now) + 1e-9


GROUP = BudgetGroup(
    name="rack",
    select={"board": ("A100*",)},
    watts=TimeSeries(rows=(HourRow(500.0, "13-14"), HourRow(800.0))),
)


def event(after_s: float, lasts_s: float = 600.0, **limit: float) -> GridEvent:
    at = START + timedelta(seconds=after_s)
    return GridEvent(effective_at=at, expires_at=at + timedelta(seconds=lasts_s), **limit)  # type: ignore[arg-type]


def steps(group: BudgetGroup, after_s: float = 0.0) -> list[tuple[float, float]]:
    now = START + timedelta(seconds=after_s)
    listed = group.steps(None, now)
    return [(at_s - START.timestamp(), watts) for at_s, watts in listed]


def test_hours_of_the_next_six_are_known_ahead() -> None:
    (began, now_w), *later = steps(GROUP)
    assert began <= -10.0
    assert now_w == 800.0
    assert later == [(3600.0, 500.0), (7200.0, 800.0)]


def test_a_step_keeps_the_time_at_which_it_began() -> None:
    group = GROUP.with_event(event(0.0, share=0.5), START)
    assert steps(group, 4.0)[:2] == [(0.0, 400.0), (600.0, 800.0)]
    assert steps(group, 100.0)[0][0] <= 90.0, "and counts fully after ten seconds"


def test_the_lowest_of_several_events_counts() -> None:
    group = GROUP.with_event(event(0.0, watts=600.0), START)
    group = group.with_event(event(60.0, 60.0, share=0.5), START)
    assert [w for _, w in steps(group)[:4]] == [600.0, 400.0, 600.0, 800.0]


def test_events_that_are_over_are_left_out_when_one_is_added() -> None:
    group = GROUP.with_event(event(0.0, 10.0, watts=1.0), START)
    group = group.with_event(event(60.0, watts=2.0), START + timedelta(seconds=30))
    assert [e.watts for e in group.events] == [2.0]


def test_a_series_that_is_not_known_leaves_no_watts() -> None:
    group = replace(GROUP, watts=None, series="grid")
    assert [w for _, w in steps(group)] == [0.0]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"select": {}}, "select"),
        ({"watts": None}, "rack"),
        ({"series": "grid"}, "rack"),
        ({"reboot_after_s": 5.0}, "5"),
    ],
)
def test_a_group_that_does_not_fit_is_refused_by_name(
    change: dict[str, object], named: str
) -> None:
    with raised(InvalidInput, named):
        replace(GROUP, **change)  # type: ignore[arg-type]


def test_an_event_needs_one_limit_and_an_end() -> None:
    for wrong in ({}, {"watts": 1.0, "share": 0.5}, {"share": 1.5}, {"watts": -1.0}):
        with raised(InvalidInput):
            event(0.0, **wrong)
    with raised(InvalidInput, "expires_at"):
        event(0.0, 0.0, watts=1.0)


def test_devices_are_selected_and_have_the_priority_of_the_first_pattern() -> None:
    group = replace(GROUP, priorities={"chat*": 2, "*": 1})
    assert group.selects(device("chat1"))
    assert not replace(group, select={"rack": ("a",)}).selects(device("chat1"))
    assert (group.priority("chat1"), group.priority("batch")) == (2, 1)
    assert GROUP.priority("chat1") == 0


def test_a_cap_is_shared_by_the_knobs_of_a_device() -> None:
    knobs = (CapKnob("gpu.w", 100.0, 100.0, 300.0), CapKnob("cpu.uw", 50e6, 50.0, 150.0))
    power = MemberPower(floor_w=150.0, default_w=450.0, reboot_after_s=60.0, heard_s=0.0)
    record = MemberRecord(device="a", knobs=knobs, power=power)
    assert record.at_most(300.0) == {"gpu.w": 200.0, "cpu.uw": 100e6}
    assert record.at_most(90.0) == {"gpu.w": 100.0, "cpu.uw": 50e6}
    assert record.in_watts
    assert not replace(record, knobs=(CapKnob("cpu.mhz", 1000.0),)).in_watts


CPU = "cpu.max_mhz"


def by_clock(
    *measured: tuple[float, float], limit_w: float | None = None, floor: float = 1000.0
) -> MemberRecord:
    """Return a member by clock, with windows of a ceiling and its watts."""
    knob = CapKnob(CPU, floor, default_w=limit_w, default=3000.0)
    power = MemberPower(floor_w=0.0, default_w=0.0, reboot_after_s=60.0, heard_s=0.0)
    record = MemberRecord(device="a", knobs=(knob,), power=power)
    return record.with_ceilings([CeilingPower({CPU: mhz}, watts) for mhz, watts in measured])


def counts(record: MemberRecord) -> dict[float, float]:
    return {c.at_most[CPU]: round(c.watts / CEILING_MARGIN, 6) for c in record.ceilings}


def test_a_clock_ceiling_counts_with_the_highest_power_at_or_below_it_and_a_margin() -> None:
    record = by_clock(
        (1200.0, 60.0), (2000.0, 90.0), (2000.0, 100.0), (2500.0, 95.0), (3000.0, 150.0)
    )
    assert counts(record) == {
        1000.0: 60.0,
        1200.0: 60.0,
        2000.0: 100.0,
        2500.0: 100.0,
        3000.0: 150.0,
    }
    assert (record.in_watts, record.by_clock) == (True, True)
    assert (record.floor_w, record.default_w) == (CEILING_MARGIN * 60.0, CEILING_MARGIN * 150.0)
    assert record.at_most(CEILING_MARGIN * 60.0) == {CPU: 1200.0}
    assert record.at_most(CEILING_MARGIN * 99.0) == {CPU: 1200.0}
    assert record.at_most(CEILING_MARGIN * 100.0) == {CPU: 2500.0}
    assert record.at_most(1e6) == {CPU: 3000.0}
    assert record.at_most(0.0) == {CPU: 1000.0}


def test_without_power_at_the_floor_or_the_original_clock_nothing_is_known() -> None:
    for measured in ([], [(1200.0, 60.0)], [(2900.0, 60.0)]):
        assert not by_clock(*measured).in_watts
    assert by_clock((3000.0, 60.0)).in_watts, "at a lower clock it draws no more"


def test_the_drivers_limit_counts_without_a_measurement() -> None:
    assert [c.watts for c in by_clock(limit_w=200.0).ceilings] == [200.0, 200.0]
    record = by_clock((1500.0, 100.0), (3000.0, 195.0), limit_w=200.0)
    assert [c.watts for c in record.ceilings] == [
        CEILING_MARGIN * 100.0,
        CEILING_MARGIN * 100.0,
        200.0,
    ]


def test_an_excess_also_counts_for_the_sent_steps() -> None:
    record = by_clock((1200.0, 60.0), (2000.0, 100.0), (3000.0, 150.0))
    step = CapStep(0.0, 110.0, {CPU: 2000.0})
    record = replace(record, power=record.power.sending(CapSchedule(1, (step,))))
    known = [CeilingPower({CPU: 1200.0}, 60.0), CeilingPower({CPU: 3000.0}, 150.0)]
    after = record.exceeding(130.0, {CPU: 2000.0}, known, 5.0)
    assert counts(after) == {1000.0: 60.0, 1200.0: 60.0, 2000.0: 130.0, 3000.0: 150.0}
    first, floor = after.power.sent
    assert first.steps[0].cap_w == CEILING_MARGIN * 130.0
    assert (floor.revision, floor.steps) == (
        2,
        (CapStep(5.0, CEILING_MARGIN * 60.0, {CPU: 1000.0}),),
    )
    again = after.exceeding(120.0, {CPU: 2000.0}, [], 6.0)
    assert again.exceeded == after.exceeded
    assert again.in_watts, "what is known does not become unknown"
    at_floor = after.exceeding(80.0, {CPU: 1000.0}, known, 6.0)
    assert at_floor.power.floor_w == CEILING_MARGIN * 80.0


def test_measured_watts_of_few_ceilings_count_for_all() -> None:
    record = by_clock((1200.0, 60.0), (2000.0, 100.0), (3000.0, 150.0))
    for n in range(60):
        at = 1000.0 + 30.0 * n
        record = record.exceeding(100.0 + n, {CPU: at, "of no knob": float(n)}, [], float(n))
        assert len(record.exceeded) <= 16
        assert max(c.watts for c in record.exceeded if c.at_most[CPU] <= at) == 100.0 + n
    assert {name for c in record.exceeded for name in c.at_most} == {CPU}


def test_several_clocks_are_compared_by_their_own_measurements() -> None:
    knobs = tuple(CapKnob(name, 1.0, default=3.0) for name in ("a", "b"))
    power = MemberPower(floor_w=0.0, default_w=0.0, reboot_after_s=60.0, heard_s=0.0)
    record = MemberRecord(device="a", knobs=knobs, power=power).with_ceilings(
        [
            CeilingPower({"a": 1.0, "b": 1.0}, 10.0),
            CeilingPower({"a": 3.0, "b": 1.0}, 25.0),
            CeilingPower({"a": 2.0, "b": 2.0}, 20.0),
            CeilingPower({"a": 3.0, "b": 3.0}, 30.0),
        ]
    )
    assert record.at_most(CEILING_MARGIN * 22.0) == {"a": 2.0, "b": 2.0}
    assert record.at_most(CEILING_MARGIN * 26.0) == {"a": 3.0, "b": 1.0}
