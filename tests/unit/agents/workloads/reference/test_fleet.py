from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from typing import Any

import pytest

from agents.workloads.reference import fleet as module
from agents.workloads.reference.batcher import MOST_TRIES, MOST_WAITING, Unserved
from agents.workloads.reference.catalogue import REFERENCE
from agents.workloads.reference.fleet import Fleet
from agents.workloads.reference.instance import Placement, Recipe
from agents.workloads.reference.slab import inputs
from tests.errors import raised
from tuner.core import ActuationError, DeviceLost, OutOfRange

MIB = 1 << 20


class Puppet:
    """An instance without a process; batches wait until the test answers them."""

    def __init__(self, on_end: Callable[[Any], None], pid: int) -> None:
        self.pid = pid
        self.leaving = False
        self.placed: Placement | None = None
        self.allocator = ""
        self.warm_at = 0
        self.batches: list[tuple[list[int], asyncio.Future[list[int]]]] = []
        self.lying = False
        self.ready: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._gone = asyncio.Event()
        self._on_end = on_end

    @property
    def idle(self) -> bool:
        return not self.leaving and all(f.done() for _, f in self.batches)

    def cpu_s(self) -> float:
        return 1.0

    def own_bytes(self) -> int:
        return 100 * MIB

    def run(self, items: Sequence[int]) -> asyncio.Future[list[int]]:
        future: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
        self.batches.append((list(items), future))
        return future

    async def place(self, placement: Placement, batch_size: int) -> None:
        if self.lying:
            raise ActuationError("it is somewhere else")
        self.placed, self.warm_at = placement, batch_size

    def answer(self) -> list[int]:
        items, future = self.batches[-1]
        future.set_result([i + 100 for i in items])
        if self.leaving:
            self._end()
        return items

    def die(self) -> None:
        for future in [self.ready, *(f for _, f in self.batches)]:
            if not future.done():
                future.set_exception(DeviceLost("killed"))
        self._end()

    async def rest(self) -> None:
        await asyncio.gather(*(f for _, f in self.batches), return_exceptions=True)

    async def leave(self, within_s: float) -> None:
        """Finish the batch in progress, as a worker does but a hundred times faster, and end."""
        self.leaving = True
        if all(f.done() for _, f in self.batches):
            self._end()
        try:
            await asyncio.wait_for(self._gone.wait(), within_s / 100.0)
        except TimeoutError:
            self.die()

    def _end(self) -> None:
        if not self._gone.is_set():
            self._gone.set()
            self._on_end(self)


