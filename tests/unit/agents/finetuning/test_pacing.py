"""The share of the time that fine-tuning may run, from the tails of windows."""

from __future__ import annotations

import random

from agents.finetuning.pacing import ALLOWED, LEAST, FineTuningPacer


def turns(pacer: FineTuningPacer, tail: float | None = None) -> int:
    """Return the number of a window's turns in which the job runs."""
    return sum(pacer.look(tail, turn / 50) for turn in range(50))


def played(pacer: FineTuningPacer, windows: int, tail_of_share: float) -> int:
    """Play windows whose tail grows with the share; return the number above the limit."""
    above = 0
    for _ in range(windows):
        ran = turns(pacer) > 0
        tail = 10.0 + (tail_of_share * pacer.share if ran else 0.0)
        above += tail > pacer.limit
        pacer.window(tail, ran=ran)
    return above


def test_a_job_that_disturbs_nothing_soon_runs_all_the_time() -> None:
    pacer = FineTuningPacer(20.0)
    assert pacer.share == LEAST
    assert played(pacer, 40, 0.0) == 0
    assert pacer.share == 1.0
    assert turns(pacer, 10.0) == 50


def test_a_job_that_disturbs_in_proportion_runs_near_the_limit() -> None:
    pacer = FineTuningPacer(20.0)
    above = played(pacer, 200, 20.0)
    assert 0.35 <= pacer.share <= 0.55
    assert above <= ALLOWED * 200 + 1


def test_a_job_that_never_fits_is_tried_no_more_than_allowed() -> None:
    pacer = FineTuningPacer(20.0)
    assert played(pacer, 200, 1e9) <= ALLOWED * 200 + 1
    assert turns(pacer) <= 1


def test_a_job_that_begins_to_disturb_is_paused_within_a_few_windows() -> None:
    pacer = FineTuningPacer(20.0)
    assert played(pacer, 300, 0.0) == 0
    assert pacer.share == 1.0
    assert played(pacer, 50, 1e9) <= 6
    assert turns(pacer) <= 1


def test_a_host_that_becomes_noisy_does_not_stop_the_job_for_good() -> None:
    pacer, rng = FineTuningPacer(20.0), random.Random(0)
    assert played(pacer, 300, 0.0) == 0
    for _ in range(200):
        pacer.window(99.0 if rng.random() < 0.4 else 10.0, ran=turns(pacer) > 0)
    assert pacer.share > 0.3


def test_a_job_is_paused_within_a_window_near_the_limit() -> None:
    pacer = FineTuningPacer(20.0, share=1.0)
    assert pacer.look(17.0, 0.1)
    assert not pacer.look(19.5, 0.2)
    assert pacer.look(17.0, 0.3)


def test_a_job_does_not_run_when_too_little_of_the_window_is_left_to_recover() -> None:
    pacer = FineTuningPacer(20.0, share=1.0)
    assert pacer.look(None, 0.0)
    assert not pacer.look(25.0, 0.1)
    assert pacer.look(17.0, 0.4)  # more requests lowered the tail within 0.3 windows
    assert pacer.look(17.0, 0.69)
    assert not pacer.look(17.0, 0.71)
    pacer.window(17.0, ran=True)
    pacer.share = 1.0
    assert pacer.look(None, 0.72), "what happened once is forgotten bit by bit"
    assert not pacer.look(None, 0.74)


def test_a_tail_above_the_limit_with_the_job_stopped_needs_no_recovery() -> None:
    pacer = FineTuningPacer(20.0, share=0.0)
    assert turns(pacer, 30.0) == 0
    pacer.share = 1.0
    assert pacer.look(None, 0.99)


def test_a_job_runs_in_its_share_of_the_turns() -> None:
    for share in (0.1, 0.3, 0.7, 0.8):
        assert abs(turns(FineTuningPacer(20.0, share=share)) - 50 * share) <= 1.0


def test_windows_above_the_limit_without_fine_tuning_are_not_its_fault() -> None:
    pacer = FineTuningPacer(20.0, share=1.0)
    for _ in range(30):
        pacer.window(99.0, ran=False)
        pacer.window(10.0, ran=True)
    assert pacer.background > 0.3
    assert pacer.share > 0.5


NOISE = 0.2


def noisy(windows: int, tail_of_share: float) -> tuple[FineTuningPacer, float, float]:
    """Return the pacer after windows on a noisy host, the share above the limit, and the time it ran."""
    pacer, rng = FineTuningPacer(20.0), random.Random(0)
    above, ran_for = 0, 0.0
    for _ in range(windows):
        ran = turns(pacer) / 50
        tail = 99.0 if rng.random() < NOISE else 10.0 + tail_of_share * ran
        above += tail > pacer.limit
        ran_for += ran / windows
        pacer.window(tail, ran=ran > 0.0)
    return pacer, above / windows, ran_for


def test_noise_of_the_host_does_not_stop_a_job_that_disturbs_nothing() -> None:
    pacer, above, ran_for = noisy(300, 0.0)
    assert abs(pacer.background - NOISE) < 0.1
    assert above < NOISE + ALLOWED
    assert ran_for > 0.6


def test_a_job_that_never_fits_is_stopped_on_a_noisy_host_too() -> None:
    _, above, ran_for = noisy(300, 1e9)
    assert above < NOISE + 2 * ALLOWED
    assert ran_for < 0.01
