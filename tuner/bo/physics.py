"""What clocks, power limits, batches and parallel resources do to time and power: random laws.

A law has every constant that is not known drawn at random; all of them together are the prior of the
model. The forms are textbook ones: time = a/f_core + b/f_mem + c/f_cpu + d; dynamic power ~ f·V(f)²
with a floor of the voltage below which only f scales; a power limit as the highest clock whose power
fits it, of which and the clock that is set the lower one counts; Gunther's law (contention and
crosstalk) for parallel resources, work that does not divide evenly and hardware threads or sockets
beyond half of them that add less; a batch as a fixed and a growing part of a step. Unknown shares are
uniform, or the larger or the product of two uniform ones where most or little is expected: no range is
fitted to anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import torch
from torch import Tensor

from tuner.bo.encoding import Breaks
from tuner.bo.queueing import under_load
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

THOUSAND = 1000.0
"""From one unit to the next: W, mW, µW; s, ms."""

BOUND = 0.95
"""A workload that draws so much of its power limit is thought to be held by it."""

LEAST_DRAWN = 0.2
"""What draws less of a power limit than this is measured elsewhere than it is limited."""

CRAWL = 0.1
"""No power limit slows a core to less than this share of its clock."""

LONGEST = 50.0
"""So many times as long may requests wait for their turn."""

ODD = 0.2
"""A knob that nobody knows is expected to change time by this power of its own value."""

ODDEST = 3.0
"""No knob that nobody knows makes work slower or faster by more than this (log units)."""

MOST_HALVINGS = 5
"""Work that does not divide evenly comes in up to as many pieces as so many halvings make."""

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
    return None if under_way is None or batch < 2.0 else under_way**2 > batch


def _under_way(shown: Mapping[str, float], latency: str, declared: Quantities) -> float | None:
    done, power_w, energy_j = (shown.get(called(m, declared)) for m in (CAPACITY, POWER, ENERGY))
    rate = done or (power_w / energy_j if power_w and energy_j else None)
    unit = THOUSAND if quantity_of(latency, declared).unit == "ms" else 1.0
    took = shown.get(latency, 0.0) / unit
    return rate * took if rate is not None and rate * took > 0.0 else None


def share_drawn(power_w: float, limit: float) -> float | None:
    """Return the share of a power limit that is drawn; None where they cannot be of the same parts.

    Drivers take limits in watts, milliwatts or microwatts: at most one of them makes a share. Noise
    shall not make another prior of every study, hence the rounding.
    """
    shares = (power_w / limit * THOUSAND**n for n in (0, 1, 2)) if limit > 0.0 else ()
    return next((round(s, 2) for s in shares if LEAST_DRAWN <= s <= 1.0 + CRAWL), None)


def fills(
    shown: Mapping[str, float], latency: str, ceiling: float, declared: Quantities = UNDECLARED
) -> bool:
    """Return whether as many requests are under way as a ceiling allows, by Little's law.

    A latency that is a tail's, or a token's instead of a request's, is off by a factor: from half the
    ceiling on they count as full. A ceiling of zero is none.
    """
    under_way = _under_way(shown, latency, declared)
    return under_way is not None and 0.0 < ceiling <= 2.0 * under_way


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
    for, `power` the power meanwhile. Under a load that arrives by itself (`arriving`) `work` is the time
    from one item to the next, which no request waits for.
    """

    work: Tensor
    step: Tensor
    power: Tensor
    arriving: bool = False

    def of(self, kind: Kind, stepwise: bool) -> Tensor:
        """Return the logarithm of a metric: one row per law, one column per setting."""
        if kind is Kind.ENERGY:
            return self.power + self.work
        if kind is Kind.POWER:
            return self.power
        if kind is Kind.RATE:
            return -self.work
        return self.step if stepwise or self.arriving else self.work


