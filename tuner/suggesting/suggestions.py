"""Studies that wait for a suggestion, who works them out, and what was decided until it is taken."""

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
    TuningError,
    Wait,
)
from tuner.suggesting.questions import Decided, ask, read
from tuner.suggesting.workers import SuggestionWorker, WorkerLost

log = logging.getLogger(__name__)

WORKING = "its next setting is being computed"
TOGETHER_S = 1.0
"""How many studies of one space are requested at once as take this long, by what the last of such a size
took: what they have in common is worked out once, and what travels is worth its way."""
WITHIN_S = 120.0
"""How long a suggestion may take; each further one of a question adds a tenth of it."""
MOST_TRIES = 3

At = tuple[int, int, tuple[int, ...]]
"""A study's revision, the number of its last trial, and which of its trials run."""


@dataclass(frozen=True, slots=True)
class SuggestionRequest:
    """A study that waits: `at` is what its past is made of.

    `lost` counts the workers that were lost on it.
    """

    policy: str
    past: Past
    at: At
    lost: int = 0

    @property
    def size(self) -> tuple[str, int]:
        """What says how long it takes: who decides, and among how many settings."""
        return self.policy, self.past.study.space.size

    def like(self, other: SuggestionRequest) -> bool:
        """Return whether both are decided by one policy over one space."""
        return self.policy == other.policy and self.past.study.space == other.past.study.space


@dataclass
class Suggestions:
    """Has policies decide elsewhere, several at a time: a waiting request never blocks another.

    `policies` finds a policy by name, `workers` are who decides, each of them one question at a time;
    `wake` gets a decided study, `took` its duration. What is decided is kept until
    it is taken; a study that has changed meanwhile asks again. Safe from many threads.
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
        """Have the workers work, each in a thread; return what ends that."""
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
        """Return a policy that is called here and decides elsewhere; a quick one decides here."""
        return Here(name, self) if name in QUICK else Elsewhere(name, self)

    def suggestion(self, policy: str, past: Past) -> Suggestion:
        """Return what was decided for a past, which is then forgotten; or have it decided, and wait.

        Raises what the policy raised, or WorkerLost where everybody was lost on it.
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
        if decided[1].suggestion is None:
            raise decided[1].error or TuningError("no setting was suggested")
        return decided[1].suggestion

    def _work(self, worker: SuggestionWorker) -> None:
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
        """Wait for studies and return some of one space, oldest first; nothing at the end.

        No more studies than this worker's share
        of them. One of a size that is new is requested alone, and so is who was lost with others.
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
    ) -> list[Decided]:
        within_s = self.within_s * (1.0 + (len(batch) - 1) / 10.0)
        question = ask(batch[0].policy, [w.past for w in batch])
        try:
            return read(worker.answer(question, within_s), len(batch))
        except ValueError as error:
            worker.close()
            raise WorkerLost(f"the worker's reply is not valid: {error}") from error

    def _again(self, batch: Sequence[SuggestionRequest], error: WorkerLost) -> None:
        """Have others try; give up on what took too many of them with it."""
        for request in batch:
            lost = request.lost + 1
            if lost >= MOST_TRIES:
                why = f"{lost} workers were lost; the last error: {error.message}"
                self._keep(request, Decided(None, WorkerLost(why)))
                continue
            with self._lock:
                if self._ended:
                    return
                self._queue.append(replace(request, lost=lost))
                self._lock.notify()

    def _keep(self, request: SuggestionRequest, answer: Decided) -> None:
        study = request.past.study
        with self._lock:
            if self._requested.get(study.id) != request.at:  # it has changed since
                return
            del self._requested[study.id]
            self._decided[study.id] = request.at, answer
        self.wake(study)


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A policy by its name, which `suggestions` has decide; until then it waits."""

    name: str
    suggestions: Suggestions

    def suggest(self, past: Past) -> Suggestion:
        """Return what was decided, or wait for it. Raises what the policy raised."""
        return self.suggestions.suggestion(self.name, past)


@dataclass(frozen=True, slots=True)
class Here:
    """A policy by its name, which decides at once; its duration is reported, too."""

    name: str
    suggestions: Suggestions

    def suggest(self, past: Past) -> Suggestion:
        """Return what the policy decides. Raises what it raises."""
        began = time.monotonic()
        suggestion = self.suggestions.policies(self.name).suggest(past)
        self.suggestions.took(self.name, time.monotonic() - began)
        return suggestion


def _at(past: Past) -> At:
    """Return what a past is made of: up to which trial it goes, and which of them have not ended.

    None of them changes once it has.
    """
    last = past.trials[-1].number if past.trials else 0
    running = [t.number for t in past.trials if t.state is TrialState.RUNNING]
    return past.study.revision, last, tuple(running)
