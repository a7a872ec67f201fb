"""Whether a requested length takes effect."""

from __future__ import annotations

import pytest

from agents.workloads.engine.dialect import DRAFT, SPEC, Dialect
from agents.workloads.engine.figures import Timings
from agents.workloads.engine.llama import has_length


@pytest.mark.parametrize(
    ("shown", "length", "dialect", "fits"),
    [
        (Timings(24, 1.0, drafted=54, accepted=8), 4, SPEC, True),  # recorded, 0.3.36
        (Timings(24, 1.0, drafted=36, accepted=3), 4, DRAFT, True),  # recorded, 0.3.16
        (Timings(24, 1.0), 0, SPEC, True),
        (Timings(24, 1.0), 4, SPEC, False),
        (Timings(24, 1.0, drafted=1), 0, SPEC, False),
        (Timings(24, 1.0, drafted=54, accepted=8), 3, SPEC, False),
        (Timings(24, 1.0, drafted=54, accepted=8), 8, SPEC, False),
        (Timings(36, 1.0, drafted=32, accepted=31), 8, SPEC, True),  # accepts nearly all
        (Timings(1, 1.0, drafted=0), 4, SPEC, False),
    ],
)
def test_a_length_is_checked_by_the_drafted_tokens(
    shown: Timings, length: int, dialect: Dialect, fits: bool
) -> None:
    assert has_length(shown, length, dialect) is fits


def test_a_method_that_drafts_repeats_may_draft_less_but_not_more() -> None:
    for drafted, fits in ((0, True), (92, True), (93, False)):
        shown = Timings(24, 1.0, drafted=drafted)
        assert has_length(shown, 4, SPEC, always=False) is fits
