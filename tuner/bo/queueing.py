"""What a load does to what is served: random laws of waiting, idling and growing batches.

Textbook forms: utilisation ρ = λ·s; waiting as 1/(1−ρ), of which a queue, processor sharing and batches
that grow with the queue (Little's law) are all cases; between requests a device draws its idle power, and
is busy for the shorter a time the faster it is, so that racing to idle and going slowly are both possible.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

BUSIEST = 0.98
"""No queue is taken to be nearer to overflowing: at one that is, nothing is steady."""


def under_load(
    work: Tensor,
    step: Tensor,
    power: Tensor,
    idle: Tensor,
    load: Tensor,
    share: Callable[[], Tensor],
) -> tuple[Tensor, Tensor, Tensor]:
    """Return seconds per item, the time a request takes, and the mean power, relative to the baseline's.

    `work`, `step` and `power` are those of a device that is always busy, at each setting; `idle` the share
    of its power that the baseline draws at rest; `load` what arrives, over what did at the reference.
    `share` draws one number a law, uniform from 0 to 1: the utilisation at the reference, how much of a
    request's time waits, how batches grow, and how much of the idle power follows the clock.
    """
    used, queue, merged, follows = (share() for _ in range(4))
    used = used.clamp(1.0 - BUSIEST, BUSIEST)
    busy = (used * load * work).clamp_max(BUSIEST)
    waits = (1.0 - queue + queue / (1.0 - busy)) / (1.0 - queue + queue / (1.0 - used))
    # Of requests that are served together some are there for longer than one of them takes.
    more = 1.0 / merged.clamp_min(1.0 - BUSIEST)
    awake, usual = (1.0 - (1.0 - each) ** more for each in (busy, used))
    rest = idle * (1.0 - follows + follows * power)
    drawn = (rest + (power - rest).clamp_min(0.0) * awake) / (idle + (1.0 - idle) * usual)
    return used * work / busy, step * waits, drawn
