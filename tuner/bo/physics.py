"""Random laws of time and power under clocks, power limits, batches and parallel resources.

In a law every unknown constant is drawn at random; all laws together are the prior of the model.
The forms are textbook ones: time = a/f_core + b/f_mem + c/f_cpu + d; dynamic power ~ f·V(f)² with a
floor of the voltage below which only f scales; a power limit as the highest clock whose power fits
it, where the lower of that clock and the configured one applies; Gunther's law (contention and
crosstalk) for parallel resources, work that does not divide evenly, and hardware threads or sockets
beyond half of them that add less; a batch as a fixed and a growing part of a step. Unknown shares
are uniform, or the larger or the product of two uniform ones where a large or a small share is
expected: no range is fitted to data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from tuner.bo.encoding import Breaks
from tuner.core import Kind, Role

DRAWS = 256
"""The number of laws in the prior."""

SEED = 20_231_016
"""The laws are the same in every study: only the measurements differ."""

CRAWL = 0.1
"""No power limit slows a core to less than this share of its clock."""

LONGEST = 50.0
"""The largest factor by which requests wait longer for their turn."""

ODD = 0.2
"""The expected exponent of time in the value of a knob without a known law."""

ODDEST = 3.0
"""The largest effect (log units) on speed of a knob without a known law."""

MOST_HALVINGS = 5
"""Work that does not divide evenly has at most as many pieces as this number of halvings make."""

ENDLESS = 1e6
"""The number of pieces of work that always divides evenly, and the ceiling of a clock that
always binds."""


class Laws(NamedTuple):
    """Random laws over some settings: logarithms relative to the baseline, one row per law.

    `work` is the time per item, `step` the time per batch, which a request waits for, and `power`
    the power during that time.
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
    roles: Sequence[Role],
    ratios: Tensor,
    breaks: Breaks = (),
) -> Laws:
    """Draw laws over settings; the same knobs always get the same laws.

    `ratios` has one row per setting and one column per knob: its value over the baseline's. `breaks` are
    those of each knob, as ratios. Settings are drawn a thousand at a time: the intermediate results are a
    dozen times the result.
    """
    columns = torch.nn.functional.pad(ratios, (0, 1))  # `unique` refuses rows without a column
    distinct, place = torch.unique(columns, dim=0, return_inverse=True)
    several = len(distinct) < len(ratios)
    parts = torch.split(distinct[:, :-1] if several else ratios, 4 * DRAWS)
    some = [_drawn_laws(roles, part, breaks) for part in parts]
    laws = (torch.cat(each, dim=1) for each in zip(*some, strict=True))
    return Laws(*(each[:, place] if several else each for each in laws))


def _drawn_laws(roles: Sequence[Role], ratios: Tensor, breaks: Breaks) -> Laws:
    """Draw the laws for some settings; the random numbers do not depend on the settings."""
    sampler = LawSampler(SEED)
    knobs = list(zip(roles, ratios.T[:, None], breaks or [()] * len(roles), strict=True))
    columns = {role: [ratio for own, ratio, _ in knobs if own is role] for role in Role}
    one = torch.ones(DRAWS, len(ratios), dtype=torch.float64)
    time, power, idle = _clocked(columns, one, sampler)
    for role, ratio, at in knobs:
        if role is Role.PARALLEL:
            speed, drawn = _packed(ratio, at, sampler) if at else _scaling(ratio, sampler)
            time, power = time / speed, idle + (power - idle).clamp_min(0.0) * drawn
    step = time
    for role, ratio, _ in knobs:
        if role not in (Role.BATCH, Role.CEILING):
            continue
        if role is Role.CEILING:
            ratio, waits = _queued(ratio, sampler)
            step = step * waits
        # Reading the model's weights is often most of a step, at any batch size.
        grown, curve = sampler.little(), 2.0 ** (sampler.share() - sampler.share())
        batch = 1.0 - grown + grown * ratio**curve
        step, time = step * batch, time * batch / ratio
        power = power * (ratio / batch) ** sampler.little()
    for role, ratio, _ in knobs:
        if role not in (Role.UNKNOWN, Role.BOOST):
            continue
        # The time under a block or tile size is often least in the middle of its ladder.
        slope, bend = ODD * sampler.normal(), ODD * (sampler.normal() + 1.0 / 2.0)
        slowness = (slope * ratio.log() + bend * ratio.log() ** 2).clamp(-ODDEST, ODDEST).exp()
        time, step = time * slowness, step * slowness
        power = power * ratio ** (ODD * sampler.normal() / 2.0)
    least = 1.0 / ENDLESS
    return Laws(*(x.clamp_min(least).log() for x in (time, step, power)))


