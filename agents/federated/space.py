"""The knobs of a federation's rounds, fit for its classes of clients and their number."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.core import Knob, Part, Role, Space

CLIENTS, FEW = 100, 10
BATCHES, EPOCHS = (8, 16, 32), (1, 5, 10)
FLOWER = {"participants": 50, "batch_size": 32, "local_epochs": 1}
"""Of the template that `flwr new` writes: half of the clients, 1 epoch, batches of 32."""


def participants_of(clients: int) -> tuple[int, ...]:
    """Return how many of some clients a round may have: 1, 2, 5, 10, … from a tenth of them to all.

    Of ten and fewer, from two on, and all of them too.
    """
    least = min(clients, max(2, -(-clients // 10)))
    steps = [n * 10**power for power in range(len(str(clients))) for n in (1, 2, 5)]
    steps += [clients] if clients <= FEW else []
    return tuple(sorted({count for count in steps if least <= count <= clients}))


def federation_space(
    classes: Sequence[str],
    clients: int = CLIENTS,
    intervals: Sequence[int] = (),
    participants: Sequence[int] = (),
) -> Space:
    """Return the knobs of a federation with some classes of clients, fit for the given number of them.

    With `intervals`, also the steps between two averagings, which then rule instead of epochs. Other
    counts of `participants` than those that fit may be given.
    """
    part = Part.WORKLOAD
    counts = tuple(participants) or participants_of(clients)
    usual = min(counts, key=lambda count: abs(count - clients / 2))
    knobs = [Knob("participants", counts, usual, part, role=Role.PARTICIPANTS)]
    for name in classes:
        batch, epochs = FLOWER["batch_size"], FLOWER["local_epochs"]
        knobs.append(Knob(f"batch_size.{name}", BATCHES, batch, part, role=Role.LOCAL_BATCH))
        knobs.append(Knob(f"local_epochs.{name}", EPOCHS, epochs, part, role=Role.LOCAL_EPOCHS))
    if intervals:
        role = Role.AVERAGING_STEPS
        knobs.append(Knob("averaging_steps", tuple(intervals), intervals[0], part, role=role))
    return Space(tuple(knobs))
