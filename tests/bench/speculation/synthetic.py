"""Adaptive speculation on decoders whose true costs are known, up to 256 requests; nothing is timed.

Each decoder is profiled by the policy through noisy windows; its table is then judged by the true rates at
every load, against plain decoding and against the oracle, which has the best length of each. Others can be
given: `DECODER=module:NAME`, where NAME is a function of a `random.Random` that returns a `JudgedDecoder`.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from typing import Protocol, cast

from agents.speculation.fallback import SpeculationFallback, StepCounts
from tests.unit.policies.speculation.machine import (
    DECODING,
    Decoder,
    Proposer,
    decoding_study,
    play,
    space,
)
from tuner.core import InvalidInput, Measurement, Plan, Setting, Trial

LOADS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 160, 192, 224, 256)
COLLAPSED = 0.05
"""The chance that a drafted token is accepted, after a collapse."""
COLLAPSE_STEPS = 4000


class JudgedDecoder(Protocol):
    """A decoder that can be profiled and judged; a setting has a `length` from 0 to 8."""

    def throughput(self, batch: int, setting: Setting) -> float:
        """Return the true tokens per second of this many requests."""

    def window(self, batch: int, setting: Setting) -> Measurement:
        """Return a measured window, with noise."""


MakeDecoder = Callable[[random.Random], JudgedDecoder]


def knee(tokens: int) -> MakeDecoder:
    """Return decoders whose pass is bound by memory up to this many tokens, and by compute beyond."""

    def made(rng: random.Random) -> Decoder:
        slope = rng.uniform(0.0005, 0.003)

        def verify_s(batch: int, length: int) -> float:
            size = batch * (length + 1)
            return 1.0 + slope * size + max(0.0, size - tokens) / tokens

        proposer = Proposer(rng.uniform(0.6, 0.9), rng.uniform(0.0, 0.03), rng.uniform(0.02, 0.1))
        return Decoder(verify_s, lambda b: 1.0 + b / tokens, {"small": proposer}, rng=rng)

    return made


def tiles(rng: random.Random) -> Decoder:
    """Return a decoder whose pass takes the time of the tiles that its tokens fill, rounded up."""
    tile, slope = rng.choice([16, 32, 64]), rng.uniform(0.15, 0.5)

    def verify_s(batch: int, length: int) -> float:
        return 1.0 + slope * (math.ceil(batch * (length + 1) / tile) - 1)

    proposer = Proposer(rng.uniform(0.6, 0.9), 0.01, rng.uniform(0.02, 0.1))
    return Decoder(
        verify_s, lambda b: 1.0 + 0.02 * math.ceil(b / tile), {"small": proposer}, rng=rng
    )


def slow_draft(rng: random.Random) -> Decoder:
    """Return a decoder whose draft takes a third to all of a pass of the target for each token."""
    machine = knee(128)(rng)
    assert isinstance(machine, Decoder)
    return replace(machine, drafts={"small": Proposer(0.8, 0.01, rng.uniform(0.3, 1.0))})


def untold(rng: random.Random) -> Decoder:
    """Return a decoder whose windows show only throughput, neither acceptance nor timings."""
    machine = knee(128)(rng)
    assert isinstance(machine, Decoder)
    return replace(machine, detailed=False)


DECODERS: Mapping[str, MakeDecoder] = {
    **{f"knee {tokens}": knee(tokens) for tokens in (64, 128, 200)},
    "tiles": tiles,
    "slow draft": slow_draft,
    "throughput alone": untold,
}


@dataclass(frozen=True, slots=True)
class DecoderResult:
    """The results of tables on one kind of decoder, over its seeds: ratios of true rates.

    `over_plain_least` is the worst load of the worst seed, `over_oracle` the mean over loads of the worst
    seed, `over_oracle_mean` that of all, `over_oracle_least` the worst load of the worst seed.
    """

    decoder: str
    over_plain_least: float
    over_plain_mean: float
    over_oracle: float
    over_oracle_mean: float
    over_oracle_least: float
    points: float
    profiled_to: int


def judged(name: str, make: MakeDecoder, seeds: Sequence[int]) -> DecoderResult:
    """Return the results of the policy's tables on decoders of one kind."""
    plain, oracle, points, most = [], [], [], 0
    for seed in seeds:
        machine = make(random.Random(seed))
        trials, plan = profiled(machine)
        settings = list(space().grid())
        rates = [machine.throughput(b, setting_at(plan, b)) for b in LOADS]
        plain.append(
            [r / machine.throughput(b, {"length": 0}) for r, b in zip(rates, LOADS, strict=True)]
        )
        best = [max(machine.throughput(b, s) for s in settings) for b in LOADS]
        oracle.append([r / b for r, b in zip(rates, best, strict=True)])
        points.append(len({(t.ran_at[DECODING.name], t.setting["length"]) for t in trials}))
        most = max(most, *(int(t.ran_at[DECODING.name]) for t in trials))
    means = [statistics.fmean(one) for one in oracle]
    return DecoderResult(
        name,
        min(map(min, plain)),
        statistics.fmean(statistics.fmean(one) for one in plain),
        min(means),
        statistics.fmean(means),
        min(map(min, oracle)),
        statistics.fmean(points),
        most,
    )


