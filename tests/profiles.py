"""The number of examples of a property test: a multiple of the profile in force (tests/conftest.py)."""

from __future__ import annotations

from hypothesis import settings


def examples(times: float) -> int:
    """Return `times` the profile's number of examples: dev 15, ci 60, thorough 1,000."""
    in_force = settings.default
    assert in_force is not None
    return max(int(in_force.max_examples * times), 1)
