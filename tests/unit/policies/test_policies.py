"""The policies keep the contract, and each does the work of its name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from policies import POLICIES, load_policy
from policies.packrat import Packrat
from policies.polythrottle.policy import Polythrottle, TwoPhase
from policies.sobol import Sobol, spread
from policies.speculation.policy import Speculation
from tests.bench.rivals import RIVALS, load_tuner
from tests.builders import CLOCKS, SPACE, asked, baseline, knob, past, surface, trial, window
from tests.contracts.policy import PolicyContract
from tests.errors import raised
from tests.unit.policies.fedgpo.made_up import federated
from tuner.core import (
    NO_ANSWER,
    Condition,
    Cost,
    InvalidInput,
    Knob,
    Objective,
    Part,
    Past,
    Policy,
    Role,
    Space,
    Study,
    Suggestion,
    TrialState,
    Try,
    setting_key,
)


class TestPolythrottle(PolicyContract):
    @pytest.fixture
    def policy(self) -> Policy:
        return Polythrottle()


class TestPackrat(PolicyContract):
    @pytest.fixture
    def policy(self) -> Policy:
        return Packrat()


def drafting(at: Study) -> Study:
    """Return a study whose clock has the role of a speculation length, its batch size that of a draft."""
    roles = {"gpu.clock_mhz": Role.SPECULATION_LENGTH, "batch_size": Role.DRAFT}
    knobs = (replace(k, role=roles.get(k.name, Role.UNKNOWN)) for k in at.space.knobs)
    return replace(at, space=Space(tuple(knobs), at.space.only))


class WithItsRoles:
    """The speculation policy on the contract's knobs, with the roles of a length and a draft."""

    def suggest(self, past: Past) -> Suggestion:
        return Speculation().suggest(replace(past, study=drafting(past.study)))


class TestSpeculation(PolicyContract):
    @pytest.fixture
    def policy(self) -> Policy:
        return WithItsRoles()


@pytest.mark.parametrize("policy", [Sobol(), Polythrottle()], ids=lambda one: type(one).__name__)
def test_a_word_with_which_a_service_does_not_start_is_tried_once(policy: Policy) -> None:
    restart = Cost(restart=True)
    batch = knob("batch_size", (1, 2, 4, 8), 1, Part.WORKLOAD, restart)
    at = replace(asked(12), space=Space((knob("gpu.clock_mhz", CLOCKS, 1000), batch)))
    trials, silent = baseline(at), 1
    while isinstance(answer := policy.suggest(past(at, trials)), Try):
        tried = answer.setting
        if silent == 1:  # the first beside the baseline's
            silent = int(tried["batch_size"])
        number = len(trials) + 1
        if silent == tried["batch_size"] != 1:
            reason = f"llm.service {NO_ANSWER}: 300 s without an answer"
            trials.append(trial(number, tried, state=TrialState.FAILED, reason=reason))
        else:
            trials.append(trial(number, tried, surface(tried)))
    assert [t.setting["batch_size"] for t in trials].count(silent) == 1 and len(trials) > 4


class TestTwoPhase(PolicyContract):
    @pytest.fixture
    def policy(self) -> Policy:
        return TwoPhase()


class TestSobol(PolicyContract):
    @pytest.fixture
    def policy(self) -> Policy:
        return Sobol()

    def test_it_covers_the_space_without_repeating(self) -> None:
        trials, _ = self.play(Sobol(), asked(8))
        tried = [setting_key(t.setting) for t in trials[2:]]
        assert len(set(tried)) == len(tried) == 8
        assert {t.setting["gpu.clock_mhz"] for t in trials} == set(CLOCKS)

    def test_another_seed_gives_another_sequence(self) -> None:
        def first(seed: int) -> list[object]:
            trials, _ = self.play(Sobol(), asked(4, seed=seed))
            return [setting_key(t.setting) for t in trials[2:]]

        assert len({tuple(first(seed)) for seed in range(4)}) > 1

    def test_it_ends_when_the_space_is_exhausted(self) -> None:
        trials, _ = self.play(Sobol(), asked(30))
        assert len({setting_key(t.setting) for t in trials}) == SPACE.size

    def test_a_knob_without_effect_is_never_varied(self) -> None:
        bound = Knob("fan", (1, 2, 3), 2, condition=Condition.parse("gpu.clock_mhz < 800"))
        space = Space((*SPACE.knobs, bound))
        met = [setting_key(s) for s in spread(space, 0)]
        assert len(met) == len(set(met)) == space.size
        assert set(met) == {setting_key(s) for s in space.grid()}


FEDERATION = Space(
    (
        Knob("participants", (10, 50), 50, Part.WORKLOAD, role=Role.PARTICIPANTS),
        Knob("batch_size.all", (8, 32), 32, Part.WORKLOAD, role=Role.LOCAL_BATCH),
        Knob("local_epochs.all", (1, 5), 1, Part.WORKLOAD, role=Role.LOCAL_EPOCHS),
        Knob("averaging_steps", (1, 5), 1, Part.WORKLOAD, role=Role.AVERAGING_STEPS),
    )
)


@pytest.mark.parametrize("name", [*POLICIES, *RIVALS])
def test_every_listed_policy_is_there_and_suggests(name: str) -> None:
    at = federated(space=FEDERATION) if name.startswith("fedgpo") else asked(4)
    at = drafting(at) if name == "speculation" else at
    second = Objective("latency_p99_ms") if name == "pareto" else None
    at = replace(at, second_objective=second)
    seen = window(10.0, 100.0)
    assert isinstance(load_tuner(name).suggest(past(at, baseline(at, seen))), Try)


def test_an_unknown_policy_is_named_with_those_there_are() -> None:
    with raised(InvalidInput, "oracle"):
        load_policy("oracle")
