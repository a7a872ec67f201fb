"""Random laws of serving under a load: waiting, idling and growing batches.

Textbook forms: utilisation ρ = λ·s; waiting as 1/(1−ρ), which covers a queue, processor sharing and
batches that grow with the queue (Little's law). Between requests a device draws its idle power, and
a faster device is busy for a shorter time: so both racing to idle and running slowly are possible.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

BUSIEST = 0.98
"""The largest utilisation of a queue: nearer to overflow nothing is steady."""


def under_load(
    work: Tensor,
    step: Tensor,
    power: Tensor,
    idle: Tensor,
    load: Tensor,
    share: Callable[[], Tensor],
) -> tuple[Tensor, Tensor, Tensor]:
    """Return seconds per item, the time of a request, and the mean power, relative to the baseline's.

    `work`, `step` and `power` are those of an always busy device at each setting. `idle` is the
    baseline's power at rest, as a share of its power. `load` is the arrival rate over that at the
    reference. `share` draws one number per law, uniform from 0 to 1: the utilisation at the
    reference, the waiting share of a request's time, the growth of batches, and the share of the idle
    power that follows the clock.
    """
    used, queue, merged, follows = (share() for _ in range(4))
    used = used.clamp(1.0 - BUSIEST, BUSIEST)
    busy = (used * load * work).clamp_max(BUSIEST)
    waits = (1.0 - queue + queue / (1.0 - busy)) / (1.0 - queue + queue / (1.0 - used))
    # Some of the requests that are served together stay longer than one request takes.
    more = 1.0 / merged.clamp_min(1.0 - BUSIEST)
    awake, usual = (1.0 - (1.0 - each) ** more for each in (busy, used))
    rest = idle * (1.0 - follows + follows * power)
    drawn = (rest + (power - rest).clamp_min(0.0) * awake) / (idle + (1.0 - idle) * usual)
    return used * work / busy, step * waits, drawn
