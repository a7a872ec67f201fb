"""Two made-up traces for the contest: random bursts, and a load that moves between three levels."""

from __future__ import annotations

from random import Random

from jouletune_bench.llm import Request
from jouletune_bench.llm.requests import typical
from tests.bench.load.judge import Task

TUNED_S, JUDGED_S = 3600.0, 7200.0
VARIATION = 2.0
"""The standard deviation of the bursty trace's gaps over their mean."""
LEVELS = (0.5, 1.0, 1.6)
STAYS_S = (120.0, 600.0)


def gusts(rate_per_s: float, seed: int, until_s: float) -> list[Request]:
    """Return requests whose gaps have a Gamma distribution."""
    rng, now, requests = Random(f"{seed}/gusts"), 0.0, list[Request]()
    shape = VARIATION**-2
    while (now := now + rng.gammavariate(shape, 1.0 / (shape * rate_per_s))) < until_s:
        requests.append(typical(now, rng))
    return requests


def levels(rate_per_s: float, seed: int, until_s: float) -> list[Request]:
    """Return a Poisson process that stays for minutes at one of three multiples of a rate."""
    rng, now, requests = Random(f"{seed}/levels"), 0.0, list[Request]()
    times, ends = 1.0, 0.0
    while now < until_s:
        if now >= ends:
            times, ends = rng.choice(LEVELS), now + rng.uniform(*STAYS_S)
        now += rng.expovariate(times * rate_per_s)
        requests.append(typical(now, rng))
    return requests


def tasks(slack: float) -> list[Task]:
    """Return both, each with a rate that its server serves without a queue."""
    made = (
        ("made-up gusts", gusts, "simulated:l20-llm/qwen2.5-7b", 1.0),
        ("made-up levels", levels, "simulated:h100-llm/llama2-70b", 2.2),
    )
    return [
        Task(
            server=server,
            trace=name,
            tuning=make(rate, 1, TUNED_S),
            judged=make(rate, 2, JUDGED_S),
            tuned_s=TUNED_S,
            until_s=JUDGED_S,
            slacks=(slack,),
            least_windows=60,
            searched=20,
            least_seeds=3,
            share=1,
        )
        for name, make, server, rate in made
    ]
