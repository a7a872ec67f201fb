"""A choice is scored on the left-out source and on the sources of the choice."""

from __future__ import annotations

import pytest

from tests.bench.contest.leave_one_out import generalisations
from tests.bench.contest.replay import TaskResult
from tests.bench.contest.test_score import look, outcome

CAPTURED = {
    "careful": {"a": 0.5, "b": 0.5, "c": 0.5},
    "bold": {"a": 0.9, "b": 0.9, "c": 0.1},
    "reckless": {"a": 1.0, "b": 1.0, "c": 1.0},
}
WINDOWS = {"careful": 0, "bold": 1, "reckless": 4}


def studies(names: tuple[str, ...] = tuple(CAPTURED)) -> list[TaskResult]:
    return [
        outcome(
            name, source, surface, seed,
            *(look(CAPTURED[name][source], budget=b, windows_above=WINDOWS[name]) for b in (5, 8)),
        )
        for name in names
        for source in "abc"
        for surface in ("1", "2")
        for seed in (0, 1)
    ]  # fmt: skip


def test_each_source_is_scored_by_the_choice_of_the_others() -> None:
    (generalisation,) = generalisations(studies(), ["careful", "bold", "reckless"], most_above=1.0)
    assert generalisation.chosen == "bold", ".63 of all; reckless has too many windows above"
    assert [(s.source, s.chosen) for s in generalisation.sources] == [
        ("a", "careful"),
        ("b", "careful"),
        ("c", "bold"),
    ]
    assert [s.captured for s in generalisation.sources] == [(0.5, 0.5), (0.5, 0.5), (0.1, 0.1)]
    assert generalisation.in_sample == pytest.approx((1.9 / 3.0, 1.9 / 3.0))
    assert generalisation.left_out == pytest.approx((1.1 / 3.0, 1.1 / 3.0))
    assert generalisation.difference == pytest.approx((0.8 / 3.0, 0.8 / 3.0))
    assert generalisation.difference_stderr == pytest.approx((0.0, 0.0), abs=1e-9)
    assert generalisation.in_sample_windows_above == (1.0, 1.0)
    assert generalisation.left_out_windows_above == pytest.approx((1.0 / 3.0, 1.0 / 3.0))


def test_windows_above_the_limit_exclude_a_setting() -> None:
    names = ["careful", "bold", "reckless"]
    (free,) = generalisations(studies(), names, most_above=9.0)
    assert (free.chosen, free.difference) == ("reckless", (0.0, 0.0))
    (none,) = generalisations(studies(("bold", "reckless")), names, most_above=0.5)
    assert none.chosen == "bold", "the fewest, where none has few enough"
    assert none.candidates == ("bold", "reckless")


def test_rivals_are_not_candidates() -> None:
    found = [*studies(), outcome("rival", "a", "1", 0, look(1.0, budget=5), look(1.0, budget=8))]
    (chosen,) = generalisations(found, ["careful", "bold"], most_above=9.0)
    assert chosen.chosen == "bold"
    assert generalisations(found, [], most_above=9.0) == []
