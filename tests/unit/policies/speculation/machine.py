"""Engines with known costs, the windows that a study gets from them, and their best table."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from tests.builders import START, past, trial, window_of
from tuner.core import (
    Constraint,
    Context,
    Cost,
    Done,
    Estimate,
    Knob,
    Measurement,
    Objective,
    Part,
    Phase,
    Role,
    Setting,
    Signal,
    Space,
    Study,
    Terms,
    Trial,
    Try,
)

NO_COST = Cost()
BATCHES = (1, 2, 4, 8, 16, 32)
LENGTHS = tuple(range(9))
DECODING = Signal("decoding_requests", askable=True)


@dataclass(frozen=True)
class Proposer:
    """One draft: the acceptance of its first token, the factor for each later token, and its time."""

    accepts: float
    fades: float = 0.0
    draft_s: float = 0.05

    def shares(self) -> list[float]:
        """Return P(the first i tokens are accepted) for i = 1 … 8."""
        shares, p = [], 1.0
        for i in range(len(LENGTHS) - 1):
            p *= min(1.0, max(0.0, self.accepts - self.fades * i))
            shares.append(p)
        return shares

    def accepted(self, length: int) -> float:
        """Return l(length)."""
        return math.fsum(self.shares()[:length])


@dataclass
class Decoder:
    """A machine with its target model and its drafts, measured by noisy windows."""

    verify_s: Callable[[int, int], float]
    drafting: Callable[[int], float]
    drafts: Mapping[str, Proposer]
    noise: float = 0.03
    detailed: bool = True
    """Whether its windows show acceptance and timings, or only throughput."""
    rng: random.Random = field(default_factory=lambda: random.Random(0))

    def throughput(self, batch: int, setting: Setting) -> float:
        """Return the true tokens per second."""
        length = int(setting["length"])
        proposer = self.drafts[str(setting.get("draft", next(iter(self.drafts))))]
        step = self.verify_s(batch, length) + length * proposer.draft_s * self.drafting(batch)
        return batch * (1.0 + proposer.accepted(length)) / step

    def window(self, batch: int, setting: Setting) -> Measurement:
        """Return a window, with its true standard error."""
        length = int(setting["length"])
        proposer = self.drafts[str(setting.get("draft", next(iter(self.drafts))))]
        rate = self.throughput(batch, setting) * math.exp(self.rng.gauss(0.0, self.noise))
        shown = {"throughput_per_s": Estimate.of_mean(rate, self.noise * rate, 20)}
        if self.detailed:
            shown |= self._counts(proposer, length, 400 * batch)
        if self.detailed and length:
            draft_ms = 1000 * proposer.draft_s * self.drafting(batch)
            shown["draft_ms"] = Estimate.of_mean(draft_ms, 0.01 * draft_ms, 20)
            verify_ms = 1000 * self.verify_s(batch, length)
            shown["verify_ms"] = Estimate.of_mean(verify_ms, 0.01 * verify_ms, 20)
        return window_of(shown, {DECODING.name: float(batch)})

    def best(self, batch: int, space: Space) -> float:
        """Return the best throughput of any setting."""
        return max(self.throughput(batch, s) for s in space.grid())

    def _counts(self, proposer: Proposer, length: int, steps: int) -> dict[str, Estimate]:
        shown, left = {}, steps
        for i in range(1, length + 1):
            share = proposer.shares()[i - 1]
            before = proposer.shares()[i - 2] if i > 1 else 1.0
            ratio = share / before if before else 0.0
            left = sum(self.rng.random() < ratio for _ in range(left))
            mean = left / steps
            sd = math.sqrt(mean * (1.0 - mean) / steps)
            shown[f"accepted_at_{i}"] = Estimate.of_mean(mean, sd, steps)
        return shown


def gpu(rng: random.Random) -> Decoder:
    """Return a machine bound by memory at small batches: longer steps are free until the pass is full."""
    cost, full = rng.uniform(0.004, 0.02), rng.choice([24, 48, 96])
    tile, jump = rng.choice([1, 8]), rng.uniform(0.0, 0.1)

    def verify(batch: int, length: int) -> float:
        tokens = math.ceil(batch * (length + 1) / tile) * tile
        over = 1.5 * max(0, tokens - full) + 0.5 * tokens
        return 1.0 + jump * (length > 0) + cost * (0.3 * batch + over)

    proposer = Proposer(rng.uniform(0.6, 0.92), rng.uniform(-0.01, 0.03), rng.uniform(0.02, 0.12))
    return Decoder(verify, lambda b: 1.0 + 0.01 * b, {"small": proposer}, rng=rng)


def cpu(rng: random.Random) -> Decoder:
    """Return a machine bound by compute from a few sequences on, where drafting no longer pays."""
    cost, jump, power = rng.uniform(0.08, 0.4), rng.uniform(0.0, 0.3), rng.uniform(0.75, 1.0)

    def verify(batch: int, length: int) -> float:
        tokens: float = (batch * (length + 1)) ** power
        return 1.0 + jump * (length > 0) + cost * (tokens - 1.0)

    proposer = Proposer(rng.uniform(0.5, 0.9), rng.uniform(-0.01, 0.03), rng.uniform(0.05, 0.25))
    return Decoder(
        verify, lambda b: 1.0 + 0.7 * cost * (b**power - 1.0), {"small": proposer}, rng=rng
    )


def space(drafts: tuple[str, ...] = (), cost: Cost = NO_COST) -> Space:
    """Return the knobs of such an engine; drafting is off by default."""
    knobs = [Knob("length", LENGTHS, 0, Part.WORKLOAD, cost, Role.SPECULATION_LENGTH)]
    if drafts:
        knobs.append(Knob("draft", drafts, drafts[0], Part.WORKLOAD, role=Role.DRAFT))
    return Space(tuple(knobs))


def decoding_study(
    within: Space,
    trials: int = 40,
    signals: tuple[Signal, ...] = (DECODING,),
    constraints: tuple[str, ...] = (),
) -> Study:
    """Return a study that maximises tokens per second."""
    return Study(
        id="s1",
        devices=("sim",),
        workload="text",
        space=within,
        objective=Objective("throughput_per_s", "maximize"),
        signals=signals,
        constraints=tuple(Constraint.parse(c) for c in constraints),
        policy="speculation",
        terms=Terms(trials=trials),
        phase=Phase.TUNING,
        created_at=START,
    )


def baseline(machine: Decoder, at: Study, batch: int = 4) -> list[Trial]:
    """Return the baseline's two windows under the present load."""
    return [
        trial(n, at.baseline, machine.window(batch, at.baseline), phase=Phase.BASELINE)
        for n in (1, 2)
    ]


def play(machine: Decoder, at: Study, batch: int = 4) -> tuple[list[Trial], Done]:
    """Let the policy profile the machine until it is done."""
    from policies.speculation.policy import Speculation

    trials = baseline(machine, at, batch)
    for _ in range(100):
        answer = Speculation().suggest(past(at, trials))
        if isinstance(answer, Done):
            return trials, answer
        assert isinstance(answer, Try), answer
        context: Context = answer.context
        measured = machine.window(int(context.get(DECODING.name, batch)), answer.setting)
        ended = trial(len(trials) + 1, answer.setting, measured, context=context)
        trials.append(replace(ended, plan=answer.plan))
    raise AssertionError("the policy does not come to an end")