def draw_laws(
    roles: Sequence[Role],
    ratios: Tensor,
    facts: BaselineFacts = UNKNOWN_BASELINE,
    load: Tensor | None = None,
    breaks: Breaks = (),
) -> Laws:
    """Draw laws over settings, the same ones for the same knobs.

    `ratios` has one row per setting and one column per knob: its value over the baseline's. `load` is that
    of each row over the reference, None where it is always the same. `breaks` are those of each knob, as
    ratios. A few settings at a time: what is needed on the way is a dozen times the result.
    """
    loads = torch.ones_like(ratios[:, :0].sum(dim=1)) if load is None else load
    columns = torch.cat([ratios, loads[:, None]], dim=1)
    distinct, place = torch.unique(columns, dim=0, return_inverse=True)
    count = ratios.shape[1]
    some = [
        _drawn_laws(roles, part[:, :count], facts, None if load is None else part[:, count], breaks)
        for part in torch.split(distinct, DRAWS)
    ]
    laws = zip(*((x.work, x.step, x.power) for x in some), strict=True)
    work, step, power = (torch.cat(each, dim=1)[:, place] for each in laws)
    return Laws(work, step, power, load is not None)


def _drawn_laws(
    roles: Sequence[Role],
    ratios: Tensor,
    facts: BaselineFacts,
    load: Tensor | None,
    breaks: Breaks,
) -> Laws:
    """Return the same laws whatever the settings."""
    sampler = LawSampler(SEED)
    columns: dict[Role, list[Tensor]] = {}
    for column, role in enumerate(roles):
        kind = {Role.CEILING: Role.BATCH, Role.BOOST: Role.UNKNOWN}.get(role, role)
        columns.setdefault(kind, []).append(ratios[:, column][None])
    one = torch.ones(DRAWS, len(ratios), dtype=torch.float64)
    time, power, idle = _clocked(columns, one, facts.drawn, sampler)
    ends = [b for b, r in zip(breaks, roles, strict=False) if r is Role.PARALLEL]
    for ratio, at in zip_longest(columns.get(Role.PARALLEL, ()), ends):
        speed, drawn = _packed(ratio, at, sampler) if at else _scaling(ratio, sampler)
        time, power = time / speed, idle + (power - idle).clamp_min(0.0) * drawn
    step = time
    ceilings = [role is Role.CEILING for role in roles if role in (Role.BATCH, Role.CEILING)]
    for ratio, ceiling in zip(columns.get(Role.BATCH, ()), ceilings, strict=True):
        if ceiling and not facts.full:
            ratio, waits = _queued(ratio, sampler)
            step = step * waits
        # Most of a step is often the model's weights being read, whatever the batch.
        grown, curve = sampler.little(), 2.0 ** (sampler.share() - sampler.share())
        batch = 1.0 - grown + grown * ratio**curve
        step, time = step * batch, time * batch / ratio
        power = power * (ratio / batch) ** sampler.little()
    for ratio in columns.get(Role.UNKNOWN, ()):
        # What a block or tile size does is often least in the middle of its ladder.
        slope, bend = ODD * sampler.normal(), ODD * (sampler.normal() + 1.0 / 2.0)
        slowness = (slope * ratio.log() + bend * ratio.log() ** 2).clamp(-ODDEST, ODDEST).exp()
        time, step = time * slowness, step * slowness
        power = power * ratio ** (ODD * sampler.normal() / 2.0)
    if load is not None:
        time, step, power = under_load(time, step, power, idle, load[None], sampler.share)
    least = 1.0 / ENDLESS
    time, step, power = (x.clamp_min(least).log() for x in (time, step, power))
    return Laws(time, step, power, load is not None)


