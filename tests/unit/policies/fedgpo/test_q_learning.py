from __future__ import annotations

import random

import pytest

from policies.fedgpo.federation import Federation, Round, rounds
from policies.fedgpo.q_learning import DISCOUNT, LEARNING_RATE, QTable, learned, reward, state
from tests.builders import past
from tests.unit.policies.fedgpo.made_up import CLASSES, MadeUp, federated, space

HERE, THERE = (0, 0), (1, 1)


def one(before: float, accuracy: float, energy_j: float = 100.0) -> Round:
    return Round(1, space().default, {}, energy_j, {}, before, accuracy)


def test_a_table_learns_as_q_learning_does() -> None:
    table = QTable(("a", "b"))
    table.update(HERE, "a", 1.0, THERE)
    assert table.worth[HERE, "a"] == pytest.approx(LEARNING_RATE)
    table.update(THERE, "b", 2.0, HERE)
    ahead = DISCOUNT * LEARNING_RATE
    assert table.worth[THERE, "b"] == pytest.approx(LEARNING_RATE * (2.0 + ahead))


def test_the_best_action_of_a_state_is_picked_but_when_exploring() -> None:
    table = QTable(tuple(range(10)))
    table.update(HERE, 7, 1.0, THERE)
    dice = random.Random(0)
    picks = [table.choice(HERE, dice) for _ in range(500)]
    assert {p.action for p in picks if not p.explored} == {7}
    assert 0.05 < sum(p.explored for p in picks) / 500 < 0.15
    assert len({table.choice(THERE, dice).action for _ in range(200)}) == 10


def test_a_round_that_lost_accuracy_is_worth_less_than_any_that_won() -> None:
    assert reward(one(0.5, 0.49), 1.0, 1.0) < reward(one(0.5, 0.5), 3.0, 3.0)
    assert reward(one(0.5, 0.52), 1.0, 1.0) > reward(one(0.5, 0.51), 1.0, 1.0)
    assert reward(one(0.5, 0.52), 1.0, 1.0) > reward(one(0.5, 0.52), 1.5, 1.0)
    assert reward(one(0.5, 0.52), 1.0, 1.0) > reward(one(0.5, 0.52), 1.0, 1.5)


def test_states_are_bins_of_a_class_or_of_all() -> None:
    context = {"load.high": 0.0, "load.low": 0.8, "network_mbps.low": 39.0, "data_classes.low": 1.0}
    assert state(context, "high") == (0, -1, -1, -1)
    assert state(context, "low") == (3, -1, 0, 2)
    assert state(context)[0] == 2
    assert state({}) == (-1, -1, -1, -1)


def test_the_same_rounds_give_the_same_tables() -> None:
    made, at = MadeUp(), federated()
    dice = random.Random(1)
    grid = list(space().grid())
    trials = [made.round(n, dice.choice(grid)) for n in range(1, 40)]
    federation = Federation.of(at.space)

    def tables() -> object:
        q_tables = learned(federation, rounds(past(at, trials), federation), {})
        return q_tables.participants.worth, [q_tables.classes[name].worth for name in CLASSES]

    before = tables()
    dice.shuffle(trials)
    assert tables() == before