def _clocked(
    columns: dict[Role, list[Tensor]], one: Tensor, sampler: LawSampler
) -> tuple[Tensor, Tensor, Tensor]:
    """Return time and power under clocks and power limits, relative to the baseline's, and idle power.

    Most of the time is expected to follow the core clock. A prior that expects less predicts that
    slowing down costs nothing, and its first trials break limits.
    """
    idle, gamma, floor = 1.0 - sampler.most(), 1.0 + 2.0 * sampler.share(), sampler.share()
    core = _core_speed(columns, one, sampler)
    for ratio in columns[Role.POWER_LIMIT]:
        # The power without a limit, as a share of the baseline's limit.
        demand = sampler.share() + sampler.share()
        allowed, usual = (
            ((r / demand - idle) / (1.0 - idle)).clamp_min(CRAWL**2) ** (1.0 / gamma)
            for r in (ratio, one)
        )
        core = torch.minimum(core, allowed) / usual.clamp_max(1.0)
    memory = math.prod(columns[Role.MEMORY_CLOCK], start=one)
    cpu = _clusters(columns[Role.HOST_CLOCK], one, sampler)
    busy, lean = _staffed(columns[Role.HOST_CORES], one, sampler)
    share = sampler.most()
    second = (1.0 - share) * sampler.share()
    third = (1.0 - share - second) * sampler.share()
    time = share / core + second / memory + third / (cpu * busy) + 1.0 - share - second - third
    first = sampler.most()
    other = (1.0 - first) * sampler.share()
    third = (1.0 - first - other) * bool(columns[Role.HOST_CLOCK] + columns[Role.HOST_CORES])
    other = other * bool(columns[Role.MEMORY_CLOCK])
    stalls = sampler.most()
    dynamic = (
        first * _switching(core, gamma, floor) * (stalls + (1.0 - stalls) / time)
        + other * memory ** (1.0 + sampler.share())
        + third * _switching(cpu, gamma, floor) * busy
    )
    return time, lean * (idle + (1.0 - idle) * dynamic / (first + other + third)), idle


def _core_speed(columns: dict[Role, list[Tensor]], one: Tensor, sampler: LawSampler) -> Tensor:
    """Return the speed under the clocks, relative to the baseline's.

    A core clock may stop binding below the baseline's, or nowhere. A CPU that does the work itself
    counts as the core.
    """
    core = one
    for ratio in columns[Role.CORE_CLOCK]:
        ceiling = torch.where(sampler.coin(), sampler.most().sqrt(), ENDLESS)
        core = core * torch.minimum(ratio, ceiling) / ceiling.clamp_max(1.0)
    return core * _clusters(columns[Role.CPU_CLOCK], one, sampler)


def _staffed(cores: Sequence[Tensor], one: Tensor, sampler: LawSampler) -> tuple[Tensor, Tensor]:
    """Return the share of a CPU's work that its cores do, and the power without the cores switched off.

    Beside a GPU only the cores that feed it are useful; the others cost their leakage.
    """
    busy, lean = one, one
    for ratio in cores:
        need, leak = sampler.share().clamp_min(CRAWL), (1.0 - sampler.most()) * sampler.share()
        busy = busy * (ratio / need).clamp_max(1.0)
        lean = lean * (1.0 - leak + leak * ratio)
    return busy, lean


def _clusters(clocks: Sequence[Tensor], one: Tensor, sampler: LawSampler) -> Tensor:
    """Return the speed of a CPU with several clusters; each has a clock and a part of the work."""
    if len(clocks) < 2:
        return clocks[0] * one if clocks else one
    parts = [-(1.0 - sampler.share()).log() for _ in clocks]
    speeds = [part * ratio for part, ratio in zip(parts, clocks, strict=True)]
    return torch.stack(speeds).sum(dim=0) / torch.stack(parts).sum(dim=0)


def _queued(ratio: Tensor, sampler: LawSampler) -> tuple[Tensor, Tensor]:
    """Return the used share of a ceiling on requests in flight, and the factor on their waiting.

    Requests that arrive at their own rate use the same number of places at any sufficient ceiling;
    under a lower ceiling they queue. Other requests use the whole ceiling.
    """
    theirs, need, steep = sampler.coin(), sampler.share(), 1.0 / sampler.share()
    waits = (need / ratio).clamp_min(1.0) ** steep
    one = torch.ones_like(ratio)
    return torch.where(theirs, one, ratio), torch.where(theirs, waits.clamp_max(LONGEST), one)


def _switching(clock: Tensor, gamma: Tensor, floor: Tensor) -> Tensor:
    """Return dynamic power over a clock: f·V(f)², V constant below a floor."""
    return torch.where(clock >= floor, clock**gamma, floor ** (gamma - 1.0) * clock)


def _scaling(ratio: Tensor, sampler: LawSampler) -> tuple[Tensor, Tensor]:
    """Return the speed and the power under a share of the resources."""
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
    """Return speed and power if another part, such as a socket, begins after each break.

    Each part adds bandwidth and power. After the last break second threads may follow instead, which
    open no part and add less.
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
        """Return uniform numbers between 0 and 1."""
        return torch.rand(DRAWS, 1, dtype=torch.float64, generator=self._source)

    def most(self) -> Tensor:
        """Return mostly large shares: the larger of two uniform ones."""
        return torch.maximum(self.share(), self.share())

    def little(self) -> Tensor:
        """Return mostly small shares: the product of two uniform ones."""
        return self.share() * self.share()

    def normal(self) -> Tensor:
        """Return standard normal numbers."""
        return torch.randn(DRAWS, 1, dtype=torch.float64, generator=self._source)

    def coin(self) -> Tensor:
        """Return true with a probability of one half."""
        return torch.randint(2, (DRAWS, 1), generator=self._source) == 1

    def integer(self, below: int) -> Tensor:
        """Return uniform whole numbers from 0 to below `below`."""
        return torch.randint(below, (DRAWS, 1), generator=self._source).double()
