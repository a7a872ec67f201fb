from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import study
from tests.contracts.posteriors import posterior
from tuner.core import Closeness, Posterior, PosteriorKnob, Role, SiblingRef, Worth
from tuner.memory.selection import (
    MOST_SIBLINGS,
    NO_WORTH,
    PRIOR_STUDIES,
    PRIOR_WORTH,
    chosen,
    trust,
)

REF = SiblingRef("s1", "d", Closeness.BOARD)


def test_at_most_so_many_are_chosen_in_their_order() -> None:
    near = [(replace(REF, study=f"s{n}"), posterior()) for n in range(20)]
    assert [r.study for r in chosen(near, study())] == [f"s{n}" for n in range(MOST_SIBLINGS)]


@pytest.mark.parametrize(
    ("other", "useful"),
    [
        (posterior(metrics=("energy_j",)), False),
        (posterior(knobs=posterior().knobs[:1]), False),
        (
            posterior(knobs=(PosteriorKnob("sm", Role.CORE_CLOCK, False), posterior().knobs[1])),
            True,
        ),
        (posterior(knobs=(PosteriorKnob("sm", Role.UNKNOWN, False), posterior().knobs[1])), False),
        (
            posterior(knobs=(PosteriorKnob("sm", Role.CORE_CLOCK, True), posterior().knobs[1])),
            False,
        ),
    ],
    ids=["no limit's metric", "a knob less", "the only one of its role", "another role", "names"],
)
def test_a_sibling_has_all_knobs_and_metrics(other: Posterior, useful: bool) -> None:
    assert bool(chosen([(REF, other)], study())) is useful


def test_a_metric_without_a_law_needs_no_sibling() -> None:
    about = study(constraints=("latency_p99_ms <= 1.2x baseline", "accuracy >= 0.9"))
    assert chosen([(REF, posterior())], about)


def test_trust_goes_from_the_prior_to_what_siblings_were_worth() -> None:
    assert trust({}) == PRIOR_WORTH
    board = Closeness.BOARD
    some = trust({board: Worth(0.9, int(PRIOR_STUDIES))})[board]
    assert some == pytest.approx((0.9 + PRIOR_WORTH[board]) / 2)
    assert trust({board: Worth(0.6, 10_000)})[board] == pytest.approx(0.6, abs=1e-3)


def test_siblings_that_were_worth_nothing_are_not_trusted() -> None:
    worths = {Closeness.BOARD: Worth(NO_WORTH, 1), Closeness.KIND: Worth(0.9, 1)}
    trusted = trust(worths)
    assert trusted[Closeness.BOARD] == 0.0 < trusted[Closeness.KIND]
