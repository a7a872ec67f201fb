"""Every policy handles a space of a million settings."""

from __future__ import annotations

import resource
from dataclasses import replace

import pytest

from policies import POLICIES, load_policy
from tests.bench.rivals import RIVALS, load_tuner
from tests.builders import asked, baseline, knob, past, surface, trial
from tests.errors import raised
from tuner.bo.encoding import MOST_ROWS, MOST_STEPS, most_rows
from tuner.core import Done, InvalidInput, Objective, Part, Space, Try, setting_key

pytestmark = pytest.mark.timeout(120)

TENS = tuple(range(100, 1001, 100))
CLOCKS = ("gpu.clock_mhz", "gpu.mem_clock_mhz", "cpu.clock_mhz", "fabric.clock_mhz", "cap_w")
BATCH = knob("batch_size", tuple(range(1, 11)), 1, Part.WORKLOAD)
MILLION = Space((*(knob(name, TENS, 1000) for name in CLOCKS), BATCH))

OURS = "polythrottle"
"""It holds nothing worse than the baseline; other policies may be unlucky."""

HUNDRED = tuple(range(1, 101))
PACKINGS = Space(
    (
        knob("instances", HUNDRED, 1, Part.WORKLOAD),
        knob("threads", HUNDRED, 100, Part.WORKLOAD),
        knob("batch_size", HUNDRED, 1, Part.WORKLOAD),
    )
)


@pytest.fixture(autouse=True)
def _no_walk_through_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make any walk through a million settings fail at once."""

    def refused(space: Space) -> None:
        raise AssertionError(f"somebody enumerates {space.size} settings")

    monkeypatch.setattr(Space, "grid", refused)


@pytest.mark.parametrize(
    "name",
    [n for n in (*POLICIES, *RIVALS) if n != "speculation" and not n.startswith("fedgpo")],
)
def test_a_million_settings_are_searched_and_not_enumerated(name: str) -> None:
    at, policy = asked(3, space=MILLION), load_tuner(name)
    second = Objective("latency_p99_ms") if name == "pareto" else None
    at = replace(at, second_objective=second)
    trials = baseline(at)
    while isinstance(answer := policy.suggest(past(at, trials)), Try):
        at.space.check(answer.setting)
        trials.append(trial(len(trials) + 1, answer.setting, surface(answer.setting)))
    assert isinstance(answer, Done), answer
    assert len({setting_key(t.setting) for t in trials}) == 4
    held, before = (surface(s).estimates for s in (answer.plan.rows[0].setting, at.baseline))
    assert held["latency_p99_ms"].high <= 1.2 * before["latency_p99_ms"].mean
    assert held["energy_j"].mean <= before["energy_j"].mean or name != OURS


def test_speculation_refuses_a_server_without_speculation_before_it_measures() -> None:
    at = asked(3, space=MILLION)
    with raised(InvalidInput, "speculation_length"):
        load_policy("speculation").suggest(past(at, baseline(at)))


def test_packrat_answers_in_a_space_of_a_million_packings() -> None:
    """It enumerates only the values of its own knobs, in seconds instead of minutes."""
    at = asked(2, space=PACKINGS)
    seen = surface({"gpu.clock_mhz": 1000, "batch_size": 1})
    answer = load_policy("packrat").suggest(past(at, baseline(at, seen)))
    assert isinstance(answer, Try), answer
    at.space.check(answer.setting)


def worded(*sizes: int) -> Space:
    """Return a space of knobs with this many words each, as in baybe's issue 869."""
    knobs = (
        knob(f"word_{n}", tuple(f"w{place}" for place in range(size)), "w0", Part.WORKLOAD)
        for n, size in enumerate(sizes)
    )
    return Space(tuple(knobs))


def test_hundreds_of_words_are_searched_within_a_gigabyte() -> None:
    """Two million settings of 400 words; the peak allocation is measured, not the machine's memory."""
    space = worded(200, 100, 100)
    at, policy = asked(1, space=space), load_policy(OURS)
    seen = surface({"gpu.clock_mhz": 1000, "batch_size": 1})
    resource_before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    answer = policy.suggest(past(at, baseline(at, seen)))
    assert isinstance(answer, Try), answer
    space.check(answer.setting)
    grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - resource_before
    assert grown_kb < 1_000_000


@pytest.mark.parametrize("sizes", [(200, 100, 100), (100, 100), (1000, 1000)])
def test_fewer_settings_are_looked_at_together_the_more_words_there_are(
    sizes: tuple[int, ...],
) -> None:
    space = worded(*sizes)
    assert most_rows(space) * sum(sizes) <= MOST_ROWS * MOST_STEPS
    assert most_rows(worded(8, 8)) == MOST_ROWS
    assert most_rows(MILLION) == MOST_ROWS
