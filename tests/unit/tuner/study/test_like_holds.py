"""A new study first confirms the setting that three similar studies hold; with fewer it searches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.builders import completed, device, setting, study
from tests.unit.tuner.study.worlds import World, truth
from tuner.core import Constraint, Objective, Outcome, Phase, Setting, Study, Terms

TERMS = Terms(trials=6, window_s=10.0, max_window_s=30.0)


def finish(
    world: World,
    *names: str,
    shows: Callable[[Setting], Outcome] = truth,
    at: dict[str, object] | None = None,
    **changes: object,
) -> Study:
    """Run studies until they hold, one after the other; return the last."""
    for name in names:
        world.loop.register(device(name, **(at or {})))
        fresh = study(Phase.BASELINE, devices=(name,), id=f"of-{name}", terms=TERMS)
        world.store.studies.add(replace(fresh, **changes), "test", "created")  # type: ignore[arg-type]
        for _ in range(40):
            world.step(shows, name)
    return world.store.studies.get(f"of-{names[-1]}")


def searched(world: World, study: Study) -> bool:
    return any(t.phase is Phase.TUNING for t in world.store.trials.list(study.id))


@pytest.fixture
def world() -> World:
    """Three devices hold 600 MHz."""
    made = World()
    for name in "abc":
        last = finish(made, name)
        assert last.phase is Phase.HOLDING and not last.transfer.plan and searched(made, last)
    return made


def test_the_setting_of_three_similar_studies_is_proven_before_a_search(world: World) -> None:
    fourth = finish(world, "d")
    assert (fourth.transfer.plan, fourth.transfer.holders) == (setting(600), 3)
    assert fourth.held is not None and fourth.held.rows[0].setting == setting(600)
    trials = world.store.trials.list("of-d")
    assert [t.phase for t in trials] == [Phase.BASELINE] * 2 + [Phase.CONFIRMING] * 4
    why = [r.why for r in world.store.studies.revisions("of-d")]
    assert any("3 studies of the same board, workload and versions agree on" in w for w in why)
    assert finish(world, "e").transfer.holders == 4


def test_an_unconfirmed_candidate_is_followed_by_a_search(world: World) -> None:
    def shows(at: Setting) -> Outcome:
        return truth(at) if at == setting() else completed(8.0, 300.0)

    fourth = finish(world, "d", shows=shows)
    assert fourth.transfer.plan == setting(600) and searched(world, fourth)
    assert fourth.held is not None and fourth.held.rows[0].setting == setting()


@pytest.mark.parametrize(
    "changes",
    [
        {"at": {"board": "T4"}},
        {"at": {"driver": "2"}},
        {"at": {"workload_version": "2"}},
        {"objective": Objective("power_w")},
        {"constraints": (Constraint.parse("latency_p99_ms <= 1.3x baseline"),)},
        {"terms": replace(TERMS, transfer=False)},
        {"shows": lambda at: completed(float(at["gpu.clock_mhz"]) / 85.0, 110.0)},
        {"space": study().space.restricted({"gpu.clock_mhz": (800, 1000)})},
    ],
    ids=["board", "driver", "version", "objective", "limit", "refused", "baseline", "space"],
)
def test_a_device_or_study_that_is_not_like_them_is_searched(
    world: World, changes: dict[str, object]
) -> None:
    fourth = finish(world, "d", **changes)  # type: ignore[arg-type]
    assert not fourth.transfer.plan and searched(world, fourth)


def test_two_studies_or_one_that_ended_are_too_few(world: World) -> None:
    stopped = world.store.studies.get("of-a").moved(Phase.STOPPED)
    world.store.studies.revise(stopped, "ann", "", world.time.now())
    assert not finish(world, "d").transfer.plan
