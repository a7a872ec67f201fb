"""Many studies in several processes of one thread each; their order does not matter."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass

from tests.bench.contest.replay import Task, TaskResult, replay

POOLS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed study, and its error."""

    task: str
    error: str


@dataclass(frozen=True, slots=True)
class Job:
    """A task, and whether its study continues to the end of the confirming phase."""

    task: Task
    to_the_end: bool = False


Result = TaskResult | Failure


def run_all(jobs: Sequence[Job], processes: int, done: Callable[[Result], None]) -> list[Result]:
    """Return the result of every job, in the order of the jobs; `done` is called as each ends.

    One process is this one. After an interrupt several are ended at once.
    """
    if processes == 1:
        here: list[Result] = []
        for job in jobs:
            here.append(_run(job))
            done(here[-1])
        return here
    context = multiprocessing.get_context("spawn")
    strangers = set(multiprocessing.active_children())
    executor = ProcessPoolExecutor(processes, mp_context=context, initializer=settle_in)
    try:
        futures = {executor.submit(_run, job): number for number, job in enumerate(jobs)}
        found: dict[int, Result] = {}
        for future in as_completed(futures):
            number = futures[future]
            found[number] = _result(future, jobs[number])
            done(found[number])
        return [found[number] for number in range(len(jobs))]
    except BaseException:
        for process in set(multiprocessing.active_children()) - strangers:
            process.kill()
        raise
    finally:
        executor.shutdown(cancel_futures=True)


def _result(future: Future[Result], job: Job) -> Result:
    try:
        return future.result()
    except BrokenProcessPool as error:
        return Failure(str(job.task), f"its process died: {error}")


def settle_in() -> None:
    """Limit this process to one thread, before numpy or torch are loaded; end it with its parent.

    Ctrl-C is left to the parent.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for pool in POOLS:
        os.environ[pool] = "1"
    threading.Thread(target=_end_with_parent, name="end-with-parent", daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _run(job: Job) -> Result:
    """Run one job; an error of any kind becomes a failure with its kind and message."""
    try:
        return replay(job.task, to_the_end=job.to_the_end)
    except Exception as error:  # noqa: BLE001 - whatever a policy raises is reported, none is lost
        return Failure(str(job.task), f"{type(error).__name__}: {error}")
