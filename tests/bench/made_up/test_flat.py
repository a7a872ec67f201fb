"""Made-up surfaces without a possible saving."""

from __future__ import annotations

from tests.bench.contest.surfaces import FLAT
from tests.bench.made_up.flat import SOURCES, WIDEST, flat


def test_at_a_flat_surface_nothing_is_saved_and_a_seed_gives_the_same_ones() -> None:
    sources = SOURCES[:-1]  # hundreds of draws of the last take as long as ten such tests
    made = flat(5, len(sources))
    assert [p.source for p in made] == list(sources)
    assert all(p.saving(slack) < FLAT for p in made for slack in (1.1, WIDEST))
    assert all(p.surface.space.size > 1 for p in made)
    every = {p.surface.name: p.surface.digest for p in made}
    few = {p.surface.name: p.surface.digest for p in flat(5, 2)}
    assert few.items() < every.items(), "the first stay whatever their number"
    assert few != {p.surface.name: p.surface.digest for p in flat(6, 2)}