def _clocked(
    columns: dict[Role, list[Tensor]], one: Tensor, drawn: float | None, sampler: LawSampler
) -> tuple[Tensor, Tensor, Tensor]:
    """Return time and power under clocks and power limits, relative to the baseline's, and idle power.

    Most of the time is expected to follow the core clock: a prior that expects less believes that
    slowing down costs nothing, and its first trials break limits.
    """
    idle, gamma, floor = 1.0 - sampler.most(), 1.0 + 2.0 * sampler.share(), sampler.share()
    beside = bool({Role.HOST_CLOCK, Role.HOST_CORES} & columns.keys())
    core = _core_speed(columns, one, sampler)
    for ratio in columns.get(Role.POWER_LIMIT, ()):
        demand = _demand(drawn, sampler)
        allowed, usual = (
            ((r / demand - idle) / (1.0 - idle)).clamp_min(CRAWL**2) ** (1.0 / gamma)
            for r in (ratio, one)
        )
        core = torch.minimum(core, allowed) / usual.clamp_max(1.0)
    memory = one
    for ratio in columns.get(Role.MEMORY_CLOCK, ()):
        memory = memory * ratio
    cpu = _clusters(columns.get(Role.HOST_CLOCK, []), one, sampler)
    busy, lean = _staffed(columns.get(Role.HOST_CORES, []), one, sampler)
    share = sampler.most()
    second = (1.0 - share) * sampler.share()
    third = (1.0 - share - second) * sampler.share()
    time = share / core + second / memory + third / (cpu * busy) + 1.0 - share - second - third
    first = sampler.most()
    other = (1.0 - first) * sampler.share()
    parts = first, other, 1.0 - first - other
    present = 1.0, float(Role.MEMORY_CLOCK in columns), float(beside)
    total = sum(p * t for p, t in zip(parts, present, strict=True))
    stalls = sampler.most()
    dynamic = (
        parts[0] * present[0] * _switching(core, gamma, floor) * (stalls + (1.0 - stalls) / time)
        + parts[1] * present[1] * memory ** (1.0 + sampler.share())
        + parts[2] * present[2] * _switching(cpu, gamma, floor) * busy
    )
    return time, lean * (idle + (1.0 - idle) * dynamic / total), idle


def _core_speed(columns: dict[Role, list[Tensor]], one: Tensor, sampler: LawSampler) -> Tensor:
    """Return the speed that the clocks give, relative to the baseline's.

    A core clock may stop to bind below the baseline's, or nowhere. A CPU that does the work itself is
    the core.
    """
    core = one
    for ratio in columns.get(Role.CORE_CLOCK, ()):
        ceiling = torch.where(sampler.coin(), sampler.most().sqrt(), ENDLESS)
        core = core * torch.minimum(ratio, ceiling) / ceiling.clamp_max(1.0)
    return core * _clusters(columns.get(Role.CPU_CLOCK, []), one, sampler)


def _demand(drawn: float | None, sampler: LawSampler) -> Tensor:
    """Return the share of its power limit that a workload would draw if it had none.

    A baseline below its limit draws what it demands on average, and more at times; one at its limit may
    demand more; half of the laws doubt that limit and power are of the same parts.
    """
    demand = sampler.share() + sampler.share()
    if drawn is None:
        return demand
    held = drawn >= BOUND
    assumed = 1.0 + sampler.little() if held else drawn ** sampler.most()
    return torch.where(sampler.coin(), assumed, demand)


def _staffed(cores: Sequence[Tensor], one: Tensor, sampler: LawSampler) -> tuple[Tensor, Tensor]:
    """Return how much of a CPU's work its cores do, and the power left by those switched off.

    Beside a GPU only so many cores are of use as feed it; the others cost what they leak.
    """
    busy, lean = one, one
    for ratio in cores:
        need, leak = sampler.share().clamp_min(CRAWL), (1.0 - sampler.most()) * sampler.share()
        busy = busy * (ratio / need).clamp_max(1.0)
        lean = lean * (1.0 - leak + leak * ratio)
    return busy, lean


def _clusters(clocks: Sequence[Tensor], one: Tensor, sampler: LawSampler) -> Tensor:
    """Return the speed of a CPU whose clusters, each with a clock, have each a part of the work."""
    if len(clocks) < 2:
        return clocks[0] * one if clocks else one
    parts = [-(1.0 - sampler.share()).log() for _ in clocks]
    speeds = [part * ratio for part, ratio in zip(parts, clocks, strict=True)]
    return torch.stack(speeds).sum(dim=0) / torch.stack(parts).sum(dim=0)


