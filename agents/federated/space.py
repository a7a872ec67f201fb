"""The knobs of a federation's rounds, by its classes of clients and their number."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.core import Knob, Part, Role, Space

CLIENTS, FEW = 100, 10
BATCHES, EPOCHS = (8, 16, 32), (1, 5, 10)
FLOWER = {"participants": 50, "batch_size": 32, "local_epochs": 1}
"""The defaults in the template of `flwr new`: half of the clients, batches of 32, 1 epoch."""


def participants_of(clients: int) -> tuple[int, ...]:
    """Return the numbers of participants that a round may have, of 1, 2, 5, 10, 20, 50, …

    They range from a tenth of the `clients`, and at least 2, to all of them. With 10 clients or fewer, the
    number of all clients is always included.
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
    """Return the knobs of a federation for its classes and number of clients.

    With `intervals`, the steps between two averagings are a knob, too, and clients use them instead of
    the epochs. Given numbers of `participants` replace those that follow from the number of clients.
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
