"""What clocks, power limits, batches and parallel resources do to time and power: random laws.

A law has every constant that is not known drawn at random; all of them together are the prior of the
surrogate. The forms are textbook ones: time = a/f_core + b/f_mem + c/f_cpu + d; dynamic power ~ f·V(f)²
with a floor of the voltage below which only f scales; a power limit as the clock that it leaves;
Gunther's law (contention and crosstalk) for parallel resources, work that does not divide evenly and
hardware threads that share a core; a batch as a fixed and a growing part of a step. The ranges of the
constants are our choice, wide enough for GPUs, boards and servers alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tuner.core import (
    CAPACITY,
    ENERGY,
    POWER,
    UNDECLARED,
    Kind,
    Quantities,
    Role,
    called,
    quantity_of,
)

DRAWS = 256
"""How many laws make the prior."""

SEED = 20_231_016
"""The laws are the same in every study: what differs is what was measured."""

LEAST_BATCH = 2.0
"""A smaller batch at the baseline does not tell whose time a latency is."""

BOUND = 0.95
"""A workload that draws so much of its power limit is thought to be held by it."""

LONGEST = 50.0
"""So many times as long may requests wait for their turn."""

ODDEST = 3.0
"""No knob that nobody knows makes work slower or faster by more than this (log units)."""

ENDLESS = 1e6
"""Into so many pieces falls work that always divides evenly, and so far goes a clock that always binds."""


def waits_for_batch(
    shown: Mapping[str, float], latency: str, batch: float, declared: Quantities = UNDECLARED
) -> bool | None:
    """Return whether a latency is a whole batch's time rather than one item's; None where nothing tells.

    By Little's law as many items are in flight as their rate times the time each takes, and in
    proportion that is nearer to `batch`, the size that these metrics were shown at, or to one. The rate
    is a throughput where one was measured, else power over the energy of an item.
    """
    under_way = _under_way(shown, latency, declared)
    return None if under_way is None or batch < LEAST_BATCH else under_way**2 > batch


def _under_way(shown: Mapping[str, float], latency: str, declared: Quantities) -> float | None:
    done, power_w, energy_j = (shown.get(called(m, declared)) for m in (CAPACITY, POWER, ENERGY))
    rate = done or _rate(power_w, energy_j)
    took = shown.get(latency, 0.0) / (
        1000.0 if quantity_of(latency, declared).unit == "ms" else 1.0
    )
    return rate * took if rate is not None and rate * took > 0.0 else None


def share_drawn(power_w: float, limit: float) -> float | None:
    """Return the share of a power limit that is drawn; None where they cannot be of the same parts.

    What draws a tenth more than it may is measured elsewhere, and what draws less than a fifth limits
    something else: our choice. Drivers take limits in watts, milliwatts or microwatts: at most one of
    them makes a share. Noise shall not make another prior of every study, hence the rounding.
    """
    shares = (power_w / (limit * unit) for unit in (1.0, 1e-3, 1e-6) if limit > 0.0)
    return next((round(share, 2) for share in shares if 0.2 <= share <= 1.1), None)


def _rate(power_w: float | None, energy_j: float | None) -> float | None:
    return power_w / energy_j if power_w and energy_j else None


def fills(
    shown: Mapping[str, float], latency: str, ceiling: float, declared: Quantities = UNDECLARED
) -> bool:
    """Return whether as many requests are under way as a ceiling allows, by Little's law.

    A latency that is a tail's, or a token's instead of a request's, is off by a factor: from half the
    ceiling to four times as many count as full. A ceiling of zero is none.
    """
    under_way = _under_way(shown, latency, declared)
    return under_way is not None and ceiling > 0.0 and 0.5 <= under_way / ceiling <= 4.0


@dataclass(frozen=True, slots=True)
class BaselineFacts:
    """What the baseline alone tells of the laws.

    `stepwise` lists whether times may be a batch's; `drawn` is the share of its power limit that it
    draws, None where that is not known; `full` whether as much is under way as may be.
    """

    stepwise: tuple[bool, ...] = (False, True)
    drawn: float | None = None
    full: bool = False


UNKNOWN_BASELINE = BaselineFacts()


@dataclass(frozen=True, slots=True)
class Laws:
    """Random laws over some settings: logarithms relative to the baseline, one row per law.

    `work` is the time an item takes, `step` the time a batch takes, which is what a request waits
    for, `power` the power meanwhile.
    """

    work: Tensor
    step: Tensor
    power: Tensor

    def of(self, kind: Kind, stepwise: bool) -> Tensor:
        """Return the logarithm of a metric: one row per law, one column per setting."""
        if kind is Kind.ENERGY:
            return self.power + self.work
        if kind is Kind.POWER:
            return self.power
        if kind is Kind.RATE:
            return -self.work
        return self.step if stepwise else self.work


def draw_laws(
    roles: Sequence[Role], ratios: Tensor, facts: BaselineFacts = UNKNOWN_BASELINE
) -> Laws:
    """Draw laws over settings, the same ones for the same knobs.

    `ratios` has one row per setting and one column per knob: its value over the baseline's.
    """
    sampler = LawSampler(SEED)
    columns: dict[Role, list[Tensor]] = {}
    for column, role in enumerate(roles):
        kind = Role.BATCH if role is Role.CEILING else role
        columns.setdefault(kind, []).append(ratios[:, column][None])
    one = torch.ones(DRAWS, len(ratios), dtype=torch.float64)
    time, power = _clocked(columns, one, facts.drawn, sampler)
    time, power = _shared_out(columns.get(Role.PARALLEL, []), time, power, sampler)
    step = time
    ceilings = [role is Role.CEILING for role in roles if role in (Role.BATCH, Role.CEILING)]
    for ratio, ceiling in zip(columns.get(Role.BATCH, ()), ceilings, strict=True):
        if ceiling and not facts.full:
            ratio, waits = _queued(ratio, sampler)
            step = step * waits
        # Most of a step is often the model's weights being read, whatever the batch.
        grown, curve = sampler.uniform(0.0, 1.0) ** 3, sampler.uniform(0.7, 1.5)
        batch = 1.0 - grown + grown * ratio**curve
        step, time = step * batch, time * batch / ratio
        power = power * (ratio / batch) ** sampler.uniform(0.0, 0.35)
    for ratio in columns.get(Role.UNKNOWN, ()):
        # What a block or tile size does is often least in the middle of its ladder.
        slope, bend = sampler.normal(0.0, 0.2), sampler.normal(0.1, 0.2)
        slowness = (slope * ratio.log() + bend * ratio.log() ** 2).clamp(-ODDEST, ODDEST).exp()
        time, step = time * slowness, step * slowness
        power = power * ratio ** sampler.normal(0.0, 0.1)
    return Laws(*(x.clamp_min(1e-6).log() for x in (time, step, power)))


def _clocked(
    columns: dict[Role, list[Tensor]], one: Tensor, drawn: float | None, sampler: LawSampler
) -> tuple[Tensor, Tensor]:
    """Return time and power under clocks and power limits, relative to the baseline's.

    At least two fifths of the time follow the core clock: a prior that expects less believes that
    slowing down costs nothing, and its first trials break limits.
    """
    idle = sampler.uniform(0.1, 0.6)
    beside = bool({Role.HOST_CLOCK, Role.HOST_CORES} & columns.keys())
    core, memory, cpu = _speeds(columns, one, sampler)
    for ratio in columns.get(Role.POWER_LIMIT, ()):
        # The device runs at the lower of the two: where the clock binds, the limit is not felt.
        allowed, usual = _allowed(ratio, idle, drawn, sampler)
        core = torch.minimum(core, allowed) / usual.clamp_max(1.0)
    share = sampler.uniform(0.4, 1.0)
    second = (1.0 - share) * sampler.uniform(0.0, 1.0)
    third = (1.0 - share - second) * sampler.uniform(0.0, 1.0)
    busy, lean = _staffed(columns.get(Role.HOST_CORES, []), one, sampler)
    rest = 1.0 - share - second - third
    time = share / core + second / memory + third / (cpu * busy) + rest
    gamma, floor = sampler.uniform(1.2, 3.2), sampler.uniform(0.3, 0.85)
    stalls = sampler.uniform(0.4, 1.0)
    first = sampler.uniform(0.5, 1.0)
    other = (1.0 - first) * sampler.uniform(0.0, 1.0)
    parts = first, other, 1.0 - first - other
    there = 1.0, float(Role.MEMORY_CLOCK in columns), float(beside)
    total = sum(p * t for p, t in zip(parts, there, strict=True))
    dynamic = (
        parts[0] * there[0] * _switching(core, gamma, floor) * (stalls + (1.0 - stalls) / time)
        + parts[1] * there[1] * memory ** sampler.uniform(1.0, 2.0)
        + parts[2] * there[2] * _switching(cpu, gamma, floor) * busy
    )
    return time, lean * (idle + (1.0 - idle) * dynamic / total)


def _staffed(cores: Sequence[Tensor], one: Tensor, sampler: LawSampler) -> tuple[Tensor, Tensor]:
    """Return how much of a CPU's work its cores do, and the power left by those switched off.

    Beside a GPU only so many cores are of use as feed it; the others cost what they leak.
    """
    busy, lean = one, one
    for ratio in cores:
        need, leak = sampler.uniform(0.1, 1.2), sampler.uniform(0.0, 0.15)
        busy = busy * (ratio / need).clamp_max(1.0) / (1.0 / need).clamp_max(1.0)
        lean = lean * (1.0 - leak + leak * ratio)
    return busy, lean


def _speeds(
    columns: dict[Role, list[Tensor]], one: Tensor, sampler: LawSampler
) -> tuple[Tensor, Tensor, Tensor]:
    """Return core, memory and host CPU speed relative to the baseline's.

    A core clock may stop to bind below the baseline's, or nowhere. A CPU that does the work itself is
    the core.
    """
    core, memory = one, one
    for ratio in columns.get(Role.CORE_CLOCK, ()):
        ceiling = torch.where(sampler.chance(0.5), sampler.uniform(0.6, 1.0), ENDLESS)
        core = core * torch.minimum(ratio, ceiling) / ceiling.clamp_max(1.0)
    for ratio in columns.get(Role.MEMORY_CLOCK, ()):
        memory = memory * ratio
    core = core * _clusters(columns.get(Role.CPU_CLOCK, []), one, sampler)
    return core, memory, _clusters(columns.get(Role.HOST_CLOCK, []), one, sampler)


def _clusters(clocks: Sequence[Tensor], one: Tensor, sampler: LawSampler) -> Tensor:
    """Return the speed of a CPU whose clusters, each with a clock, have each a part of the work."""
    if len(clocks) < 2:
        return clocks[0] * one if clocks else one
    parts = [-sampler.uniform(1e-6, 1.0).log() for _ in clocks]
    speeds = [part * ratio for part, ratio in zip(parts, clocks, strict=True)]
    return torch.stack(speeds).sum(dim=0) / torch.stack(parts).sum(dim=0)


def _allowed(
    ratio: Tensor, idle: Tensor, drawn: float | None, sampler: LawSampler
) -> tuple[Tensor, Tensor]:
    """Return the clock that a power limit leaves, and that of the baseline's, over the one that is set.

    That at which the workload's demand fits it. A baseline below its limit draws what it demands, one
    at its limit may demand more; half of the laws doubt that limit and power are of the same parts.
    """
    demand, gamma = sampler.uniform(0.35, 1.3), sampler.uniform(1.2, 3.2)
    if drawn is not None:
        consistent = (
            sampler.uniform(0.97, 1.2) * drawn if drawn < BOUND else sampler.uniform(BOUND, 1.4)
        )
        demand = torch.where(sampler.chance(0.5), consistent, demand)
    left, usual = (
        ((share / demand - idle) / (1.0 - idle)).clamp_min(0.02) ** (1.0 / gamma)
        for share in (ratio, torch.ones_like(ratio))
    )
    return torch.maximum(left, 0.1 * usual.clamp_max(1.0)), usual


def _queued(ratio: Tensor, sampler: LawSampler) -> tuple[Tensor, Tensor]:
    """Return which share of a ceiling on what is under way is used, and how requests wait below it.

    Requests that come at a rate of their own use what they need, whatever the ceiling; under a lower
    one they queue. Others use all of it.
    """
    theirs, need, steep = (
        sampler.chance(0.4),
        sampler.uniform(0.05, 0.95),
        sampler.uniform(1.0, 8.0),
    )
    waits = (need / ratio).clamp_min(1.0) ** steep
    one = torch.ones_like(ratio)
    return torch.where(theirs, one, ratio), torch.where(theirs, waits.clamp_max(LONGEST), one)


def _switching(clock: Tensor, gamma: Tensor, floor: Tensor) -> Tensor:
    """Return dynamic power over a clock: f·V(f)², V constant below a floor."""
    return torch.where(clock >= floor, clock**gamma, floor ** (gamma - 1.0) * clock)


def _shared_out(
    ratios: Sequence[Tensor], time: Tensor, power: Tensor, sampler: LawSampler
) -> tuple[Tensor, Tensor]:
    """Return time and power when some share of the parallel resources is used.

    Of several such knobs nobody knows which of them hold hardware and which divide it up: the power
    of each follows an exponent of its own.
    """
    for ratio in ratios:
        time = time / _scaling(ratio, sampler)
        if len(ratios) > 1:
            power = power * ratio ** sampler.normal(0.5, 0.4)
            continue
        idle, static = sampler.uniform(0.1, 0.6), sampler.uniform(0.0, 0.3)
        power = idle + (power - idle).clamp_min(0.0) * (static + (1.0 - static) * ratio)
    return time, power


def _scaling(ratio: Tensor, sampler: LawSampler) -> Tensor:
    """Return the speed that a share of the resources gives, relative to the baseline's."""
    contended = sampler.chance(0.35)
    contention = sampler.uniform(0.0, 0.9)
    crosstalk = torch.where(contended, sampler.uniform(0.0, 1.0), 0.0)
    sharing = torch.where(sampler.chance(0.4), sampler.uniform(0.0, 0.6), 1.0)
    used = torch.where(ratio > 0.5, 0.5 + sharing * (ratio - 0.5), ratio) / (0.5 + sharing * 0.5)
    uneven = sampler.chance(0.3) & ~contended
    pieces = torch.where(uneven, sampler.choice(1.0, 2.0, 4.0, 8.0, 16.0), ENDLESS)
    rounds = torch.where(ratio <= 1.0, (pieces / used - 1e-9).ceil() * used / pieces, 1.0)
    slowness = contention + (1.0 - contention) / used + crosstalk * (used - 1.0)
    return 1.0 / (slowness.clamp_min(0.05) * rounds)


class LawSampler:
    """Seeded random columns, one entry per law."""

    def __init__(self, seed: int) -> None:
        self._source = torch.Generator().manual_seed(seed)

    def uniform(self, low: float, high: float) -> Tensor:
        """Return numbers between two bounds."""
        draw = torch.rand(DRAWS, 1, dtype=torch.float64, generator=self._source)
        return low + (high - low) * draw

    def normal(self, mean: float, sd: float) -> Tensor:
        """Return normal numbers."""
        draw = torch.randn(DRAWS, 1, dtype=torch.float64, generator=self._source)
        return mean + sd * draw

    def chance(self, share: float) -> Tensor:
        """Return true in that share of the laws."""
        return self.uniform(0.0, 1.0) < share

    def choice(self, *values: float) -> Tensor:
        """Return one of the values each, all alike likely."""
        at = torch.randint(len(values), (DRAWS, 1), generator=self._source)
        return torch.tensor(values, dtype=torch.float64)[at]
