"""The best packing: the number of instances, and the threads and items of each.

After Packrat (Bhardwaj, Phanishayee, Narayanan, Tarta and Stutsman, arXiv 2311.18174): a batch is
split among instances that run together, and its latency is that of the slowest instance. Our additions:
cores may stay idle, memory may limit the instances, the profile may have gaps, and the aim may also be
throughput or energy under a limit on the latency.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from policies.packrat.interference import Interference
from policies.packrat.knapsack import least_bottleneck, least_sum
from policies.packrat.profile import Cell, Profile
from tuner.compat import StrEnum
from tuner.core import InvalidInput, MetricUnavailable

MOST_THREADS, MOST_ITEMS = 4096, 2**20
"""The largest problem: the tables of a larger one do not fit into memory, and have no use."""


class Aim(StrEnum):
    """The quantity that a packing optimises."""

    LATENCY = "latency_s"
    """Seconds until the whole batch is done: the time of the slowest instance."""
    THROUGHPUT = "throughput_per_s"
    """Items per second of instances that run batch after batch, at most `batch` items at a time."""
    ENERGY = "energy_j"
    """Joules per item of the batch, if the profile has them."""


@dataclass(frozen=True, slots=True)
class Group:
    """Several equal instances: their number, and the threads and items of each."""

    instances: int
    threads: int
    batch: int


@dataclass(frozen=True, slots=True)
class Packing:
    """Instances that run together, largest first, and their predictions from the profile.

    `items` is the room for items; it exceeds the batch if the batch had to be padded.
    """

    groups: tuple[Group, ...]
    latency_s: float
    throughput_per_s: float
    energy_j: float | None

    @property
    def instances(self) -> int:
        """The number of instances."""
        return sum(g.instances for g in self.groups)

    @property
    def threads(self) -> int:
        """The number of busy threads of all instances."""
        return sum(g.instances * g.threads for g in self.groups)

    @property
    def items(self) -> int:
        """The room for items in all instances."""
        return sum(g.instances * g.batch for g in self.groups)


@dataclass(frozen=True, slots=True)
class _Task:
    """A complete packing problem: the usable profile, the limits and the aim."""

    profile: Profile
    threads: int
    batch: int
    aim: Aim
    most: int
    limit_s: float
    interference: Interference

    def seconds(self, cell: Cell, busy: int) -> float:
        """Return the seconds of a cell while `busy` threads compute, its own included."""
        return self.profile.points[cell].latency_s * self.interference.slowdown(cell[0], busy)

    def cells(self) -> Iterator[Cell]:
        """Yield the cells that fit into the threads and have a value for the aim."""
        for cell, point in self.profile.points.items():
            metered = self.aim is not Aim.ENERGY or point.energy_j is not None
            if cell[0] <= self.threads and metered:
                yield cell

    def packed(self, cells: Iterable[Cell]) -> Packing:
        """Return the packing of these cells."""
        counts = Counter(cells)
        busy = sum(n * threads for (threads, _), n in counts.items())
        items = sum(n * items for (_, items), n in counts.items())
        seconds = {cell: self.seconds(cell, busy) for cell in counts}
        joules = [self.profile.points[cell].energy_j for cell in counts]
        energy_j = (
            math.fsum(n * c[1] * j for (c, n), j in zip(counts.items(), joules, strict=True) if j)
            / min(items, self.batch)
            if all(j is not None for j in joules)
            else None
        )
        order = sorted(counts, key=lambda cell: (-cell[1], -cell[0]))
        return Packing(
            tuple(Group(counts[cell], *cell) for cell in order),
            max(seconds.values()),
            math.fsum(n * cell[1] / seconds[cell] for cell, n in counts.items()),
            energy_j,
        )

    def score(self, packing: Packing) -> tuple[float, int, float, int, int]:
        """Return the key to minimise: the aim, then shapes, latency, instances, threads.

        The aim is rounded to twelve digits, so that a sum in another order does not count as a gain.
        """
        aimed = packing.latency_s
        if self.aim is Aim.THROUGHPUT:
            aimed = -packing.throughput_per_s
        elif self.aim is Aim.ENERGY:
            aimed = packing.energy_j if packing.energy_j is not None else math.inf
        rounded = float(f"{aimed:.12g}")
        return rounded, len(packing.groups), packing.latency_s, packing.instances, packing.threads


def best_packing(
    profile: Profile,
    threads: int,
    batch: int,
    *,
    mixed: bool = True,
    aim: Aim = Aim.LATENCY,
    latency_limit_s: float = math.inf,
    memory_bytes: float = math.inf,
    interference: Interference | None = None,
) -> Packing:
    """Return the best packing of `batch` items on `threads` threads; exact for the given profile.

    All instances run together on parts of the batch, and cores may stay idle. `mixed` allows instances of
    different shapes; equal instances are preferred if they are as good. `latency_limit_s` limits the
    slowest instance's time for its part (without queueing), `memory_bytes` the number of instances × the
    memory of one. With `interference` the latencies are those of instances side by side.

    The parts are profiled batch sizes that add up to the batch exactly, as in Packrat. If no such sum fits,
    the batch is padded: an instance runs fewer items than a profiled size at the cost of that size. So a
    batch just below a power of two can be slower than the power of two; Packrat's own load estimator uses
    powers of two only.

    Raises:
        InvalidInput: threads, batch, limit or memory are out of range, more threads are given than were
            profiled, or nothing fits.
        MetricUnavailable: energy is the aim, and the profile has no energy.
    """
    task = _Task(
        profile,
        threads,
        batch,
        aim,
        _most_instances(profile, threads, memory_bytes),
        latency_limit_s,
        interference or Interference(0.0, threads),
    )
    _check(task)
    for pad in (False, True) if _may_fit(task) else ():
        packings = list(_uniform(task, pad=pad))
        if mixed:
            packings += _mixed(task, pad=pad)
        if packings:
            return min(packings, key=task.score)
    raise _nothing_fits(task)


def _uniform(task: _Task, *, pad: bool) -> Iterator[Packing]:
    """Yield every packing of equal instances that fits and keeps the limit on the latency."""
    for cell in task.cells():
        threads, items = cell
        room = min(task.threads // threads, task.most)
        counts: Sequence[int]
        if task.aim is Aim.THROUGHPUT:
            counts = range(1, min(room, task.batch // items) + 1)
        elif pad or task.batch % items == 0:
            counts = [math.ceil(task.batch / items)]
        else:
            continue
        for count in counts:
            if count <= room and task.seconds(cell, count * threads) <= task.limit_s:
                yield task.packed([cell] * count)


def _mixed(task: _Task, *, pad: bool) -> Iterator[Packing]:
    """Yield packings of any shapes, among them the best one.

    The speed of an instance depends on the number of busy threads, so each number is tried. A packing with
    fewer threads than the number tried is at least as fast as computed for it, and is computed again for
    its own number.
    """
    slowed = task.interference.share > 0.0
    best_s = math.inf
    for busy in range(task.threads, 0, -1) if slowed else (task.threads,):
        cells = _solved(task, busy, best_s, pad=pad)
        if cells is not None:
            packing = task.packed(cells)
            best_s = min(best_s, packing.latency_s)
            yield packing


def _solved(task: _Task, busy: int, best_s: float, *, pad: bool) -> list[Cell] | None:
    """Return the best cells on at most `busy` threads, with the interference of `busy` threads.

    None if no cells fit, or if latency is the aim and no cells beat `best_s`.
    """
    seconds = {cell: s for cell in task.cells() if (s := task.seconds(cell, busy)) <= task.limit_s}
    if task.aim is Aim.LATENCY:
        costs = {cell: s for cell, s in seconds.items() if s < best_s}
    elif task.aim is Aim.THROUGHPUT:
        costs = {cell: -cell[1] / s for cell, s in seconds.items()}
    else:
        costs = {cell: cell[1] * (task.profile.points[cell].energy_j or 0.0) for cell in seconds}
    if task.aim is Aim.THROUGHPUT:
        room = min(task.batch, task.most * task.profile.batches[-1])
        return least_sum(costs, busy, task.most, (1, room))
    # A part larger than the batch holds the whole batch, so it counts as a part of the batch's size.
    parts: dict[Cell, Cell] = {}
    for cell in sorted(costs, key=lambda c: (-costs[c], -c[1])):
        if pad or cell[1] <= task.batch:
            parts[cell[0], min(cell[1], task.batch)] = cell
    valued = {part: costs[cell] for part, cell in parts.items()}
    if task.aim is Aim.LATENCY:
        chosen = least_bottleneck(valued, busy, task.batch, task.most, pad=pad)
    else:
        span = (task.batch, 2 * task.batch - 1 if pad else task.batch)
        chosen = least_sum(valued, busy, task.most, span)
    return None if chosen is None else [parts[part] for part in chosen]


def _most_instances(profile: Profile, threads: int, memory_bytes: float) -> int:
    """Return the most instances within the memory and the threads. Raises InvalidInput: none fits."""
    if math.isinf(memory_bytes) and memory_bytes > 0.0:
        return threads
    if not memory_bytes > 0.0:
        raise InvalidInput(
            f"a memory of {memory_bytes} bytes is too small", hint="give more memory"
        )
    if profile.memory_bytes is None:
        raise InvalidInput(
            "the profile has no memory size of an instance",
            hint="add the column memory_bytes, or plan without a limit on memory",
        )
    most = int(memory_bytes // profile.memory_bytes)
    if most < 1:
        raise InvalidInput(
            "the model does not fit: one instance takes "
            f"{profile.memory_bytes:,.0f} bytes of {memory_bytes:,.0f} available",
            hint="give more memory, or choose a smaller model",
        )
    return min(most, threads)


def _check(task: _Task) -> None:
    """Raise InvalidInput or MetricUnavailable for a problem without a solution for any profiled times."""
    sizes = (("threads", task.threads, MOST_THREADS), ("batch", task.batch, MOST_ITEMS))
    for name, value, most in sizes:
        if not 1 <= value <= most:
            raise InvalidInput(f"{name} cannot be {value}", hint=f"give a number from 1 to {most}")
    if task.threads > task.profile.threads:
        raise InvalidInput(
            f"the profile covers {task.profile.threads} threads, not {task.threads}",
            hint=f"plan for {task.profile.threads} threads at most, or profile more",
        )
    if not task.limit_s > 0.0:
        raise InvalidInput(
            f"the limit on latency_s cannot be {task.limit_s}", hint="give a positive number"
        )
    if task.aim is Aim.ENERGY and not any(
        p.energy_j is not None for p in task.profile.points.values()
    ):
        raise MetricUnavailable(
            "the profile has no energy_j",
            hint="measure it where there is a meter, or choose another objective",
        )


def _may_fit(task: _Task) -> bool:
    """Return False if even the most instances, each with the largest batch, cannot hold the whole batch."""
    most = task.most * task.profile.batches[-1]
    return task.aim is Aim.THROUGHPUT or task.batch <= most


def _nothing_fits(task: _Task) -> InvalidInput:
    """Return the error of a problem without a packing, with the reason."""
    cause = f"no packing of {task.batch} items on {task.threads} threads"
    within = [cell for cell in task.profile.points if cell[0] <= task.threads]
    if not within:
        least = min(threads for threads, _ in task.profile.points)
        return InvalidInput(
            f"{cause}: the profile starts at {least} threads", hint="profile fewer threads"
        )
    quickest = min(task.profile.points[cell].latency_s for cell in within)
    if quickest > task.limit_s:
        return InvalidInput(
            f"{cause} keeps latency_s <= {task.limit_s:g}: the fastest point takes {quickest:g} s",
            hint="raise the limit",
        )
    limited = "" if math.isinf(task.limit_s) else f" with latency_s <= {task.limit_s:g}"
    return InvalidInput(
        f"{cause}{limited}: the profile's points, in at most {task.most} instances, do not fit this batch",
        hint="choose a smaller batch, profile larger ones, or raise limit and memory",
    )
