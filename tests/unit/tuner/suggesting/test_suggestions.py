"""Suggestions in workers: one at a time per study, without blocking, none lost with a worker."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from policies import load_policy
from tests.builders import baseline, past, policies, setting, study, trial
from tests.processes import until
from tests.unit.policies.fedgpo.made_up import MadeUp, federated, situation
from tuner.core import Past, Phase, Policy, Space, Study, TrialState, Try, TuningError, Wait
from tuner.suggesting.questions import (
    BatchAnswers,
    BatchQuestion,
    Decided,
    ask,
)
from tuner.suggesting.suggestions import WORKING, Suggestions
from tuner.suggesting.workers import WorkerLost


@dataclass
class Scripted:
    """A worker that answers by `does`, and records the studies of its requests."""

    does: Callable[[Sequence[Past]], None] = lambda _: None
    asked: list[list[str]] = field(default_factory=list)
    closed: bool = False

    def answer(self, question: bytes, within_s: float) -> bytes:
        pasts = BatchQuestion.model_validate_json(question).pasts
        self.asked.append([p.study.id for p in pasts])
        self.does(pasts)
        answers = (Decided(tries=Try(setting(600), f"for {p.study.id}")) for p in pasts)
        return BatchAnswers(answers=tuple(answers)).model_dump_json().encode()

    def close(self) -> None:
        self.closed = True


@contextmanager
def at_work(
    *workers: Scripted, by: Callable[[str], Policy] = policies
) -> Iterator[tuple[Suggestions, list[str]]]:
    woken: list[str] = []
    suggestions = Suggestions(by, workers, lambda s: woken.append(s.id), within_s=5.0)
    end = suggestions.begin()
    yield suggestions, woken
    end()
    assert all(worker.closed for worker in workers)


def of(name: str = "s1", **changes: Any) -> Past:  # noqa: ANN401
    at: Study = study(id=name, **changes)
    return past(at, baseline(at))


def test_a_decision_is_announced_and_fetched_once() -> None:
    worker = Scripted()
    with at_work(worker) as (suggestions, woken):
        policy = suggestions.policy("scripted")
        assert policy.suggest(of()) == Wait(WORKING)
        until(lambda: woken == ["s1"], "nobody was woken")
        assert policy.suggest(of()) == Try(setting(600), "for s1")
        assert policy.suggest(of()) == Wait(WORKING), "taken: whoever asks again asks anew"
        until(lambda: len(woken) == 2, "it was not asked again")
    assert worker.asked == [["s1"], ["s1"]]


def test_a_waiting_study_is_requested_once_and_again_after_a_change() -> None:
    go = threading.Event()
    worker = Scripted(lambda _: assert_soon(go))
    with at_work(worker) as (suggestions, woken):
        policy = suggestions.policy("scripted")
        for _ in range(5):
            assert policy.suggest(of()) == Wait(WORKING)
        until(lambda: len(worker.asked) == 1, "it was not asked")
        newer = of()
        newer = replace(newer, trials=(*newer.trials, trial(3, setting(800))))
        assert policy.suggest(newer) == Wait(WORKING)
        go.set()
        until(lambda: woken == ["s1"], "the newer past was not decided")
        assert isinstance(policy.suggest(newer), Try)
    assert worker.asked == [["s1"], ["s1"]], "what was decided for the older past was not used"


def test_a_decision_beside_an_ended_trial_is_not_used() -> None:
    with at_work(Scripted()) as (suggestions, woken):
        policy, before = suggestions.policy("scripted"), of()
        runs, ended = trial(3, setting(800), state=TrialState.RUNNING), trial(3, setting(800))
        assert policy.suggest(replace(before, trials=(*before.trials, runs))) == Wait(WORKING)
        until(lambda: woken == ["s1"], "nobody was woken")
        assert policy.suggest(replace(before, trials=(*before.trials, ended))) == Wait(WORKING)


def assert_soon(event: threading.Event) -> None:
    assert event.wait(30.0)


@pytest.mark.promise("the process that computes a suggestion dies, hangs or is slow")
def test_a_slow_one_delays_no_other() -> None:
    go = threading.Event()

    def slow(pasts: Sequence[Past]) -> None:
        if pasts[0].study.id == "slow":
            assert_soon(go)

    with at_work(Scripted(slow), Scripted(slow)) as (suggestions, woken):
        policy = suggestions.policy("scripted")
        for name in ("slow", "a", "b", "c"):
            policy.suggest(of(name))
        until(lambda: sorted(woken) == ["a", "b", "c"], "the others wait for the slow one")
        go.set()
        until(lambda: "slow" in woken, "the slow one was lost")


OTHER = replace(study().space, only=(setting(), setting(600)))


def queue(names: Sequence[str], does: Callable[[Sequence[Past]], None]) -> list[list[str]]:
    """Request suggestions while the only worker is busy; return the studies that it then gets together.

    The duration of a suggestion in their space is known; "other" is a study of another space.
    """
    go = threading.Event()

    def busy(pasts: Sequence[Past]) -> None:
        if pasts[0].study.id == "blocker":
            assert_soon(go)
        does(pasts)

    worker = Scripted(busy)
    with at_work(worker) as (suggestions, woken):
        policy = suggestions.policy("scripted")
        policy.suggest(of("first"))
        until(lambda: woken == ["first"], "it was not decided")
        policy.suggest(of("blocker", space=OTHER))
        until(lambda: len(worker.asked) == 2, "it was not asked")
        for name in names:
            policy.suggest(of(name, **({"space": OTHER} if name == "other" else {})))
        go.set()
        until(lambda: {*names} <= {*woken}, "not all were decided")
        assert policy.suggest(of(names[-1])) == Try(setting(600), f"for {names[-1]}")
    return worker.asked[2:]


def test_studies_of_one_space_are_suggested_together() -> None:
    batches = queue(("a", "other", "c"), lambda _: None)
    assert batches == [["a", "c"], ["other"]]


def test_a_request_lost_with_a_worker_is_repeated_alone() -> None:
    def dies(pasts: Sequence[Past]) -> None:
        if len(pasts) > 1:
            raise WorkerLost("it was killed")

    batches = queue(("a", "b", "c"), dies)
    assert batches == [["a", "b", "c"], ["a"], ["b"], ["c"]]


def test_a_study_that_kills_every_worker_is_abandoned_with_the_reason() -> None:
    def dies(pasts: Sequence[Past]) -> None:
        if any(p.study.id == "deadly" for p in pasts):
            raise WorkerLost("out of memory")

    worker = Scripted(dies)
    with at_work(worker) as (suggestions, woken):
        policy = suggestions.policy("scripted")
        policy.suggest(of("deadly"))
        policy.suggest(of("harmless"))
        until(lambda: sorted(woken) == ["deadly", "harmless"], "not both were told")
        with pytest.raises(WorkerLost, match=r"3 workers were lost.*out of memory"):
            policy.suggest(of("deadly"))
    assert worker.asked.count(["deadly"]) == 3


def test_a_policys_error_is_raised_here() -> None:
    class Failing(Scripted):
        def answer(self, question: bytes, within_s: float) -> bytes:
            failed = Decided(code="metric_unavailable", message="no meter")
            return BatchAnswers(answers=(failed,)).model_dump_json().encode()

    with at_work(Failing()) as (suggestions, woken):
        policy = suggestions.policy("scripted")
        policy.suggest(of())
        until(lambda: woken == ["s1"], "nobody was woken")
        with pytest.raises(TuningError, match="no meter") as error:
            policy.suggest(of())
        assert error.value.code == "metric_unavailable"


def test_an_answer_that_is_none_is_a_lost_worker() -> None:
    class Babbling(Scripted):
        def answer(self, question: bytes, within_s: float) -> bytes:
            super().answer(question, within_s)
            return b"{}" if len(self.asked) == 1 else super().answer(question, within_s)

    with at_work(Babbling()) as (suggestions, woken):
        suggestions.policy("scripted").suggest(of())
        until(lambda: woken == ["s1"], "it was not asked again")


def test_a_failing_study_stops_no_other() -> None:
    broken = of("broken")
    broken = replace(broken, trials=(*broken.trials, replace(trial(3, setting(800)), why="\ud800")))
    with at_work(Scripted()) as (suggestions, woken):
        policy = suggestions.policy("scripted")
        policy.suggest(broken)
        until(lambda: woken == ["broken"], "it is not given up")
        with pytest.raises(WorkerLost, match="surrogates not allowed"):
            policy.suggest(broken)
        policy.suggest(of("sound"))
        until(lambda: woken == ["broken", "sound"], "nobody works any more")


def test_a_quick_policy_decides_at_once() -> None:
    at, made = federated(), MadeUp()
    rounds = [made.round(n, at.baseline, Phase.BASELINE) for n in (1, 2)]
    with at_work(by=load_policy) as (suggestions, _):
        took: list[str] = []
        suggestions.took = lambda policy, _: took.append(policy)
        assert isinstance(suggestions.policy("fedgpo").suggest(situation(at, rounds, made)), Try)
        assert took == ["fedgpo"]


def test_a_question_has_the_trials_spent_on_removed_settings() -> None:
    at = study(id="s1")
    clock, *others = at.space.knobs
    narrowed = replace(at, space=Space((replace(clock, values=(800, 1000)), *others)))
    here = past(narrowed, [*baseline(at), trial(3, setting(600)), trial(4, setting(800))])
    (there,) = BatchQuestion.model_validate_json(ask("sobol", [here])).pasts
    assert (there.trials, there.spent, there.left) == (here.trials, 2, here.left)
