"""Real processes that compute suggestions: the same suggestions as here, and no process left behind."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from policies import load_policy
from tests.builders import asked, baseline, past, setting, surface, trial
from tests.processes import children, command_line, kill, until
from tuner.core import Done, Limit, Past, Try, TuningError
from tuner.suggesting.questions import answer, ask, read
from tuner.suggesting.workers import LocalWorker, WorkerLost

LONG_S = 300.0


def pasts() -> list[Past]:
    """Return studies of one space at several stages of their search, the last one at its end."""
    studies = []
    for tried in range(3):
        at = replace(asked(2 if tried == 2 else 8), id=f"s{tried}", seed=tried)
        trials = baseline(at)
        for number, clock in enumerate((800, 600, 400)[:tried], start=3):
            seen = surface(setting(clock, 2))
            broke = Limit("latency_p99_ms", "<=", 1 / 3) if clock == 400 else None
            trials.append(trial(number, setting(clock, 2), seen, broke=broke))
        studies.append(past(at, trials))
    return studies


@pytest.fixture
def worker() -> Iterator[LocalWorker]:
    local = LocalWorker()
    yield local
    local.close()


@pytest.mark.promise("the process that computes a suggestion dies, hangs or is slow")
@pytest.mark.parametrize("policy", ["polythrottle", "sobol"])
def test_every_worker_suggests_the_same(worker: LocalWorker, policy: str) -> None:
    here = [load_policy(policy).suggest(one) for one in pasts()]
    question = ask(policy, pasts())
    assert {type(one) for one in here} == {Try, Done}
    for answers in (answer(question), worker.answer(question, LONG_S)):
        assert [one.suggestion() for one in read(answers, 3)] == here


def test_an_error_of_a_policy_is_returned_and_the_process_survives(worker: LocalWorker) -> None:
    (unknown,) = read(worker.answer(ask("nobody", pasts()[:1]), LONG_S), 1)
    with pytest.raises(TuningError, match="there is no policy 'nobody'"):
        unknown.suggestion()
    (tried,) = read(worker.answer(ask("sobol", pasts()[:1]), LONG_S), 1)
    assert tried.suggestion() == load_policy("sobol").suggest(pasts()[0])


def workers() -> list[int]:
    """Return the running workers."""
    return [pid for pid in children(os.getpid()) if "tuner.suggesting.worker" in command_line(pid)]


def test_a_killed_process_is_a_lost_worker_and_the_next_question_finds_another(
    worker: LocalWorker,
) -> None:
    def kill_at_work() -> None:
        until(workers, "no process works")
        kill(*workers())

    killer = threading.Thread(target=kill_at_work)
    killer.start()
    with pytest.raises(WorkerLost, match="ended"):
        worker.answer(ask("polythrottle", pasts()), LONG_S)
    killer.join()
    assert read(worker.answer(ask("sobol", pasts()), LONG_S), 3)


def test_a_process_that_takes_too_long_is_ended(worker: LocalWorker) -> None:
    with pytest.raises(WorkerLost, match=r"no suggestion after 0\.05 s"):
        worker.answer(ask("polythrottle", pasts()), 0.05)
    assert workers() == []


def test_no_process_outlives_the_input_it_was_given() -> None:
    worker = LocalWorker()
    worker.answer(ask("sobol", pasts()[:1]), LONG_S)
    process = worker._process
    assert process is not None and process.stdin is not None
    process.stdin.close()
    assert process.wait(LONG_S) == 0
    worker.close()
