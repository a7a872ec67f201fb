"""The loads that an engine reaches, by the requests that decoded together in its windows."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from policies.speculation.batches import DECODING, too_many
from tests.builders import trial, window
from tuner.core import Estimate, Trial


def windows(seen: dict[int, float]) -> list[Trial]:
    """Return a window per requested load, with the mean number of requests that decoded together."""
    shown = [
        (asked, replace(window(), estimates={DECODING: Estimate.of_mean(mean, 0.05, 20)}))
        for asked, mean in seen.items()
    ]
    return [
        trial(n, None, one, context={DECODING: float(b)}) for n, (b, one) in enumerate(shown, 1)
    ]


@pytest.mark.parametrize(
    ("seen", "ceiling"),
    [
        ({1: 1.0, 16: 16.0}, math.inf),
        ({1: 1.0, 16: 8.0}, 10.0),
        ({8: 7.9, 16: 3.0}, 7.9 / 0.8),
        # Short answers, and a slow client: fewer decode together between two of them.
        ({2: 1.5, 8: 7.6, 16: 7.9}, 7.9 / 0.8),
        ({2: 1.5, 4: 2.9, 8: 5.0}, 6.25),
    ],
)
def test_a_load_is_too_high_if_no_window_has_that_number_together(
    seen: dict[int, float], ceiling: float
) -> None:
    assert too_many(windows(seen)) == pytest.approx(ceiling)
