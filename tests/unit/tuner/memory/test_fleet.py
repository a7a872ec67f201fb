from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from math import exp, log

import pytest

from db.codec import posterior_document, posterior_of
from policies.polythrottle.policy import Polythrottle
from tests.builders import START, Time, completed, device, study, surface
from tests.unit.tuner.study.worlds import World
from tuner.bo.posterior import posterior_of as posterior_after
from tuner.core import (
    NO_MEMORY,
    Closeness,
    Device,
    Outcome,
    Past,
    Phase,
    Plan,
    Policy,
    Posterior,
    Setting,
    Sibling,
    Terms,
    Transfer,
    TrialState,
    TuningError,
    setting_key,
)
from tuner.memory.fleet import FleetMemory, in_words
from tuner.memory.selection import PRIOR_WORTH
from tuner.service.explanations import explained
from tuner.suggesting.questions import (
    AgreementQuestion,
    MemoryAnswer,
    PosteriorQuestion,
    answer,
    ask,
    read,
)
from tuner.wire import Idle


def shown(at: Setting) -> Outcome:
    return Outcome(state=TrialState.COMPLETED, measurement=surface(at))


@dataclass
class Searching(World):
    """A world in which the real policy decides; `shows` is what its devices show."""

    shows: Callable[[Setting], Outcome] = shown

    def __post_init__(self) -> None:
        super().__post_init__()
        self.loop.policies = self.decides

    @staticmethod
    def decides(_: str) -> Policy:
        return Polythrottle()

    @property
    def memory(self) -> FleetMemory:
        return self.loop.memory

    def finish(self, *names: str, **changes: object) -> None:
        """Let studies run to their hold, one after the other, and be remembered."""
        for name in names:
            self.loop.register(device(name, **changes))
            terms = Terms(trials=6, window_s=10.0, max_window_s=30.0)
            fresh = study(Phase.BASELINE, devices=(name,), id=f"of-{name}", terms=terms)
            self.store.studies.add(fresh, "test", "created")
            for _ in range(60):
                self.step(self.shows, name)
                if self.store.studies.get(fresh.id).phase is Phase.HOLDING:
                    break
            list(self.memory.remember())


def test_a_study_leaves_a_posterior_that_its_trials_give_again() -> None:
    world = Searching()
    world.finish("a")
    ((ref, left),) = world.store.posteriors.near(device("b"), 9)
    assert (left.study, left.board) == ("of-a", "A100")
    assert left.held == world.store.studies.get("of-a").plan.rows[0].setting  # type: ignore[union-attr]
    assert {*left.metrics} == {"energy_j", "latency_p99_ms"}
    assert len(json.dumps(posterior_document(left))) < 100_000
    assert posterior_of(json.loads(json.dumps(posterior_document(left)))) == left
    assert world.memory.rebuild("of-a")
    ((again, _),) = world.store.posteriors.near(device("b"), 9)
    assert again == ref
    assert not list(world.memory.remember())


def test_its_prediction_is_near_the_truth_where_it_was_measured() -> None:
    world = Searching()
    world.finish("a")
    ((_, left),) = world.store.posteriors.near(device("b"), 9)
    trials = world.store.trials.list("of-a")
    base = surface(study().baseline).estimates["energy_j"].mean
    tried = {tuple(t.setting.values()) for t in trials}
    column = left.metrics.index("energy_j")
    for clock, batch in ((c, b) for c, b in tried if isinstance(c, int) and isinstance(b, int)):
        where = [
            n
            for n, point in enumerate(left.points)
            if abs(float(point[0]) - log(clock / 1000)) < 1e-3
            and abs(float(point[1]) - log(batch)) < 1e-3
        ]
        true = surface({"gpu.clock_mhz": clock, "batch_size": batch}).estimates["energy_j"].mean
        assert exp(left.means[column][where[0]]) == pytest.approx(true / base, rel=0.05)