class Stage:
    """A fleet of puppets on four cores; `refusals` launches fail first, `held` ones never load."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.puppets: list[Puppet] = []
        self.refusals = 0
        self.lying = False
        self.held = False
        self.available = 1000 * MIB

        async def launch(recipe: Recipe, allocator: str, on_end: Callable[[Any], None]) -> Puppet:
            if self.refusals:
                self.refusals -= 1
                raise DeviceLost("no process to be had")
            puppet = Puppet(on_end, pid=1000 + len(self.puppets))
            puppet.allocator = allocator
            puppet.lying = self.lying
            if not self.held:
                puppet.ready.set_result(None)
            self.puppets.append(puppet)
            return puppet

        monkeypatch.setattr(module, "launch", launch)
        which = REFERENCE
        recipe = Recipe(which, 0, 8, inputs(which, 0))
        self.fleet = Fleet((0, 1, 2, 3), recipe, ("kept", "given"), lambda: self.available)

    @property
    def serving(self) -> list[Puppet]:
        serving = [i.pid for i in self.fleet.batcher.instances]
        return [p for p in self.puppets if p.pid in serving]

    @property
    def spares(self) -> list[Puppet]:
        return [p for p in self.puppets if p.pid in self.fleet.spare_pids]

    def play(self, scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def run() -> None:
            await self.fleet.start()
            await scene()
            for puppet in self.puppets:
                if not puppet.idle and puppet.batches and not puppet.batches[-1][1].done():
                    puppet.answer()
            await self.fleet.close()

        asyncio.run(asyncio.wait_for(run(), 20))


def played(scene: Callable[[Stage], Coroutine[Any, Any, None]]) -> Callable[[Stage], None]:
    @wraps(scene)
    def test(stage: Stage) -> None:
        stage.play(lambda: scene(stage))

    return test


def totals(stage: Stage) -> tuple[int, int]:
    return stage.fleet.batcher.items, stage.fleet.batcher.failed


async def moment() -> None:
    """Let the event loop run until nothing more happens."""
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(monkeypatch)


@played
async def test_a_full_batch_starts_at_once_and_a_single_request_after_a_moment(
    stage: Stage,
) -> None:
    await stage.fleet.change({"batch_size": 2})
    (worker,) = stage.puppets
    requests = [asyncio.create_task(stage.fleet.infer(i)) for i in range(3)]
    await asyncio.sleep(0)
    assert worker.answer() == [0, 1]
    assert [await requests[0], await requests[1]] == [100, 101]
    assert not requests[2].done()
    while len(worker.batches) < 2:
        await asyncio.sleep(0.001)
    assert worker.answer() == [2]
    assert await requests[2] == 102
    assert totals(stage) == (3, 0)


@played
async def test_instances_share_one_queue(stage: Stage) -> None:
    await stage.fleet.change({"instances": 4, "threads": 1})
    requests = [asyncio.create_task(stage.fleet.infer(i)) for i in range(5)]
    await asyncio.sleep(0)
    assert [worker.batches[0][0] for worker in stage.serving] == [[0], [1], [2], [3]]
    for worker in stage.serving:
        worker.answer()
    await asyncio.wait(requests[:4])
    await asyncio.sleep(0)
    next(w for w in stage.serving if len(w.batches) == 2).answer()
    assert await requests[4] == 104


@played
async def test_placements_use_each_core_once_and_instances_in_place_keep_serving(
    stage: Stage,
) -> None:
    await stage.fleet.change({"instances": 4, "threads": 1})
    assert [w.placed for w in stage.serving] == [Placement((k,), 1, "kept") for k in range(4)]
    first, second = stage.serving[:2]
    assert await stage.fleet.change({"instances": 2, "batch_size": 4}) is not None
    assert stage.serving == [first, second]
    assert await stage.fleet.change({"batch_size": 2}) is None
    await stage.fleet.change({"threads": 2})
    assert {w.placed for w in stage.serving} == {
        Placement((0, 1), 2, "kept"),
        Placement((2, 3), 2, "kept"),
    }
    assert all(w.warm_at == 2 for w in stage.serving)


@played
async def test_the_old_instances_serve_until_the_new_ones_are_warm_and_finish_their_requests(
    stage: Stage,
) -> None:
    (old,) = stage.puppets
    stage.held = True
    change = asyncio.create_task(stage.fleet.change({"instances": 2, "threads": 2}))
    await moment()
    assert len(stage.puppets) == 3 and stage.fleet.setting["instances"] == 1
    during = asyncio.create_task(stage.fleet.infer(1))
    await moment()
    assert old.answer() == [1]
    assert await during == 101
    unfinished = asyncio.create_task(stage.fleet.infer(2))
    await moment()
    for new in stage.puppets[1:]:
        new.ready.set_result(None)
    await moment()
    assert stage.fleet.setting["instances"] == 2 and not change.done()
    assert stage.spares == []
    after = asyncio.create_task(stage.fleet.infer(3))
    await moment()
    assert stage.puppets[1].answer() == [3]
    assert old.answer() == [2]
    assert [await unfinished, await after] == [102, 103]
    switch = await change
    assert stage.spares == [old]
    assert switch is not None and (switch.items, switch.failed) == (3, 0)
    assert switch.latency_p99_ms is not None and switch.latency_p99_ms > 0.0
    assert stage.fleet.last_switch == switch and stage.fleet.switches == 1
    assert totals(stage) == (3, 0)


@pytest.mark.promise("workers of the reference server die")
@played
async def test_a_new_set_that_is_killed_leaves_the_old_one_serving(stage: Stage) -> None:
    (old,) = stage.puppets
    stage.held = True
    change = asyncio.create_task(stage.fleet.change({"instances": 4, "threads": 1}))
    await moment()
    for new in stage.puppets[1:]:
        new.die()
    with raised(DeviceLost, "killed"):
        await change
    assert stage.fleet.setting["instances"] == 1
    request = asyncio.create_task(stage.fleet.infer(1))
    await moment()
    assert old.answer() == [1] and await request == 101
    assert stage.serving[:1] == [old] and stage.fleet.pids[1:] == [old.pid]


@played
async def test_a_new_instance_killed_once_it_is_warm_ends_the_other_new_ones(stage: Stage) -> None:
    (old,) = stage.puppets
    stage.held = True
    change = asyncio.create_task(stage.fleet.change({"instances": 2, "threads": 2}))
    await moment()
    stage.puppets[1].ready.set_result(None)
    await moment()
    stage.puppets[1].die()
    stage.puppets[2].ready.set_result(None)
    with raised(DeviceLost, "ready"):
        await change
    assert stage.serving == [old] and stage.spares == [stage.puppets[2]]


@played
async def test_an_old_instance_serves_again_if_its_threads_are_needed(stage: Stage) -> None:
    (wide,) = stage.puppets
    stage.available = 2000 * MIB
    await stage.fleet.change({"instances": 2, "threads": 1, "batch_size": 4})
    first, second = stage.serving
    assert stage.spares == [wide]
    await stage.fleet.change({"instances": 1, "threads": 2})
    (third,) = stage.serving
    assert stage.spares == [wide, first, second] and third not in (wide, first, second)
    await stage.fleet.change({"threads": 1, "batch_size": 8})
    assert stage.serving == [first], "not the one that was there"
    assert first.warm_at == 8
    first.die()
    await moment()
    assert stage.serving == [second] and second.placed == Placement((0,), 1, "kept"), (
        "not pinned anew"
    )
    await stage.fleet.change({"threads": 4})
    assert stage.serving == [wide] and len(stage.puppets) == 4


@played
async def test_a_spare_that_dies_is_harmless(stage: Stage) -> None:
    (first,) = stage.puppets
    await stage.fleet.change({"threads": 1})
    first.die()
    assert stage.spares == [] and len(stage.serving) == 1
    await stage.fleet.change({"threads": 4})
    (second,) = stage.spares
    second.lying = True
    await stage.fleet.change({"threads": 1})
    assert second.leaving and second not in stage.serving
    assert stage.fleet.setting["threads"] == 1 and len(stage.serving) == 1
    assert totals(stage) == (0, 0)


@played
async def test_spares_take_a_share_of_the_memory_that_is_left_and_no_more(stage: Stage) -> None:
    await stage.fleet.change({"instances": 4, "threads": 1})
    stage.available = 900 * MIB
    await stage.fleet.change({"instances": 1})
    assert len(stage.spares) == 2
    ended = [p for p in stage.puppets if p.leaving]
    assert len(ended) == 2
    # Instances without a spare must fit as usual.
    stage.available = 100 * MIB
    with raised(OutOfRange, "1"):
        await stage.fleet.change({"instances": 4})
    await stage.fleet.change({"instances": 2})
    assert len(stage.serving) == 2


@played
async def test_unusable_spares_are_ended_when_memory_is_needed(stage: Stage) -> None:
    (wide,) = stage.puppets
    await stage.fleet.change({"instances": 2, "threads": 1})
    assert stage.spares == [wide]
    available = iter([150 * MIB, 250 * MIB, 250 * MIB, 250 * MIB])
    stage.fleet._available = lambda: next(available)
    await stage.fleet.change({"instances": 4})
    assert wide.leaving and len(stage.serving) == 4
    stage.fleet._available = lambda: 50 * MIB
    with raised(OutOfRange, "1"):
        await stage.fleet.change({"instances": 1, "threads": 4})


@played
async def test_a_setting_beyond_the_memory_is_refused_before_anything_starts(stage: Stage) -> None:
    stage.available = 390 * MIB
    with raised(OutOfRange, "400 MiB", "390 MiB"):
        await stage.fleet.change({"instances": 4, "threads": 1})
    assert len(stage.puppets) == 1 and stage.fleet.setting["instances"] == 1
    await stage.fleet.change({"instances": 2, "threads": 2})


def test_a_model_that_does_not_fit_is_refused_at_the_start(stage: Stage) -> None:
    stage.available = 50 * MIB
    with raised(OutOfRange, "reference"):
        stage.play(moment)
    assert stage.puppets == []


@played
async def test_requests_in_the_server_are_integrated_over_time(stage: Stage) -> None:
    before, began = stage.fleet.batcher.in_flight_s, time.monotonic()
    requests = [asyncio.create_task(stage.fleet.infer(i)) for i in range(3)]
    while stage.fleet.batcher.arrived < 3:
        await moment()
    all_inside = time.monotonic()
    await asyncio.sleep(0.05)
    least = 3 * (time.monotonic() - all_inside)
    grown = stage.fleet.batcher.in_flight_s - before
    assert least <= grown <= 3 * (time.monotonic() - began)
    for _ in requests:
        stage.puppets[0].answer()
        await moment()
    await asyncio.wait(requests)
    still = stage.fleet.batcher.in_flight_s
    await asyncio.sleep(0.01)
    assert stage.fleet.batcher.in_flight_s == still
    assert (stage.fleet.batcher.arrived, stage.fleet.batcher.batches) == (3, 3)


@played
async def test_a_crowd_is_reported_when_it_is_there_or_at_the_timeout(stage: Stage) -> None:
    batcher = stage.fleet.batcher
    await asyncio.wait_for(batcher.crowded(0, 60.0), 1.0)
    await asyncio.wait_for(batcher.crowded(1, 0.01), 1.0)
    crowds = [asyncio.create_task(batcher.crowded(count, 60.0)) for count in (1, 2, 3)]
    await moment()
    requests = [asyncio.create_task(stage.fleet.infer(i)) for i in range(2)]
    await moment()
    assert [task.done() for task in crowds] == [True, True, False]
    assert batcher.inside == 2
    crowds[2].cancel()
    for _ in requests:
        stage.puppets[0].answer()
        await moment()
    await asyncio.wait([*requests, *crowds])
    assert batcher.inside == 0


@played
async def test_a_queue_that_is_full_refuses(stage: Stage) -> None:
    requests = [asyncio.create_task(stage.fleet.infer(i)) for i in range(MOST_WAITING + 2)]
    await asyncio.sleep(0)
    refused = await requests[-1]
    assert isinstance(refused, Unserved) and refused.code == "overloaded"
    await stage.fleet.close()
    stopped = await requests[-2]
    assert isinstance(stopped, Unserved) and stopped.code == "stopping"
    requests[0].cancel()


@pytest.mark.promise(
    "workers of the reference server die",
    "other workers take their batch, or it is answered with 503; during a change the "
    "old workers continue",
)
@played
async def test_a_dead_instance_has_its_batch_done_by_another_and_is_replaced(stage: Stage) -> None:
    await stage.fleet.change({"instances": 2, "threads": 2, "batch_size": 2})
    stage.spares[0].die()
    dying, other = stage.serving
    requests = [asyncio.create_task(stage.fleet.infer(i)) for i in range(4)]
    await moment()
    assert [dying.batches[0][0], other.batches[0][0]] == [[0, 1], [2, 3]]
    stage.held = True
    dying.die()
    await moment()
    other.answer()
    await moment()
    assert other.answer() == [0, 1]
    assert [await task for task in requests] == [100, 101, 102, 103]
    assert totals(stage) == (4, 0)
    stage.puppets[-1].ready.set_result(None)
    await moment()
    places = [instance.placed for instance in stage.fleet.batcher.instances]
    assert places == [Placement((2, 3), 2, "kept"), Placement((0, 1), 2, "kept")]


@played
async def test_a_request_that_ends_every_worker_is_finally_refused(stage: Stage) -> None:
    await stage.fleet.change({"instances": 4, "threads": 1})
    request = asyncio.create_task(stage.fleet.infer(1))
    stage.held = True
    for _ in range(MOST_TRIES):
        await moment()
        next(w for w in stage.puppets if w.batches and not w.batches[-1][1].done()).die()
    refused = await request
    assert isinstance(refused, Unserved) and refused.code == "instance_died"
    assert totals(stage) == (0, 1)
    stage.puppets[-1].ready.set_result(None)


@played
async def test_the_last_instance_that_dies_leaves_clear_refusals(stage: Stage) -> None:
    requests = [asyncio.create_task(stage.fleet.infer(i)) for i in range(2)]
    await asyncio.sleep(0)
    stage.refusals = 1
    stage.puppets[0].die()
    answers = [await task for task in requests]
    assert [a.code for a in answers if isinstance(a, Unserved)] == [
        "instance_died",
        "no_instance",
    ]
    assert isinstance(await stage.fleet.infer(7), Unserved)
    while not stage.fleet.batcher.instances:
        await asyncio.sleep(0.01)
    again = asyncio.create_task(stage.fleet.infer(5))
    await asyncio.sleep(0.01)
    stage.puppets[1].answer()
    assert await again == 105
    assert totals(stage) == (1, 3)


@played
async def test_a_worker_that_reports_another_placement_does_not_serve(stage: Stage) -> None:
    stage.lying = True
    with pytest.raises(ActuationError, match="somewhere else"):
        await stage.fleet.change({"instances": 2, "threads": 1})
    assert all(worker.leaving for worker in stage.puppets[1:])
    assert stage.serving == stage.puppets[:1]
    assert stage.fleet.setting == stage.fleet.space.default


@played
async def test_another_allocator_means_new_processes_and_the_way_back_spares(stage: Stage) -> None:
    (first,) = stage.puppets
    assert first.allocator == "kept"
    assert await stage.fleet.change({"allocator": "given"}) is not None
    (other,) = stage.serving
    assert (other.allocator, other.placed) == ("given", Placement((0, 1, 2, 3), 4, "given"))
    assert stage.spares == [first]
    await stage.fleet.change({"instances": 2, "threads": 2, "allocator": "given"})
    assert all(p.allocator == "given" for p in stage.serving)
    await stage.fleet.change({"instances": 1, "threads": 4, "allocator": "kept"})
    assert stage.serving == [first], "a spare with the allocator asked for serves again"


@played
async def test_a_setting_that_does_not_fit_touches_nothing(stage: Stage) -> None:
    with pytest.raises(OutOfRange):
        await stage.fleet.change({"instances": 2})
    assert len(stage.puppets) == 1
    assert stage.puppets[0].placed == Placement((0, 1, 2, 3), 4, "kept")
