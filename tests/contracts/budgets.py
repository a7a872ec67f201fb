"""The contract of every store of budget groups."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from db import Store
from tests.builders import START
from tests.contracts.threads import together
from tests.errors import raised
from tuner.core import (
    BudgetGroup,
    CapKnob,
    CapSchedule,
    CapStep,
    GridEvent,
    HourRow,
    MemberPower,
    MemberRecord,
    NotFound,
    StaleRevision,
    TimeSeries,
)

EVENT = GridEvent(share=0.75, effective_at=START, expires_at=START + timedelta(hours=1), who="grid")
GROUP = BudgetGroup(
    name="rack",
    select={"id": ("a*", "b")},
    watts=TimeSeries(name="rack by hour", rows=(HourRow(100.0, "8-20", ("mon",)), HourRow(200.0))),
    priorities={"a*": 2},
    events=(EVENT,),
)
POWER = MemberPower(
    floor_w=100.0,
    default_w=350.0,
    reboot_after_s=120.0,
    heard_s=1.5,
    sent=(CapSchedule(3, (CapStep(2.0, 120.0, {"gpu.power_w": 120.0}),)),),
)
MEMBER = MemberRecord(
    device="a1", knobs=(CapKnob("gpu.power_w", 100.0, 100.0, 350.0),), group="rack", power=POWER
)


class BudgetsContract:
    def test_a_group_reads_back_as_it_was_stored(self, store: Store) -> None:
        stored = store.budgets.put_group(GROUP)
        assert stored == replace(GROUP, revision=1)
        assert store.budgets.group("rack") == stored
        assert list(store.budgets.groups()) == [stored]
        store.budgets.forget_group("rack")
        assert not store.budgets.groups()
        with raised(NotFound, "rack"):
            store.budgets.group("rack")

    def test_a_member_reads_back_as_it_was_stored(self, store: Store) -> None:
        assert store.budgets.member("a1") is None
        stored = store.budgets.put_member(MEMBER)
        assert store.budgets.member("a1") == stored == replace(MEMBER, revision=1)
        assert list(store.budgets.members()) == [stored]

    def test_a_change_by_another_writer_is_not_overwritten(self, store: Store) -> None:
        store.budgets.put_group(GROUP)
        first = store.budgets.put_member(MEMBER)
        store.budgets.put_member(replace(first, sent_s=5.0))
        for old in (MEMBER, first):
            with raised(StaleRevision):
                store.budgets.put_member(replace(old, sent_s=9.0))
        with raised(StaleRevision):
            store.budgets.put_group(GROUP)
        member = store.budgets.member("a1")
        assert member is not None
        assert member.sent_s == 5.0

    def test_if_many_change_a_member_at_once_one_succeeds(self, store: Store) -> None:
        first = store.budgets.put_member(MEMBER)

        def change(index: int) -> bool:
            try:
                store.budgets.put_member(replace(first, sent_s=float(index)))
            except StaleRevision:
                return False
            return True

        won: list[bool] = []
        together(lambda index: won.append(change(index)))
        assert won.count(True) == 1
