"""The knobs of a federation's rounds."""

from __future__ import annotations

import pytest

from agents.federated.space import federation_space


@pytest.mark.parametrize(
    ("clients", "counts", "usual"),
    [
        (100, (10, 20, 50, 100), 50),
        (30, (5, 10, 20), 10),
        (8, (2, 5, 8), 5),
        (1, (1,), 1),
        (3, (2, 3), 2),
        (1000, (100, 200, 500, 1000), 500),
    ],
)
def test_participants_fit_the_clients_there_are(
    clients: int, counts: tuple[int, ...], usual: int
) -> None:
    knob = federation_space(["a"], clients=clients).knobs[0]
    assert (knob.values, knob.default) == (counts, usual)
