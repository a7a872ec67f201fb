"""How much fine-tuning may run, by the tails that windows show."""

from __future__ import annotations

from agents.finetuning.pacing import ALLOWED, LEAST, FineTuningPacer


def played(pacer: FineTuningPacer, windows: int, tail_of_share: float) -> int:
    """Play windows whose tail grows with the share; return how many were above the limit."""
    above = 0
    for _ in range(windows):
        ran = any(pacer.look(None) for _ in range(50))
        tail = 10.0 + (tail_of_share * pacer.share if ran else 0.0)
        above += tail > pacer.limit
        pacer.window(tail, ran=ran)
    return above


def test_a_job_that_disturbs_nothing_soon_runs_all_the_time() -> None:
    pacer = FineTuningPacer(20.0)
    assert pacer.share == LEAST
    assert played(pacer, 40, 0.0) == 0
    assert pacer.share == 1.0
    assert all(pacer.look(10.0) for _ in range(20))


def test_a_job_that_disturbs_in_proportion_runs_near_the_limit() -> None:
    pacer = FineTuningPacer(20.0)
    above = played(pacer, 200, 20.0)
    assert 0.35 <= pacer.proven <= 0.5
    assert above <= ALLOWED * 200 + 1


def test_a_job_that_never_fits_is_tried_no_more_than_allowed() -> None:
    pacer = FineTuningPacer(20.0)
    assert played(pacer, 200, 1e9) <= ALLOWED * 200 + 1
    assert pacer.proven == 0.0


def test_it_is_paused_within_a_window_near_the_limit() -> None:
    pacer = FineTuningPacer(20.0, share=1.0)
    assert pacer.look(17.0)
    assert not pacer.look(18.5)
    assert pacer.look(17.0)


def test_windows_above_the_limit_without_fine_tuning_are_not_its_fault() -> None:
    pacer = FineTuningPacer(20.0, share=0.5, proven=0.5)
    for _ in range(10):
        pacer.window(99.0, ran=False)
    assert pacer.proven == 0.5
