"""Each rival implements its method: it finds the optimum in the cases where it should."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.bench.rivals import load_tuner
from tests.bench.rivals.hillclimb import Hillclimb
from tests.builders import asked, baseline, knob, past, surface, trial, window
from tests.contracts.policy import PolicyContract
from tests.errors import raised
from tuner.core import Done, InvalidInput, Policy, Setting, Space, Study, Try, setting_key


class TestHillclimb(PolicyContract):
    @pytest.fixture
    def policy(self) -> Policy:
        return load_tuner("hillclimb")


class TestOptunaTpe(PolicyContract):
    @pytest.fixture
    def policy(self) -> Policy:
        return load_tuner("optuna-tpe")


class TestOptunaGp(PolicyContract):
    @pytest.fixture
    def policy(self) -> Policy:
        return load_tuner("optuna-gp")


class TestBotorchPlain(PolicyContract):
    @pytest.fixture
    def policy(self) -> Policy:
        return load_tuner("botorch-plain")


LADDER = tuple(range(1, 33))
LONG = Space((knob("clock_mhz", LADDER, 32), knob("mem_mhz", (1, 2, 3), 3)))

CLIMB = [28, 20, 4, 12, 8, 10]


def valley(at: Setting) -> tuple[float, float]:
    """Energy is least at clock 11 and memory 2; latency grows below clock 8."""
    clock, memory = float(at["clock_mhz"]), float(at["mem_mhz"])
    return 50.0 + abs(clock - 11.0) + 5.0 * abs(memory - 2.0), 100.0 * max(1.0, 8.0 / clock)


def walked(count: int) -> list[Setting]:
    """Return the settings that hill climbing tries in the valley."""
    at = asked(count, space=LONG)
    trials = baseline(at, window(*valley(LONG.default), relative=0.0))
    while True:
        answer = Hillclimb().suggest(past(at, trials))
        if isinstance(answer, Done):
            return [t.setting for t in trials[2:]]
        assert isinstance(answer, Try)
        seen = window(*valley(answer.setting), relative=0.0)
        trials.append(trial(len(trials) + 1, answer.setting, seen))


def test_the_climb_doubles_its_stride_while_it_helps_and_halves_it_when_not() -> None:
    assert [s["clock_mhz"] for s in walked(6)] == CLIMB


def test_the_climb_turns_one_knob_at_a_time_and_reaches_the_valley() -> None:
    tried = walked(20)
    assert {"clock_mhz": 11, "mem_mhz": 2} in tried
    first = next(i for i, s in enumerate(tried) if s["mem_mhz"] != 3)
    assert all(s["mem_mhz"] == 3 for s in tried[:first])


def test_the_climb_goes_on_with_the_nearest_when_no_step_helps() -> None:
    tried = walked(30)
    assert len({setting_key(s) for s in tried}) == 30
    late = [abs(int(s["clock_mhz"]) - 11) for s in tried[-6:]]
    assert max(late) <= 8


def test_holes_in_the_table_are_stepped_over() -> None:
    only = tuple(s for s in LONG.grid() if s["clock_mhz"] != 28)
    at: Study = asked(3, space=Space(LONG.knobs, only))
    answer = Hillclimb().suggest(
        past(at, baseline(at, window(*valley(LONG.default), relative=0.0)))
    )
    assert isinstance(answer, Try)
    assert answer.setting == {"clock_mhz": 30, "mem_mhz": 3}


@pytest.mark.parametrize("name", ["optuna-tpe", "optuna-gp", "botorch-plain"])
def test_a_rival_learns_and_depends_on_its_seed(name: str) -> None:
    def first(seed: int) -> object:
        at = asked(4, seed=seed, space=LONG)
        answer = load_tuner(name).suggest(past(at, baseline(at, window(*valley(LONG.default)))))
        assert isinstance(answer, Try)
        return setting_key(answer.setting)

    assert len({first(seed) for seed in range(3)}) > 1
    at = asked(5, seed=1)
    _, done = PolicyContract().play(load_tuner(name), at)
    best = surface(done.plan.rows[0].setting).estimates["energy_j"].mean
    assert best < surface(at.baseline).estimates["energy_j"].mean


@pytest.mark.parametrize("name", ["optuna-tpe", "optuna-gp"])
def test_without_optuna_the_error_names_what_to_install(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    at = asked(4)
    with raised(InvalidInput, "pip install -e '.[dev]'"):
        load_tuner(name).suggest(past(at, baseline(at)))


def test_optuna_is_loaded_by_its_first_suggestion_only() -> None:
    code = (
        "import sys; from tests.bench.rivals import load_tuner; load_tuner('optuna-gp');"
        "print('optuna' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
