"""A space of a million settings is no trouble, whatever the policy."""

from __future__ import annotations

import pytest

from policies import POLICIES, load_policy
from tests.builders import asked, baseline, knob, past, surface, trial
from tests.errors import raised
from tuner.core import Done, InvalidInput, Part, Space, Try, setting_key

pytestmark = pytest.mark.timeout(120)

TENS = tuple(range(100, 1001, 100))
CLOCKS = ("gpu.clock_mhz", "gpu.mem_clock_mhz", "cpu.clock_mhz", "fabric.clock_mhz", "cap_w")
BATCH = knob("batch_size", tuple(range(1, 11)), 1, Part.WORKLOAD)
MILLION = Space((*(knob(name, TENS, 1000) for name in CLOCKS), BATCH))

OURS = "polythrottle"
"""Three trials are enough for it; others may be unlucky."""

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
    """Let whoever goes through a million settings fail at once."""

    def refused(space: Space) -> None:
        raise AssertionError(f"somebody enumerates {space.size} settings")

    monkeypatch.setattr(Space, "grid", refused)


@pytest.mark.parametrize(
    "name", [n for n in POLICIES if n != "speculation" and not n.startswith("fedgpo")]
)
def test_a_million_settings_are_searched_and_not_enumerated(name: str) -> None:
    at, policy = asked(3, space=MILLION), load_policy(name)
    trials = baseline(at)
    while isinstance(answer := policy.suggest(past(at, trials)), Try):
        at.space.check(answer.setting)
        trials.append(trial(len(trials) + 1, answer.setting, surface(answer.setting)))
    assert isinstance(answer, Done), answer
    assert len({setting_key(t.setting) for t in trials}) == 4
    held, before = (surface(s).estimates for s in (answer.plan.rows[0].setting, at.baseline))
    assert held["latency_p99_ms"].high <= 1.2 * before["latency_p99_ms"].mean
    assert held["energy_j"].mean < before["energy_j"].mean or name != OURS


def test_speculation_refuses_what_does_not_speculate_before_it_counts() -> None:
    at = asked(3, space=MILLION)
    with raised(InvalidInput, "speculation_length"):
        load_policy("speculation").suggest(past(at, baseline(at)))


def test_packrat_answers_among_a_million_packings() -> None:
    """It goes through those of its own knobs: seconds, not minutes."""
    at = asked(2, space=PACKINGS)
    seen = surface({"gpu.clock_mhz": 1000, "batch_size": 1})
    answer = load_policy("packrat").suggest(past(at, baseline(at, seen)))
    assert isinstance(answer, Try), answer
    at.space.check(answer.setting)
