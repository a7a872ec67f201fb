from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from agents.workloads.reference import fleet as module
from agents.workloads.reference.fleet import MOST_WAITING, Fleet, Unserved
from tuner.core import ActuationError, DeviceLost, OutOfRange


class Puppet:
    """An instance without a process; batches wait until the test answers them."""

    def __init__(self, on_end: Callable[[Any], None], pid: int) -> None:
        self.pid = pid
        self.leaving = False
        self.placed: object = None
        self.batches: list[tuple[list[int], asyncio.Future[Any]]] = []
        self.threads_lie = False
        self.ready: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.ready.set_result({"ready": True})
        self._on_end = on_end

    @property
    def idle(self) -> bool:
        return not self.leaving and all(f.done() for _, f in self.batches)

    def cpu_s(self) -> float:
        return 1.0

    def ask(self, message: dict[str, Any], within_s: float) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if "images" in message:
            self.batches.append((message["images"], future))
        else:
            threads = 99 if self.threads_lie else message["threads"]
            future.set_result({"cores": sorted(message["cores"]), "threads": threads})
        return future

    def answer(self) -> list[int]:
        images, future = self.batches[-1]
        future.set_result({"labels": [i + 100 for i in images]})
        return images

    def die(self) -> None:
        for _, future in self.batches:
            if not future.done():
                future.set_exception(DeviceLost("killed"))
        self._on_end(self)

    async def leave(self, within_s: float) -> None:
        self.leaving = True
        self._on_end(self)


class Stage:
    """A fleet of puppets on four cores; `refusals` launches fail first."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.puppets: list[Puppet] = []
        self.refusals = 0
        self.lying = False

        async def launch(seed: int, width: int, on_end: Callable[[Any], None]) -> Puppet:
            if self.refusals:
                self.refusals -= 1
                raise DeviceLost("no process to be had")
            puppet = Puppet(on_end, pid=1000 + len(self.puppets))
            puppet.threads_lie = self.lying
            self.puppets.append(puppet)
            return puppet

        monkeypatch.setattr(module, "launch", launch)
        self.fleet = Fleet((0, 1, 2, 3), seed=0, width=8)

    def play(self, scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def run() -> None:
            await self.fleet.start()
            await scene()
            await self.fleet.close()

        asyncio.run(asyncio.wait_for(run(), 20))


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(monkeypatch)


def test_a_full_batch_goes_at_once_and_a_lonely_request_after_a_moment(stage: Stage) -> None:
    async def scene() -> None:
        await stage.fleet.change({"batch_size": 2})
        (worker,) = stage.puppets
        asked = [asyncio.create_task(stage.fleet.infer(i)) for i in range(3)]
        await asyncio.sleep(0)
        assert worker.answer() == [0, 1]
        assert [await asked[0], await asked[1]] == [100, 101]
        assert not asked[2].done()
        while len(worker.batches) < 2:
            await asyncio.sleep(0.001)
        assert worker.answer() == [2]
        assert await asked[2] == 102
        assert (stage.fleet.items, stage.fleet.failed) == (3, 0)

    stage.play(scene)


def test_instances_share_the_queue(stage: Stage) -> None:
    async def scene() -> None:
        await stage.fleet.change({"instances": 4, "threads": 1})
        asked = [asyncio.create_task(stage.fleet.infer(i)) for i in range(5)]
        await asyncio.sleep(0)
        assert [worker.batches[0][0] for worker in stage.puppets] == [[0], [1], [2], [3]]
        for worker in stage.puppets:
            worker.answer()
        await asyncio.wait(asked[:4])
        await asyncio.sleep(0)
        next(w for w in stage.puppets if len(w.batches) == 2).answer()
        assert await asked[4] == 104

    stage.play(scene)


def test_placements_use_each_core_once(stage: Stage) -> None:
    async def scene() -> None:
        await stage.fleet.change({"instances": 4, "threads": 1})
        await stage.fleet.change({"instances": 2, "threads": 2})
        staying = [worker.placed for worker in stage.puppets if not worker.leaving]
        assert staying == [((0, 1), 2), ((2, 3), 2)]
        assert len(stage.puppets) == 4

    stage.play(scene)


def test_a_queue_that_is_full_refuses(stage: Stage) -> None:
    async def scene() -> None:
        asked = [asyncio.create_task(stage.fleet.infer(i)) for i in range(MOST_WAITING + 2)]
        await asyncio.sleep(0)
        refused = await asked[-1]
        assert isinstance(refused, Unserved) and refused.code == "overloaded"
        await stage.fleet.close()
        stopped = await asked[-2]
        assert isinstance(stopped, Unserved) and stopped.code == "stopping"
        asked[0].cancel()

    stage.play(scene)


def test_a_dead_instance_fails_its_batch_and_what_waits_and_is_replaced(stage: Stage) -> None:
    async def scene() -> None:
        asked = [asyncio.create_task(stage.fleet.infer(i)) for i in range(2)]
        await asyncio.sleep(0)
        stage.refusals = 1
        stage.puppets[0].die()
        answers = [await task for task in asked]
        assert [a.code for a in answers if isinstance(a, Unserved)] == [
            "instance_died",
            "no_instance",
        ]
        assert isinstance(await stage.fleet.infer(7), Unserved)
        while len(stage.puppets) < 2:
            await asyncio.sleep(0.01)
        again = asyncio.create_task(stage.fleet.infer(5))
        await asyncio.sleep(0.01)
        stage.puppets[1].answer()
        assert await again == 105
        assert (stage.fleet.items, stage.fleet.failed) == (1, 3)

    stage.play(scene)


def test_a_change_that_fails_leaves_the_former_setting_in_force(stage: Stage) -> None:
    async def scene() -> None:
        former = stage.fleet.setting
        stage.refusals = 1
        with pytest.raises(ActuationError, match="no process"):
            await stage.fleet.change({"instances": 2, "threads": 2})
        assert stage.fleet.setting == former
        serving = [worker for worker in stage.puppets if not worker.leaving]
        assert [worker.placed for worker in serving] == [((0, 1, 2, 3), 4)]

    stage.play(scene)


def test_a_worker_that_is_not_where_it_was_told_does_not_serve(stage: Stage) -> None:
    async def scene() -> None:
        stage.lying = True
        with pytest.raises(ActuationError, match="'threads': 99"):
            await stage.fleet.change({"instances": 2, "threads": 1})
        assert all(worker.leaving for worker in stage.puppets[1:])
        assert not stage.puppets[0].leaving

    stage.play(scene)


def test_a_setting_that_does_not_fit_touches_nothing(stage: Stage) -> None:
    async def scene() -> None:
        with pytest.raises(OutOfRange):
            await stage.fleet.change({"instances": 2})
        assert len(stage.puppets) == 1
        assert stage.puppets[0].placed == ((0, 1, 2, 3), 4)

    stage.play(scene)