def test_a_new_study_uses_like_ones_once_its_baseline_is_measured() -> None:
    world = Searching()
    world.finish("a", "b")
    world.finish("c", board="T4", workload="bert")
    later = world.store.studies.get("of-b")
    assert [r.study for r in later.transfer.siblings] == ["of-a"]
    trust = later.transfer.trust
    assert trust[Closeness.BOARD_AND_WORKLOAD] == PRIOR_WORTH[Closeness.BOARD_AND_WORKLOAD]
    again = world.memory.transfer(later)
    assert again is not None and again.trust != trust
    third = world.store.studies.get("of-c")
    assert {r.closeness for r in third.transfer.siblings} == {Closeness.KIND}
    (event,) = [e for e in world.store.events.list(study="of-b") if e.kind == "siblings"]
    assert event.text == in_words(later.transfer, "inference")
    assert event.text.startswith("used 1 study for inference: 1 of the same board and workload")
    tried = [t for t in world.store.trials.list("of-b") if t.phase is Phase.TUNING]
    assert "1 sibling, weight 0.60 -> " in tried[0].why
    assert "no window agrees yet" in tried[0].why
    text = explained(world.loop, "of-b").explanation.text
    assert "Each sibling's weight: of-a (same board and workload) " in text


def test_without_transfer_there_are_no_siblings() -> None:
    world = Searching()
    world.finish("a")
    world.loop.register(device("b"))
    fresh = study(devices=("b",), id="s2", terms=Terms(trials=6, transfer=False))
    assert world.memory.transfer(fresh) == Transfer()
    used = world.memory.transfer(replace(fresh, terms=Terms(trials=6)))
    assert used is not None and used.siblings
    assert world.memory.memory(replace(fresh, transfer=used)) is NO_MEMORY
    by_load = replace(fresh, terms=Terms(trials=6, plan_by="arrival_rate_per_s"))
    assert world.memory.transfer(by_load) == Transfer()


def test_a_deleted_study_is_no_sibling_any_more() -> None:
    world = Searching()
    world.finish("a", "b")
    later = world.store.studies.get("of-b")
    before = world.memory.memory(later)
    assert len(before.siblings) == 1
    world.store.studies.revise(
        world.store.studies.get("of-a").moved(Phase.STOPPED), "ann", "", START
    )
    world.store.studies.delete("of-a")
    after = world.memory.memory(later)
    assert not after.siblings and after.id != before.id


def test_the_same_past_gives_the_same_suggestion_here_and_elsewhere() -> None:
    world = Searching()
    world.finish("a", "b")
    later = world.store.studies.get("of-b")
    trials = world.store.trials.list("of-b")
    tuned = [t for t in trials if t.phase is Phase.TUNING]
    memory = world.memory.memory(later)
    twin = FleetMemory(world.store, Time().now).memory(later)
    assert twin == memory and twin.siblings == memory.siblings
    for trial in tuned:
        past = Past(
            study=replace(later, phase=Phase.TUNING),
            trials=tuple(t for t in trials if t.number < trial.number),
            memory=memory,
        )
        here = Polythrottle().suggest(past)
        (there,) = read(answer(ask("polythrottle", [past])), 1)
        assert there.suggestion == here
        assert getattr(here, "setting", None) == trial.setting
        assert getattr(here, "why", None) == trial.why


def test_a_study_without_a_law_or_a_baseline_leaves_nothing() -> None:
    assert posterior_after(Past(study=study(), trials=()), device()) is None


def test_one_is_forgotten_with_its_device() -> None:
    world = Searching()
    world.store.studies.add(study(id="s9", devices=("gone",)), "ann", "")
    assert not world.memory.rebuild("s9")


def test_the_plan_of_like_studies_is_verified_before_a_search() -> None:
    world = Searching()
    world.finish("a", "b", "c")
    plans = {
        setting_key(world.store.studies.get(f"of-{n}").plan.rows[0].setting)  # type: ignore[union-attr]
        for n in "abc"
    }
    assert len(plans) == 1
    world.finish("d")
    verified = world.store.studies.get("of-d")
    assert verified.transfer.holders == 3
    assert setting_key(verified.transfer.plan) in plans
    assert verified.plan == Plan.single(verified.transfer.plan)
    trials = world.store.trials.list("of-d")
    assert [t.phase for t in trials] == [Phase.BASELINE] * 2 + [Phase.CONFIRMING] * 4
    why = [
        r.why for r in world.store.studies.revisions("of-d") if r.study.phase is Phase.CONFIRMING
    ]
    assert "3 studies of the same board, workload and versions agree on" in why[0]


