"""A made-up day: it rises and falls, has flat nights, and spikes to four times its load within 2 s."""

from __future__ import annotations

import math
from random import Random

from jouletune_bench.llm import Request
from jouletune_bench.llm.requests import typical
from tests.bench.load.judge import Task

DAY_S = 86_400.0
NIGHT_PER_S, PEAK_PER_S = 0.3, 1.6
"""The rate that one L20 with a model of 7 B parameters serves at its defaults without a queue."""
SPIKES, TIMES, RISE_S = 16, 4.0, 2.0
SPIKE_S = (20.0, 90.0)
DAYTIME_H = (8.0, 22.0)


def spikes(seed: int) -> list[tuple[float, float]]:
    """Return the start and end of a day's spikes, by start."""
    rng = Random(f"{seed}/spikes")
    hours = sorted(rng.uniform(*DAYTIME_H) for _ in range(SPIKES))
    return [(h * 3600.0, h * 3600.0 + rng.uniform(*SPIKE_S)) for h in hours]


def rate_per_s(now_s: float, crowds: list[tuple[float, float]]) -> float:
    """Return the rate at a time of the day: flat from 0 to 6, then a wave with its peak at 15:00."""
    hour = now_s / 3600.0
    wave = max(0.0, math.sin(math.pi * (hour - 6.0) / 18.0))
    rate = NIGHT_PER_S + (PEAK_PER_S - NIGHT_PER_S) * wave
    for begin, end in crowds:
        if begin <= now_s <= end:
            rate *= 1.0 + (TIMES - 1.0) * min(1.0, (now_s - begin) / RISE_S)
    return rate


def day(seed: int, until_s: float = DAY_S) -> list[Request]:
    """Return the requests of one day: a Poisson process with the rate of a second ago."""
    crowds, rng = spikes(seed), Random(f"{seed}/day")
    requests: list[Request] = []
    second = 0.0
    while second < until_s:
        rate, now = rate_per_s(second, crowds), second
        while (now := now + rng.expovariate(rate)) < second + 1.0:
            requests.append(typical(now, rng))
        second += 1.0
    return requests


def task(server: str, slack: float) -> Task:
    """Return a day for tuning and the next day for judging, with two seeds."""
    return Task(
        server=server,
        trace="a made-up day",
        tuning=day(1),
        judged=day(2),
        tuned_s=DAY_S,
        until_s=DAY_S,
        slacks=(slack,),
        spikes_s=[begin for begin, _ in spikes(2)],
        least_seeds=2,
    )
