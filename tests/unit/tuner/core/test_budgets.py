"""The watts that a member of a budget may draw, over time."""

from __future__ import annotations

import random

import pytest

from tests.errors import raised
from tuner.core import LATE_S, CapSchedule, CapStep, InvalidInput, MemberPower

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