def _queued(ratio: Tensor, sampler: LawSampler) -> tuple[Tensor, Tensor]:
    """Return which share of a ceiling on what is under way is used, and how requests wait below it.

    Requests that come at a rate of their own use what they need, whatever the ceiling; under a lower
    one they queue. Others use all of it.
    """
    theirs, need, steep = sampler.coin(), sampler.share(), 1.0 / sampler.share()
    waits = (need / ratio).clamp_min(1.0) ** steep
    one = torch.ones_like(ratio)
    return torch.where(theirs, one, ratio), torch.where(theirs, waits.clamp_max(LONGEST), one)


def _switching(clock: Tensor, gamma: Tensor, floor: Tensor) -> Tensor:
    """Return dynamic power over a clock: f·V(f)², V constant below a floor."""
    return torch.where(clock >= floor, clock**gamma, floor ** (gamma - 1.0) * clock)


def _scaling(ratio: Tensor, sampler: LawSampler) -> tuple[Tensor, Tensor]:
    """Return the speed that a share of the resources gives, and the power that it draws."""
    contended = sampler.coin()
    contention = sampler.share()
    crosstalk = torch.where(contended, sampler.share(), 0.0)
    half = 1.0 / 2.0
    sharing = torch.where(sampler.coin(), sampler.share(), 1.0)
    used = torch.where(ratio > half, half + sharing * (ratio - half), ratio)
    used = used / (half + sharing * half)
    uneven = sampler.coin() & ~contended
    pieces = torch.where(uneven, 2.0 ** sampler.integer(MOST_HALVINGS), ENDLESS)
    rounds = (pieces / used - 1.0 / ENDLESS).ceil() * used / pieces
    rounds = torch.where(ratio <= 1.0, rounds, 1.0)
    slowness = contention + (1.0 - contention) / used + crosstalk * (used - 1.0)
    return 1.0 / (slowness.clamp_min(CRAWL) * rounds), ratio ** sampler.share()


def _packed(ratio: Tensor, breaks: Sequence[float], sampler: LawSampler) -> tuple[Tensor, Tensor]:
    """Return speed and power where past every break the next socket, say, begins.

    Each brings its bandwidth and draws power by itself. Past the last break there may be second threads
    instead, which open nothing and add less.
    """
    second, less = sampler.coin(), sampler.little()
    one, ends = torch.ones_like(ratio), torch.tensor(breaks, dtype=torch.float64)

    def opened(at: Tensor) -> Tensor:
        past = (at[..., None] > ends).double()
        return 1.0 + past[..., :-1].sum(dim=-1) + torch.where(second, 0.0, past[..., -1])

    def used(at: Tensor) -> Tensor:
        return torch.where(second, at - (1.0 - less) * (at - ends[-1]).clamp_min(0.0), at)

    share, work = opened(ratio) / opened(one), used(ratio) / used(one)
    serial, bound, apart = sampler.share(), 2.0 * sampler.share(), sampler.share()
    crosstalk = torch.where(sampler.coin(), sampler.share(), 0.0)
    time = torch.maximum(1.0 / work, bound / share) / bound.clamp_min(1.0)
    time = serial + (1.0 - serial) * time + crosstalk * (share - 1.0)
    return 1.0 / time.clamp_min(CRAWL), apart * share + (1.0 - apart) * work ** sampler.share()


class LawSampler:
    """Seeded random columns, one entry per law."""

    def __init__(self, seed: int) -> None:
        self._source = torch.Generator().manual_seed(seed)

    def share(self) -> Tensor:
        """Return numbers between 0 and 1, all alike likely."""
        return torch.rand(DRAWS, 1, dtype=torch.float64, generator=self._source)

    def most(self) -> Tensor:
        """Return shares that are rather large: the larger of two."""
        return torch.maximum(self.share(), self.share())

    def little(self) -> Tensor:
        """Return shares that are rather small: the product of two."""
        return self.share() * self.share()

    def normal(self) -> Tensor:
        """Return standard normal numbers."""
        return torch.randn(DRAWS, 1, dtype=torch.float64, generator=self._source)

    def coin(self) -> Tensor:
        """Return true in half of the laws."""
        return torch.randint(2, (DRAWS, 1), generator=self._source) == 1

    def integer(self, below: int) -> Tensor:
        """Return whole numbers from 0, all alike likely."""
        return torch.randint(below, (DRAWS, 1), generator=self._source).double()
