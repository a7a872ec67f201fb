"""A leap towards what may break a limit is made in steps, where a step is worth its trial."""

from __future__ import annotations

import pytest

from tests.builders import setting
from tests.unit.tuner.bo.searches import NOTHING, Belief4, at_baseline, believing, idle, ladder
from tuner.bo.explore import explore
from tuner.core import Safety, Try

World = dict[int, Belief4]
SD = 0.01


def world(latency: float, step: float = -0.2, beside: float | None = None) -> World:
    """Return what is believed where the leap to 600 MHz has one latency, the step to 800 half of it.

    The limit is at .18. `step` is what the step does to the energy, `beside` its own latency, if any.
    """
    halfway = latency / 2.0 if beside is None else beside
    return {
        1000: NOTHING,
        600: (-0.3, SD, latency, SD),
        800: (step, SD, halfway, SD),
    }


GOOD, BAD = 0.05, 0.28
"""Three worlds in four are good: 600 MHz keeps the limit in these, 800 MHz halfway keeps it in all."""


def suggested(*worlds: World, safety: Safety = Safety.BALANCED) -> Try:
    at = ladder(safety=safety)
    answer = explore(believing(at, [*at_baseline(at), *idle(at)], *worlds))
    assert answer is not None
    return answer


def test_a_leap_is_made_in_steps() -> None:
    answer = suggested(*[world(GOOD)] * 3, world(BAD))
    assert answer.setting == setting(800)
    assert answer.why.endswith("a safer step towards a better setting")


def test_what_most_likely_keeps_the_limits_is_no_leap() -> None:
    answer = suggested(*[world(GOOD)] * 7, world(BAD))
    assert answer.setting == setting(600)
    assert "step" not in answer.why


@pytest.mark.parametrize(
    ("step", "good", "bad"),
    [
        pytest.param(-0.1, GOOD / 2.0, BAD / 2.0, id="it saves too little"),
        pytest.param(-0.2, 0.05, 0.05, id="it tells nothing of the leap"),
        pytest.param(-0.2, 0.05, 0.23, id="it risks half as much"),
    ],
)
def test_a_step_is_left_out(step: float, good: float, bad: float) -> None:
    """`good` and `bad` are the step's own latencies in the two kinds of worlds."""
    worlds = [*[world(GOOD, step, good)] * 3, world(BAD, step, bad)]
    assert suggested(*worlds).setting == setting(600)


def test_whom_no_limit_frightens_leaps() -> None:
    worlds = [*[world(GOOD)] * 3, world(BAD)]
    assert suggested(*worlds, safety=Safety.OFF).setting == setting(600)