def profiled(machine: JudgedDecoder) -> tuple[list[Trial], Plan]:
    """Let the policy profile a decoder; return its windows and its table."""
    trials, done = play(cast("Decoder", machine), decoding_study(space()))
    return trials, done.plan


def setting_at(plan: Plan, batch: int) -> Setting:
    """Return a table's setting for this many requests."""
    return plan.rows[plan.row({DECODING.name: float(batch)})].setting


@dataclass(frozen=True, slots=True)
class CollapseResult:
    """Tokens after a collapse of acceptance, over plain decoding's in the same time: the worst load."""

    over_plain_least: float
    over_plain_without_fallback: float


def collapsed(seeds: Sequence[int]) -> CollapseResult:
    """Let acceptance collapse under tables that are followed with the fallback, step by step."""
    kept, lost = [], []
    for seed in seeds:
        machine = knee(128)(random.Random(seed))
        assert isinstance(machine, Decoder)
        _, plan = profiled(machine)
        after = replace(machine, drafts={"small": Proposer(COLLAPSED)})
        for batch in (1, 8, 32, 64):
            length = int(setting_at(plan, batch)["length"])
            plain = after.throughput(batch, {"length": 0})
            kept.append(_with_fallback(after, batch, length) / plain)
            lost.append(after.throughput(batch, {"length": length}) / plain)
    return CollapseResult(min(kept), min(lost))


def _with_fallback(machine: Decoder, batch: int, planned: int) -> float:
    """Return the tokens per second of steps whose length the fallback chooses."""
    fallback, tokens, seconds = SpeculationFallback(), 0.0, 0.0
    proposer = machine.drafts["small"]
    for _ in range(COLLAPSE_STEPS):
        length = fallback.length(batch, planned)
        accepted = sum(_accepted(machine.rng, proposer.shares()[:length]) for _ in range(batch))
        took = (batch + batch * proposer.accepted(length)) / machine.throughput(
            batch, {"length": length}
        )
        tokens, seconds = tokens + batch + accepted, seconds + took
        # An engine's step takes some 20 ms; the decoder's plain one is the unit.
        fallback.count(StepCounts(batch, length, batch * length, accepted, 0.02 * took))
    return tokens / seconds


def _accepted(rng: random.Random, shares: Sequence[float]) -> int:
    drawn = rng.random()
    return sum(drawn < share for share in shares)


def synthetic(decoder: str, seeds: int, report: Callable[[str], None]) -> dict[str, object]:
    """Return the results of the tables on the decoders here, or on the named one, as JSON.

    Raises:
        InvalidInput: no such decoder.
    """
    decoders = {decoder: decoder_named(decoder)} if decoder else DECODERS
    judgements = []
    for name, make in decoders.items():
        report(name)
        judgements.append(asdict(judged(name, make, range(seeds))))
    report("collapse of acceptance")
    fell = asdict(collapsed(range(seeds)))
    return {"loads": LOADS, "seeds": seeds, "decoders": judgements, "collapse": fell}


def decoder_named(text: str) -> MakeDecoder:
    """Return the function that `module:NAME` names. Raises InvalidInput."""
    module, _, name = text.partition(":")
    try:
        return cast("MakeDecoder", getattr(import_module(module), name))
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidInput(
            f"cannot load the decoder {text!r}: {error}",
            hint="write module:NAME, a function of a random.Random",
        ) from None
