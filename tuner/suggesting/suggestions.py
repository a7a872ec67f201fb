"""The queue of studies that wait for a suggestion, its workers, and the decisions not yet fetched."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from policies import QUICK
from tuner.core import (
    Past,
    Policy,
    Study,
    Suggestion,
    TrialState,
    Wait,
)
from tuner.suggesting.questions import Decided, ask, failed, read
from tuner.suggesting.workers import SuggestionWorker, WorkerLost

log = logging.getLogger(__name__)

WORKING = "its next setting is being computed"
TOGETHER_S = 1.0
"""The longest expected duration of a batch in seconds, by the last suggestion of its size.

A batch computes the shared data of its studies once, and takes longer than its transfer.
"""
WITHIN_S = 120.0
"""The time limit of a suggestion in seconds; each further study of a batch adds a tenth of it."""
MOST_TRIES = 3

At = tuple[int, int, tuple[int, ...]]
"""A study's revision, the number of its last trial, and the numbers of its running trials."""


@dataclass(frozen=True, slots=True)
class SuggestionRequest:
    """A study that waits for a suggestion. `at` identifies its past.

    `lost` counts the workers that were lost while they computed it.
    """

    policy: str
    past: Past
    at: At
    lost: int = 0

    @property
    def size(self) -> tuple[str, int]:
        """The policy and the number of settings, by which its duration is estimated."""
        return self.policy, self.past.study.space.size

    def like(self, other: SuggestionRequest) -> bool:
        """Return whether both requests have the same policy and the same space."""
        return self.policy == other.policy and self.past.study.space == other.past.study.space


