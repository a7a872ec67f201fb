"""Made-up surfaces without a possible saving."""

from __future__ import annotations

from tests.bench.contest.surfaces import FLAT
from tests.bench.made_up.flat import SOURCES, WIDEST, flat


def test_at_a_flat_surface_nothing_is_saved_under_any_limit() -> None:
    made = flat(5, len(SOURCES))
    assert [p.source for p in made] == list(SOURCES)
    assert all(p.saving(slack) < FLAT for p in made for slack in (1.1, WIDEST))
    assert all(p.surface.space.size > 1 for p in made)


def test_the_same_seed_gives_the_same_surfaces_and_more_keep_the_first() -> None:
    few = {p.surface.name: p.surface.digest for p in flat(5, 3)}
    more = {p.surface.name: p.surface.digest for p in flat(5, 5)}
    assert few.items() < more.items()
    assert few != {p.surface.name: p.surface.digest for p in flat(6, 3)}
