"""The knobs of a federation, found by their roles, and what its past rounds showed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tuner.core import (
    Context,
    InvalidInput,
    Knob,
    Past,
    Role,
    Setting,
    Space,
    Trial,
    TrialState,
    Value,
)

ENERGY, SECONDS, ACCURACY = "energy_j", "round_s", "accuracy"


@dataclass(frozen=True, slots=True)
class ClientClass:
    """One class of clients: its name, and its knobs for batch (B) and epochs (E)."""

    name: str
    batch: Knob
    epochs: Knob

    @property
    def actions(self) -> list[tuple[Value, Value]]:
        """Every batch with every number of epochs."""
        return [(b, e) for b in self.batch.values for e in self.epochs.values]

    def action(self, setting: Setting) -> tuple[Value, Value]:
        """Return the batch and the epochs of a setting."""
        return setting[self.batch.name], setting[self.epochs.name]


@dataclass(frozen=True, slots=True)
class Federation:
    """The knobs that a round is set by: participants (K), and B and E of each class of clients.

    A class is what follows the last dot of its knobs' names, as in `batch_size.high`.
    """

    participants: Knob
    classes: tuple[ClientClass, ...]
    default: Setting

    @classmethod
    def of(cls, space: Space) -> Federation:
        """Return the federation that a space describes; other knobs keep their defaults.

        Raises:
            InvalidInput: a role is missing, a class has one of its two knobs only, or a value is no count.
        """
        by_role = {role: [k for k in space.knobs if k.role is role] for role in Role}
        participants = by_role[Role.PARTICIPANTS]
        batches, epochs = (
            {_class_of(k): k for k in by_role[role]}
            for role in (Role.LOCAL_BATCH, Role.LOCAL_EPOCHS)
        )
        if len(participants) != 1 or not batches or batches.keys() != epochs.keys():
            raise InvalidInput(
                f"fedgpo sets one knob of the role {Role.PARTICIPANTS}, and one of the roles "
                f"{Role.LOCAL_BATCH} and {Role.LOCAL_EPOCHS} for each class of clients; the space has "
                f"{len(participants)}, and the classes {sorted(batches)} and {sorted(epochs)}",
                hint="choose another policy, or a federation",
            )
        for knob in (*participants, *batches.values(), *epochs.values()):
            if not all(
                isinstance(v, int) and not isinstance(v, bool) and v > 0 for v in knob.values
            ):
                raise InvalidInput(
                    f"{knob.name} cannot be one of {knob.values}",
                    hint="give the knob whole numbers from 1 on",
                )
        found = tuple(ClientClass(name, batches[name], epochs[name]) for name in batches)
        return cls(participants[0], found, space.default)

    @property
    def knobs(self) -> tuple[Knob, ...]:
        """K, then B and E of each class."""
        return (self.participants, *(k for c in self.classes for k in (c.batch, c.epochs)))

    def setting(self, participants: Value, actions: Mapping[str, tuple[Value, Value]]) -> Setting:
        """Return the setting of K and of each class's B and E."""
        chosen: dict[str, Value] = {**self.default, self.participants.name: participants}
        for one in self.classes:
            chosen[one.batch.name], chosen[one.epochs.name] = actions[one.name]
        return chosen


@dataclass(frozen=True, slots=True)
class Round:
    """One round: what was set, the state it began from, and what it took and brought.

    `before` and `accuracy` are shares of right answers of the global model; `energy_j` is of all
    clients, `class_energy_j` of those of a class where it is told.
    """

    number: int
    setting: Setting
    state: Context
    energy_j: float
    class_energy_j: Mapping[str, float]
    before: float
    accuracy: float

    @property
    def gain(self) -> float:
        """By how much the accuracy rose."""
        return self.accuracy - self.before


def rounds(past: Past, federation: Federation) -> list[Round]:
    """Return the rounds that can be learnt from, in their order.

    Rounds that failed, or show no finite energy or accuracy, are left out. A round whose state does
    not tell the accuracy before it goes by the latest round that tells one.
    """
    found: list[Round] = []
    latest: float | None = None
    for trial in sorted(past.trials, key=lambda t: t.number):
        if trial.state is not TrialState.COMPLETED:
            continue
        shown = _finite(trial)
        before = trial.ran_at.get(ACCURACY, latest)
        if ACCURACY not in shown or not 0.0 <= shown[ACCURACY] <= 1.0:
            continue
        latest = shown[ACCURACY]
        if before is None or not math.isfinite(before) or shown.get(ENERGY, 0.0) <= 0.0:
            continue
        by_class = {
            c.name: value
            for c in federation.classes
            if (value := shown.get(f"energy_{c.name}_j", -1.0)) >= 0.0
        }
        found.append(
            Round(
                trial.number, trial.setting, trial.ran_at, shown[ENERGY], by_class, before, latest
            )
        )
    return found


def state_now(past: Past, learnt: Sequence[Round]) -> Context:
    """Return the state that the coming round starts from: as told, else that of the latest round."""
    if past.context:
        return past.context
    return {**learnt[-1].state, ACCURACY: learnt[-1].accuracy} if learnt else {}


def _finite(trial: Trial) -> dict[str, float]:
    return {name: e.mean for name, e in trial.shown.items() if math.isfinite(e.mean)}


def _class_of(knob: Knob) -> str:
    return knob.name.rpartition(".")[2]