@dataclass
class Suggestions:
    """Runs policies in several workers at once; a request for a suggestion never waits for a worker.

    `policies` returns a policy by its name. `workers` compute, each one question at a time. `wake` is
    called with a study once its suggestion is ready, `took` with the policy's name and the seconds that
    the suggestion took. A decision is kept until the study fetches it; a study that has changed since
    requests a new one. Safe from many threads.
    """

    policies: Callable[[str], Policy]
    workers: Sequence[SuggestionWorker]
    wake: Callable[[Study], None]
    took: Callable[[str, float], None] = lambda _policy, _seconds: None
    within_s: float = WITHIN_S
    _lock: threading.Condition = field(default_factory=threading.Condition)
    _queue: list[SuggestionRequest] = field(default_factory=list)
    _requested: dict[str, At] = field(default_factory=dict)
    _decided: dict[str, tuple[At, Decided]] = field(default_factory=dict)
    _paces: dict[tuple[str, int], float] = field(default_factory=dict)
    _threads: list[threading.Thread] = field(default_factory=list)
    _ended: bool = False

    def begin(self) -> Callable[[], None]:
        """Start a thread for each worker; return a function that ends them."""
        for number, worker in enumerate(self.workers):
            thread = threading.Thread(
                target=self._work, args=(worker,), name=f"suggestions {number}", daemon=True
            )
            self._threads.append(thread)
            thread.start()

        def end() -> None:
            with self._lock:
                self._ended = True
                self._lock.notify_all()
            for worker in self.workers:
                worker.close()

        return end

    def policy(self, name: str) -> Policy:
        """Return a policy that runs in the workers, or in this process if it is one of `QUICK`."""
        return Here(name, self) if name in QUICK else Elsewhere(name, self)

    def suggestion(self, policy: str, past: Past) -> Suggestion:
        """Return the decision on a past and forget it; without one, queue a request and return a `Wait`.

        Raises the policy's error, or WorkerLost once `MOST_TRIES` workers were lost on it.
        """
        study, at = past.study, _at(past)
        with self._lock:
            decided = self._decided.pop(study.id, None)
            if decided is None or decided[0] != at:
                if self._requested.get(study.id) != at:
                    self._requested[study.id] = at
                    self._queue.append(SuggestionRequest(policy, past, at))
                    self._lock.notify()
                return Wait(WORKING)
        return decided[1].suggestion()

    def _work(self, worker: SuggestionWorker) -> None:
        """Give batches to a worker and keep its answers until the end; the body of its thread."""
        while batch := self._taken():
            began = time.monotonic()
            try:
                answers = self._answered(worker, batch)
            except WorkerLost as error:
                log.warning(
                    "event=no_suggestion study=%s: %s",
                    ", ".join(w.past.study.id for w in batch),
                    error,
                )
                self._again(batch, error)
                continue
            except Exception as error:  # an error of one study does not stop the others
                log.exception(
                    "event=no_suggestion study=%s", ", ".join(w.past.study.id for w in batch)
                )
                worker.close()
                self._again(batch, WorkerLost(f"it could not be requested: {error!r}"))
                continue
            seconds = (time.monotonic() - began) / len(batch)
            self._paces[batch[0].size] = seconds
            for request, answer in zip(batch, answers, strict=True):
                self._keep(request, answer)
                self.took(request.policy, seconds)

    def _taken(self) -> list[SuggestionRequest] | None:
        """Wait for requests and return a batch of one policy and space, oldest first; None at the end.

        A batch has at most this worker's share of those that wait. A request of a size whose duration is
        unknown is a batch by itself, and so is one that a worker was lost on.
        """
        with self._lock:
            while not self._queue and not self._ended:
                self._lock.wait()
            if self._ended:
                return None
            first = self._queue[0]
            alike = [w for w in self._queue if w.like(first) and not w.lost]
            share = -(-len(alike) // len(self.workers))
            soon = int(TOGETHER_S / self._paces.get(first.size, TOGETHER_S))
            batch = [first] if first.lost else alike[: max(1, min(share, soon))]
            chosen = {id(w) for w in batch}
            self._queue = [w for w in self._queue if id(w) not in chosen]
            return batch

    def _answered(
        self, worker: SuggestionWorker, batch: Sequence[SuggestionRequest]
    ) -> Sequence[Decided]:
        """Return a worker's decisions on a batch. Raises WorkerLost."""
        within_s = self.within_s * (1.0 + (len(batch) - 1) / 10.0)
        question = ask(batch[0].policy, [w.past for w in batch])
        try:
            return read(worker.answer(question, within_s), len(batch))
        except ValueError as error:
            worker.close()
            raise WorkerLost(f"the worker's reply is not valid: {error}") from error

    def _again(self, batch: Sequence[SuggestionRequest], error: WorkerLost) -> None:
        """Queue each request again for another worker; fail it once it has lost `MOST_TRIES` workers."""
        for request in batch:
            lost = request.lost + 1
            if lost >= MOST_TRIES:
                why = f"{lost} workers were lost; the last error: {error.message}"
                self._keep(request, failed(WorkerLost(why)))
                continue
            with self._lock:
                if self._ended:
                    return
                self._queue.append(replace(request, lost=lost))
                self._lock.notify()

    def _keep(self, request: SuggestionRequest, answer: Decided) -> None:
        """Keep the decision on a request and wake its study, unless the study has changed since."""
        study = request.past.study
        with self._lock:
            if self._requested.get(study.id) != request.at:  # it has changed since
                return
            del self._requested[study.id]
            self._decided[study.id] = request.at, answer
        self.wake(study)


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A policy, by its name, that runs in the workers of `suggestions`; a `Wait` until they decide."""

    name: str
    suggestions: Suggestions

    def suggest(self, past: Past) -> Suggestion:
        """Return the workers' decision, or a `Wait`. Raises the policy's error, or WorkerLost."""
        return self.suggestions.suggestion(self.name, past)


@dataclass(frozen=True, slots=True)
class Here:
    """A policy, by its name, that runs in this process at once; its duration is reported, too."""

    name: str
    suggestions: Suggestions

    def suggest(self, past: Past) -> Suggestion:
        """Return the policy's suggestion. Raises the policy's error."""
        began = time.monotonic()
        suggestion = self.suggestions.policies(self.name).suggest(past)
        self.suggestions.took(self.name, time.monotonic() - began)
        return suggestion


def _at(past: Past) -> At:
    """Return the study's revision, its last trial's number and its running trials' numbers.

    These identify a past: a trial does not change once it has ended.
    """
    last = past.trials[-1].number if past.trials else 0
    running = [t.number for t in past.trials if t.state is TrialState.RUNNING]
    return past.study.revision, last, tuple(running)
