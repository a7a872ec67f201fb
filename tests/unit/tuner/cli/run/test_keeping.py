"""A run's result is held by the installed services, if they confirm it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from starlette.testclient import TestClient

from policies import load_policy
from tests.builders import Time, applied, device
from tests.errors import raised
from tests.stores import memory_store
from tests.unit.tuner.cli import worlds
from tests.unit.tuner.client.test_blocking import TOKEN, URL, through
from tuner.cli.output import console
from tuner.cli.run import conduct, results
from tuner.cli.run.conduct import Keeper
from tuner.cli.run.display import Lines
from tuner.cli.run.results import Result
from tuner.cli.runfile import RunJob
from tuner.client import Client
from tuner.core import Conflict, NotFound, OutOfRange, Phase, TuningError, UnknownKnob
from tuner.service.http.api import create_app
from tuner.service.operations import Operations
from tuner.study.loop import Loop
from tuner.wire import Change, Poll, Release

JOB = RunJob(device="sim", policy="sobol", trials=7)


@pytest.fixture
def there() -> Operations:
    """The services; the last contact with their agent was a moment ago."""
    services = Operations(Loop(memory_store(), load_policy, Time().now))
    services.loop.register(device())
    services.loop.order("sim", Poll(agent="host", applied=applied()))
    return services


@pytest.fixture
def keeper(there: Operations, monkeypatch: pytest.MonkeyPatch) -> Iterator[Keeper]:
    monkeypatch.setattr(conduct, "device_ids", lambda *_: ["sim"])
    app = create_app(there, TOKEN, frozenset({"tuner"}), "0")
    with TestClient(app) as inside, Client(URL, TOKEN, through(inside)) as services:
        yield Keeper(services, URL, "ann")


def found(surface: worlds.Surface = worlds.slope) -> Result:
    """Return the result of a run on another tuner."""
    verbs, study = worlds.held(surface)
    main = results.outcome(verbs, study, RunJob(device="cpu"), device())
    return Result(job=JOB, board="A100", cannot={}, main=main)


def test_a_kept_study_tries_only_the_runs_values_and_the_defaults(keeper: Keeper) -> None:
    keeper.check(JOB)
    draft = keeper.draft(found())
    assert draft.choices == {"gpu.clock_mhz": (600, 1000), "batch_size": (1,)}
    assert draft.constraints == (worlds.LIMIT,)
    assert (draft.devices, draft.policy, draft.terms.trials) == (("sim",), "sobol", 1)


def test_the_result_of_a_run_is_held_once_confirmed(
    there: Operations, keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: worlds.tune(there))
    keeper.check(JOB)
    keeper.keep(found(), Lines(console()))
    (study,) = there.studies()
    assert study.phase is Phase.HOLDING and study.plan is not None
    assert study.plan.rows[0].setting == worlds.BEST
    assert (
        f"study {study.id} at {URL} holds gpu.clock_mhz=600: confirmed" in keeper.outcome_lines()[0]
    )


@pytest.mark.parametrize("surface", [worlds.flat, worlds.costly])
def test_a_setting_without_a_saving_at_its_load_is_not_held(
    surface: worlds.Surface,
    there: Operations,
    keeper: Keeper,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: worlds.tune(there, surface))
    keeper.check(JOB)
    with raised(TuningError, "services") as refused:
        keeper.keep(found(), Lines(console()))
    assert "was not tried" not in str(refused.value)
    assert there.studies()[0].phase is Phase.STOPPED
    order = there.loop.order("sim", Poll(agent="host", applied=applied()))
    assert isinstance(order, Release), "the device is as it was found"


def test_the_baseline_needs_no_study(there: Operations, keeper: Keeper) -> None:
    keeper.check(JOB)
    keeper.keep(found(worlds.flat), Lines(console()))
    assert there.studies() == []
    assert "nothing is kept: the baseline is kept" in keeper.outcome_lines()[0]


def test_services_that_could_not_keep_it_are_found_out_beforehand(
    there: Operations, keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper.check(JOB)
    there.stop_all(Change(who="bob"))
    with raised(Conflict, "bob"):
        keeper.check(JOB)
    there.lift(Change())
    study = worlds.created(there, "sobol")
    with raised(Conflict, study):
        keeper.check(JOB)
    worlds.retire(there)
    monkeypatch.setattr(conduct, "device_ids", lambda *_: ["other"])
    with raised(NotFound, "other") as refused:
        keeper.check(JOB)
    assert "registered devices: sim" in refused.value.hint


@pytest.mark.parametrize(
    ("changed", "kind"),
    [
        ({"workload": "another"}, Conflict),
        ({"space": device().space.restricted({"gpu.clock_mhz": (800, 1000)})}, OutOfRange),
        ({"space": replace(device().space, knobs=device().space.knobs[1:], only=())}, UnknownKnob),
    ],
)
def test_a_device_registered_differently_at_the_tuner_is_refused(
    changed: dict[str, object], kind: type[TuningError], there: Operations, keeper: Keeper
) -> None:
    there.loop.register(replace(device(), **changed))  # type: ignore[arg-type]
    keeper.check(JOB)
    with pytest.raises(kind):
        keeper.keep(found(), Lines(console()))
    assert there.studies() == []
