"""How much risk a search takes: prices and chances by safety level. `tuner.guard` says what is safe."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from tuner.core import Safety


@dataclass(frozen=True, slots=True)
class Caution:
    """How a search weighs its limits against what it may save. Shares are of the baseline.

    `price` is what a trial must promise to save for running into a limit for certain, and
    `overshoot_price` for each whole limit it is expected to exceed it by; in the `first_trials`, when
    little is known, that is multiplied by `first_factor`. `square_price` is for the expected square of
    the same. What keeps the limits less likely than `least_chance` is not tried before the search
    ends, but for a look around; what keeps them less likely than `step_chance` is approached by a
    step on the way to it, where one is worth nearly as much at a fraction of the risk. Looks around
    go on until `looks` trials. One takes `look_chance`, or `first_chance` where it moves a knob that
    no window has shown moved yet; before that goes what is as likely as `sure_chance`, by what it may
    save alone. While nothing beats the baseline they go on until `stuck_looks`, at even chances.
    `stride` is the share of the remaining slack that the 95 % bound of a trial may use up that is made
    for what it may save. Before a search ends, what may save `risky_gain` is tried although its price
    speaks against it, what is worth it net of its price down to `risky_chance`, and what moves a knob
    for the first time down to `unmoved_chance`. At `deploy_chance` a measured setting is proposed.
    """

    price: float
    overshoot_price: float
    square_price: float
    first_factor: float
    first_trials: int
    least_chance: float
    step_chance: float
    look_chance: float
    first_chance: float
    unmoved_chance: float
    sure_chance: float
    looks: int
    stuck_looks: int
    risky_gain: float
    risky_chance: float
    stride: float
    deploy_chance: float


_BALANCED = Caution(
    price=0.04,
    overshoot_price=0.3,
    square_price=0.3,
    first_factor=3.0,
    first_trials=6,
    least_chance=0.72,
    step_chance=0.85,
    look_chance=0.65,
    first_chance=0.55,
    unmoved_chance=0.05,
    sure_chance=0.9,
    looks=6,
    stuck_looks=12,
    risky_gain=0.01,
    risky_chance=0.2,
    stride=math.inf,
    deploy_chance=0.8,
)

CAUTION: Mapping[Safety, Caution] = {
    Safety.STRICT: Caution(
        price=0.1,
        overshoot_price=1.0,
        square_price=0.3,
        first_factor=3.0,
        first_trials=6,
        least_chance=0.75,
        step_chance=0.85,
        look_chance=0.78,
        first_chance=0.6,
        unmoved_chance=0.6,
        sure_chance=math.inf,
        looks=12,
        stuck_looks=0,
        risky_gain=math.inf,
        risky_chance=1.0,
        stride=0.5,
        deploy_chance=0.8,
    ),
    Safety.BALANCED: _BALANCED,
    Safety.ADVISE: _BALANCED,
    Safety.OFF: Caution(
        price=0.0,
        overshoot_price=0.0,
        square_price=0.0,
        first_factor=1.0,
        first_trials=0,
        least_chance=0.1,
        step_chance=0.0,
        look_chance=0.1,
        first_chance=0.1,
        unmoved_chance=0.05,
        sure_chance=0.9,
        looks=6,
        stuck_looks=12,
        risky_gain=0.01,
        risky_chance=0.1,
        stride=math.inf,
        deploy_chance=0.75,
    ),
}
"""Our choice; the benchmark on measured surfaces decided."""
