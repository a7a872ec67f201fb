"""The asyncio client: the same answers and errors as the blocking one, over the real application."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import httpx2
import pytest

from tests.errors import raised
from tests.unit.tuner.cli import worlds
from tuner.cli.output import plain
from tuner.client import AsyncClient, AsyncStudy
from tuner.core import ConfigError, LinkError, Phase
from tuner.service.http.api import create_app
from tuner.service.operations import Operations

TOKEN = "secret"
URL = "http://tuner"


@pytest.fixture
def local() -> Operations:
    return worlds.held()[0]


def through(local: Operations) -> httpx2.ASGITransport:
    return httpx2.ASGITransport(create_app(local, TOKEN, frozenset({"tuner"}), "0"))


def asked(
    local: Operations, what: Callable[[AsyncClient], Coroutine[Any, Any, Any]], token: str = TOKEN
) -> Any:  # noqa: ANN401  whatever was asked for
    async def ask() -> object:
        async with AsyncClient(URL, token, through(local)) as tuner:
            return await what(tuner)

    return asyncio.run(ask())


def test_every_question_has_the_answer_that_the_tuner_itself_gives(local: Operations) -> None:
    study = local.studies()[0].id

    async def all_of_it(tuner: AsyncClient) -> list[object]:
        view = await tuner.study(study[:4])
        return [
            await tuner.studies(), view, await view.tried(), await view.pareto(), await view.report(),
            await view.revisions(), await view.events(3), await tuner.devices(),
            [row.number for row in await view.history(verdict="feasible")],
        ]  # fmt: skip

    assert plain(asked(local, all_of_it)) == plain(
        [
            local.studies(), local.study(study), local.trials(study), local.pareto(study),
            local.report(study), local.revisions(study), local.events(study, last=3), local.devices(),
            [t.number for t in local.trials(study) if t.verdict == "feasible"],
        ]
    )  # fmt: skip


def test_a_study_is_changed_and_shown_in_its_new_state(local: Operations) -> None:
    async def day(tuner: AsyncClient) -> AsyncStudy:
        (study,) = await tuner.studies()
        paused = await study.pause("lunch")
        assert (study.phase, paused.phase) == (Phase.HOLDING, Phase.PAUSED)
        assert (await paused.resume()).phase is Phase.HOLDING
        limited = await study.constrain("latency_p99_ms <= 130", why="new SLO")
        assert limited.constraints == ("latency_p99_ms <= 130.0",)
        stopped = await study.stop()
        assert (await stopped.wait(timeout_s=0.0)).phase is Phase.STOPPED
        await stopped.delete()
        return await tuner.tune("sim", policy="scripted")

    made = asked(local, day)
    assert (made.objective, made.constraints) == (
        "minimize energy_j",
        ("latency_p99_ms <= 1.2x baseline",),
    )
    assert local.studies()[0].id == made.id


def test_a_silent_service_is_named() -> None:
    async def studies(url: str) -> object:
        async with AsyncClient(url) as tuner:
            return await tuner.studies()

    with pytest.raises(LinkError, match="does not answer"):
        asyncio.run(studies("http://127.0.0.1:1"))
    with raised(ConfigError, "URL"):
        asyncio.run(studies("tuner:8790"))


def test_a_study_that_misses_a_phase_in_time_is_reported(local: Operations) -> None:
    async def wait(tuner: AsyncClient) -> object:
        (study,) = await tuner.studies()
        return await study.wait([Phase.STOPPED], timeout_s=-1.0)

    with pytest.raises(LinkError, match="still holding"):
        asked(local, wait)