@dataclass
class Worker:
    """The memory's computations as another process does them: by messages, and not at once."""

    asked: list[Future[tuple[Setting, int]]] = field(default_factory=list)
    fails: bool = False

    def posterior(
        self, past: Past, device: Device, siblings: Sequence[Sibling]
    ) -> Posterior | None:
        question = PosteriorQuestion(past=past, device=device, siblings=tuple(siblings))
        return MemoryAnswer.read(answer(question.model_dump_json().encode())).posterior

    def agreed(self, past: Past, like: Sequence[Posterior]) -> Future[tuple[Setting, int]]:
        question = AgreementQuestion(past=past, like=tuple(like))
        reply = MemoryAnswer.read(answer(question.model_dump_json().encode()))
        self.asked.append(Future())
        self._reply = reply
        return self.asked[-1]

    def reply(self) -> None:
        """Let the last question be answered."""
        if self.fails:
            self.asked[-1].set_exception(TuningError("the worker was lost"))
        else:
            self.asked[-1].set_result((self._reply.plan, self._reply.holders))


@pytest.mark.parametrize("fails", [False, True], ids=["it answers", "it is lost"])
def test_a_device_waits_while_the_plans_of_like_studies_are_compared_elsewhere(
    fails: bool,
) -> None:
    here, there = Searching(), Searching()
    worker = Worker(fails=fails)
    there.memory.work = worker
    for world in (here, there):
        world.finish("a", "b", "c")
    like = [[p for _, p in w.store.posteriors.near(device("d"), 9)] for w in (here, there)]
    assert like[0] == like[1], "a posterior is the same wherever it is computed"
    there.loop.register(device("d"))
    terms = Terms(trials=6, window_s=10.0, max_window_s=30.0)
    fresh = study(Phase.BASELINE, devices=("d",), id="of-d", terms=terms)
    there.store.studies.add(fresh, "test", "created")
    for _ in range(4):
        there.step(there.shows, "d")
    waits = there.ask("d")
    assert isinstance(waits, Idle) and "plans of like studies" in waits.why
    assert len(worker.asked) == 1, "it is asked once"
    worker.reply()
    there.ask("d")
    assert there.store.studies.get("of-d").transfer.holders == (0 if fails else 3)


def test_a_plan_that_is_not_confirmed_is_followed_by_a_search() -> None:
    world = Searching()
    world.finish("a", "b", "c")
    world.shows = slow_off_the_baseline
    world.finish("d")
    why = [r.why for r in world.store.studies.revisions("of-d") if r.study.phase is Phase.TUNING]
    assert "the plan of like studies is not confirmed here; searching" in why[1]
    held = world.store.studies.get("of-d").plan
    assert held is not None and held.rows[0].setting == study().baseline


@pytest.mark.parametrize(
    "changes",
    [{"driver": "2"}, {"workload_version": "2"}, {"board": "T4"}],
    ids=["another driver", "another version", "another board"],
)
def test_a_device_that_is_not_like_them_is_searched(changes: dict[str, object]) -> None:
    world = Searching()
    world.finish("a", "b", "c")
    world.finish("d", **changes)
    assert world.store.studies.get("of-d").transfer.plan == {}
    assert any(t.phase is Phase.TUNING for t in world.store.trials.list("of-d"))


def test_a_device_with_another_baseline_is_searched() -> None:
    world = Searching()
    world.finish("a", "b", "c")
    world.shows = hungry
    world.finish("d")
    assert world.store.studies.get("of-d").transfer.plan == {}


def slow_off_the_baseline(at: Setting) -> Outcome:
    """Return a window of a device that breaks the limit at any other setting."""
    if at == study().baseline:
        return shown(at)
    return completed(energy_j=8.0, latency_p99_ms=300.0)


def hungry(at: Setting) -> Outcome:
    """Return a window of a device that needs a third more energy."""
    seen = surface(at)
    energy = seen.estimates["energy_j"].mean * 1.3
    return completed(energy_j=energy, latency_p99_ms=seen.estimates["latency_p99_ms"].mean)
