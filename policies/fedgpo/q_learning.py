"""Q-learning of (B, E) for each class of clients and of K: FedGPO's form.

FedGPO (Kim and Wu, arXiv 2211.16669) has a reinforcement learner pick the global parameters B, E
and K for each aggregation round, by data heterogeneity, system heterogeneity and runtime variance.
Its states, rewards and constants are not public; those of AutoFL (arXiv 2107.08147) are,
second-hand, in a re-implementation. From there: the bins, the form of the reward, learning rate,
discount and epsilon.

Our own: a table per class of clients instead of per client, energies relative to the first rounds'
(so that the reward has no unit), a separate table for K, and no features of the model, which are
constant in a study.
"""

from __future__ import annotations

import math
import random
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import ClassVar, Generic, TypeVar

from policies.fedgpo.federation import Federation, Round, state_now
from policies.fedgpo.goals import SPENT, TrainingGoal
from policies.fedgpo.rounds import RoundPolicy
from tuner.core import Context, Past, Try, Value

LEARNING_RATE, DISCOUNT, EPSILON = 0.9, 0.1, 0.1
"""AutoFL's, as re-implemented."""
ACCURACY_WEIGHT, GAIN_WEIGHT = 0.1, 1.0
"""The weights of a percent of accuracy and of a percent gained. AutoFL has 10 and 100 with
energies of about a hundred; ours are relative to 1."""
FALL = -1.0
"""The reward of a round whose accuracy fell, before `ACCURACY_WEIGHT` is subtracted for each
percent missing to 100 %."""
FIRST_ROUNDS = 3
"""Energies are relative to the mean of this number of first rounds."""
LOAD_BINS = (0.001, 0.25, 0.75)
"""Bins of processor and memory in use by other apps: none, some, much, nearly all."""
NETWORK_MBPS, DATA_BINS = 40.0, (0.25, 0.999)

State = tuple[int, ...]
ActionT = TypeVar("ActionT", bound=Hashable)


class QLearning(RoundPolicy):
    """Picks B and E for each class of clients, and K, by their values in similar states."""

    spends: ClassVar[tuple[str, ...]] = SPENT

    def round(
        self, past: Past, federation: Federation, learnt: Sequence[Round], goal: TrainingGoal
    ) -> Try:
        """Return the next round's setting."""
        now = state_now(past, learnt)
        tables = learned(federation, learnt, now)
        number = max((t.number for t in past.trials), default=0) + 1
        dice = random.Random(f"{past.study.seed} {number}")
        participants = tables.participants.choice(state(now), dice)
        actions = {
            name: table.choice(state(now, name), dice) for name, table in tables.classes.items()
        }
        setting = federation.setting(
            participants.action, {name: picked.action for name, picked in actions.items()}
        )
        explored = [name for name, picked in actions.items() if picked.explored]
        explored += ["the number of participants"] if participants.explored else []
        why = (
            f"explores {', '.join(explored)}"
            if explored
            else "the best setting learned in this state"
        )
        return Try(setting, f"{why}; {len(learnt)} rounds of data")


@dataclass(frozen=True, slots=True)
class Picked(Generic[ActionT]):
    """An action, and whether it was picked to explore."""

    action: ActionT
    explored: bool


@dataclass(frozen=True)
class QTable(Generic[ActionT]):
    """The value of each action in each state with experience; all others are 0."""

    actions: Sequence[ActionT]
    worth: dict[tuple[State, ActionT], float] = field(default_factory=dict)

    def update(self, at: State, action: ActionT, reward: float, then: State) -> None:
        """Learn from one round (Watkins 1989)."""
        ahead = max(self.worth.get((then, a), 0.0) for a in self.actions)
        old = self.worth.get((at, action), 0.0)
        self.worth[at, action] = old + LEARNING_RATE * (reward + DISCOUNT * ahead - old)

    def choice(self, at: State, dice: random.Random) -> Picked[ActionT]:
        """Return the best action of a state, or with probability epsilon a random one; ties are random."""
        if dice.random() < EPSILON:
            return Picked(dice.choice(self.actions), explored=True)
        worths = [self.worth.get((at, a), 0.0) for a in self.actions]
        most = max(worths)
        best = [a for a, worth in zip(self.actions, worths, strict=True) if worth == most]
        return Picked(dice.choice(best), explored=False)


@dataclass(frozen=True)
class QTables:
    """One table for K, and one for each class of clients."""

    participants: QTable[Value]
    classes: Mapping[str, QTable[tuple[Value, Value]]]


def learned(federation: Federation, past: Sequence[Round], now: Context) -> QTables:
    """Return the tables after some rounds; the same rounds give the same tables."""
    tables = QTables(
        QTable(federation.participants.values),
        {c.name: QTable(c.actions) for c in federation.classes},
    )
    scale = fmean(r.spent for r in past[:FIRST_ROUNDS]) if past else 1.0
    states = [_states(federation, context) for context in (*(r.state for r in past), now)]
    for one, before, after in zip(past, states, states[1:], strict=False):
        _learn(tables, federation, one, before, after, scale)
    return tables


def _states(federation: Federation, context: Context) -> dict[str, State]:
    """Return the state of each class of clients, and under the empty name the common state."""
    return {"": state(context), **{c.name: state(context, c.name) for c in federation.classes}}


def _learn(
    tables: QTables,
    federation: Federation,
    one: Round,
    before: Mapping[str, State],
    after: Mapping[str, State],
    scale: float,
) -> None:
    """Learn from one round, and the state after it."""
    whole = one.spent / scale
    participants = one.setting[federation.participants.name]
    tables.participants.update(before[""], participants, reward(one, whole, 0.0), after[""])
    for kind in federation.classes:
        own = one.class_spent.get(kind.name)
        share = whole if own is None else len(federation.classes) * own / scale
        tables.classes[kind.name].update(
            before[kind.name], kind.action(one.setting), reward(one, whole, share), after[kind.name]
        )


def reward(one: Round, global_energy: float, local_energy: float) -> float:
    """Return the reward of a round: accuracy and progress in percent, less relative energies."""
    if one.gain < 0.0:
        return FALL + ACCURACY_WEIGHT * 100.0 * (one.accuracy - 1.0)
    return (
        ACCURACY_WEIGHT * 100.0 * one.accuracy
        + GAIN_WEIGHT * 100.0 * one.gain
        - global_energy
        - local_energy
    )


def state(context: Context, kind: str = "") -> State:
    """Return the bins of a round's state: for one class of clients, or for all by their mean.

    A missing value has its own bin.
    """

    def mean_of(name: str) -> float:
        if kind:
            return context.get(f"{name}.{kind}", math.nan)
        values = [v for key, v in context.items() if key.startswith(f"{name}.")]
        return sum(values) / len(values) if values else math.nan

    return (
        _bin(mean_of("load"), LOAD_BINS),
        _bin(mean_of("memory"), LOAD_BINS),
        _bin(mean_of("network_mbps"), (NETWORK_MBPS,)),
        _bin(mean_of("data_classes"), DATA_BINS),
    )


def _bin(value: float, edges: Sequence[float]) -> int:
    """Return the number of edges at or below a value; -1 where there is none."""
    return sum(value >= edge for edge in edges) if math.isfinite(value) else -1
