"""A week of hourly prices: the cost of a plan from energy by load, against an oracle of every hour.

The device's curves are made up. Our plan sees each setting's energy and latency at each load with the
error of a window, chooses the least energy under the limit, and pays its true cost. The oracle knows
all true values, and all prices and loads of the week.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tuner.core import HourRow, TimeSeries

MONDAY = datetime(2026, 3, 2, tzinfo=UTC)
LOADS = (5.0, 15.0, 30.0, 50.0)
CAPS_W = tuple(range(120, 301, 12))
LIMIT_MS = 60.0
NOISE = 0.02
PRICES = TimeSeries(
    name="made-up day-ahead prices",
    rows=(
        HourRow(0.12, "0-6"),
        HourRow(0.42, "17-21", ("mon", "tue", "wed", "thu", "fri")),
        HourRow(0.18, "10-16"),
        HourRow(0.27),
    ),
)


@dataclass(frozen=True)
class Week:
    """The cost of a week, in money: of our plan, of the oracle, and at the highest cap."""

    ours: float
    oracle: float
    highest: float

    @property
    def excess(self) -> float:
        """The excess cost of our plan over the oracle, as a share."""
        return self.ours / self.oracle - 1.0


def play_week(seed: int) -> Week:
    """Return the result of one week on the device of a seed."""
    rng = random.Random(seed)
    idle_w, bend, work = rng.uniform(40, 80), rng.uniform(0.3, 0.6), rng.uniform(60, 90)

    def rate(cap_w: float) -> float:
        return float(work * ((cap_w - idle_w) / (300.0 - idle_w)) ** bend)

    def latency_ms(cap_w: float, load: float) -> float:
        spare = rate(cap_w) - load
        return math.inf if spare <= 0.0 else 1000.0 / spare

    def energy_j(cap_w: float, load: float) -> float:
        busy = min(1.0, load / rate(cap_w))
        return (idle_w + busy * (cap_w - idle_w)) / load

    def noisy(value: float) -> float:
        return value * rng.gauss(1.0, NOISE)

    ours_by_load, best_by_load = {}, {}
    for load in LOADS:
        kept = [c for c in CAPS_W if latency_ms(c, load) <= LIMIT_MS] or [CAPS_W[-1]]
        best_by_load[load] = min(kept, key=lambda c: energy_j(c, load))
        proven = [c for c in CAPS_W if noisy(latency_ms(c, load)) * (1 + 2 * NOISE) <= LIMIT_MS]
        ours_by_load[load] = min(proven or [CAPS_W[-1]], key=lambda c: noisy(energy_j(c, load)))
    ours = oracle = highest = 0.0
    for hour in range(7 * 24):
        at = MONDAY + timedelta(hours=hour)
        load = LOADS[0] if at.hour < 6 else LOADS[rng.choice((1, 2, 3) if at.hour < 22 else (1, 2))]
        price = PRICES.at(at)
        assert price is not None
        paid = price * load * 3600.0 / 3.6e6
        ours += paid * energy_j(ours_by_load[load], load)
        oracle += paid * energy_j(best_by_load[load], load)
        highest += paid * energy_j(CAPS_W[-1], load)
    return Week(ours, oracle, highest)
