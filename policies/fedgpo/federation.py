"""The knobs of a federation, identified by their roles, and the results of its past rounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

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
    setting_key,
)

ENERGY, SECONDS, ACCURACY = "energy_j", "round_s", "accuracy"
RUNG, RUNGS = 4.0, 2
"""Each rung of the ladder of averaging steps is at most the former over `RUNG`. Chosen on the
recipes of the benchmark that do not judge."""
ROUND, ROUNDS_LEFT = "round", "rounds_left"
"""A round's state has under these names its number in the training, from 1, and the most rounds that
the training may still have, this one included."""
JUMP = 0.15
"""A state whose accuracy differs by more than this from that after the last round begins another
training."""
SHORT_FOR = 10
"""The number of rounds for which a shortage of clients counts: they may come back."""


@dataclass(frozen=True, slots=True)
class ClientClass:
    """One class of clients: its name, and its knobs for batch (B) and epochs (E)."""

    name: str
    batch: Knob
    epochs: Knob

    @property
    def actions(self) -> list[tuple[Value, Value]]:
        """Every combination of batch and epochs."""
        return [(b, e) for b in self.batch.values for e in self.epochs.values]

    def action(self, setting: Setting) -> tuple[Value, Value]:
        """Return the batch and the epochs of a setting."""
        return setting[self.batch.name], setting[self.epochs.name]


@dataclass(frozen=True, slots=True)
class Federation:
    """The knobs of a round: participants (K), and B and E of each class of clients.

    The class is the part of the knobs' names after the last dot, as in `batch_size.high`. If the steps
    between two averagings are a knob, clients train for these steps, and their epochs have no effect.
    """

    participants: Knob
    classes: tuple[ClientClass, ...]
    default: Setting
    steps: Knob | None = None

    @classmethod
    def of(cls, space: Space) -> Federation:
        """Return the federation that a space describes; other knobs keep their defaults.

        Raises:
            InvalidInput: a role is missing, a class has only one of its two knobs, or a value is not an
                integer of at least 1.
        """
        by_role = {role: [k for k in space.knobs if k.role is role] for role in Role}
        participants = by_role[Role.PARTICIPANTS]
        batches, epochs = (
            {_class_of(k): k for k in by_role[role]}
            for role in (Role.LOCAL_BATCH, Role.LOCAL_EPOCHS)
        )
        if len(participants) != 1 or not batches or batches.keys() != epochs.keys():
            raise InvalidInput(
                f"fedgpo needs one knob of the role {Role.PARTICIPANTS}, and one of the roles "
                f"{Role.LOCAL_BATCH} and {Role.LOCAL_EPOCHS} for each class of clients; the space has "
                f"{len(participants)}, and the classes {sorted(batches)} and {sorted(epochs)}",
                hint="choose another policy, or a federation",
            )
        steps = by_role[Role.AVERAGING_STEPS]
        for knob in (*participants, *batches.values(), *epochs.values(), *steps):
            if not all(
                isinstance(v, int) and not isinstance(v, bool) and v > 0 for v in knob.values
            ):
                raise InvalidInput(
                    f"{knob.name} cannot be one of {knob.values}",
                    hint="give the knob integers >= 1",
                )
        classes = tuple(ClientClass(name, batches[name], epochs[name]) for name in batches)
        return cls(participants[0], classes, space.default, next(iter(steps), None))

    @property
    def knobs(self) -> tuple[Knob, ...]:
        """K, then B and E of each class."""
        return (self.participants, *(k for c in self.classes for k in (c.batch, c.epochs)))

    @property
    def local(self) -> tuple[Knob, ...]:
        """The knobs that set how long clients train in a round: each class's epochs, or the steps."""
        return tuple(c.epochs for c in self.classes) if self.steps is None else (self.steps,)

    def ladder(self) -> list[Value]:
        """Return the steps of the first rounds, from the longest: early rounds gain most from them."""
        rungs: list[Value] = []
        for value in sorted(self.steps.values, reverse=True) if self.steps else ():
            if len(rungs) < RUNGS and (not rungs or RUNG * float(value) <= float(rungs[-1])):
                rungs.append(value)
        return rungs

    def available(self, learnt: Sequence[Round]) -> float:
        """Return the number of available clients, from a round short of participants not long ago."""
        for one in reversed(learnt[-SHORT_FOR:]):
            reachable = one.shown.get("participated", 0.0) + one.shown.get("failed", 0.0)
            if 0.0 < reachable < float(one.setting[self.participants.name]):
                return reachable
        return math.inf

    def options(self, available: float = math.inf) -> list[Setting]:
        """Return the settings with the same B and E for every class, or the nearest values.

        Numbers of participants above `available` are left out, except the smallest.
        """
        counts = sorted(self.participants.values)
        fit = [k for k in counts if float(k) <= available] or counts[:1]
        return [
            {
                **self.default,
                self.participants.name: count,
                **{c.batch.name: _near(c.batch, batch) for c in self.classes},
                **{knob.name: _near(knob, local) for knob in self.local},
            }
            for count in fit
            for batch in self.classes[0].batch.values
            for local in self.local[0].values
        ]

    def variants(self, setting: Setting, kind: ClientClass) -> list[Setting]:
        """Return a setting with every B and E of one class; without its E where steps replace it."""
        kept = {kind.epochs.name: setting[kind.epochs.name]} if self.steps else {}
        changed = [
            {**setting, kind.batch.name: batch, kind.epochs.name: epochs, **kept}
            for batch, epochs in kind.actions
        ]
        return list({setting_key(one): one for one in changed}.values())

    def setting(self, participants: Value, actions: Mapping[str, tuple[Value, Value]]) -> Setting:
        """Return the setting for K and for B and E of each class."""
        chosen: dict[str, Value] = {**self.default, self.participants.name: participants}
        for one in self.classes:
            chosen[one.batch.name], chosen[one.epochs.name] = actions[one.name]
        return chosen


@dataclass(frozen=True, slots=True)
class Round:
    """One round: its setting, its first state, its cost and its gain.

    `before` and `accuracy` are shares of right answers of the global model. `shown` is its whole
    report, `spent` the part of it that the study minimises. `class_spent` is `spent` of the clients
    of a class, where joules are minimised and reported. A round is not `whole` if its accuracy is
    missing or impossible, and then replaced by `before`, or if its cost is.
    """

    number: int
    setting: Setting
    state: Context
    spent: float
    class_spent: Mapping[str, float]
    before: float
    accuracy: float
    shown: Mapping[str, float] = field(default_factory=dict)
    whole: bool = True

    @property
    def gain(self) -> float:
        """The increase of the accuracy."""
        return self.accuracy - self.before


def rounds(past: Past, federation: Federation) -> list[Round]:
    """Return the whole rounds of `ran`."""
    return [one for one in ran(past, federation) if one.whole]


def ran(past: Past, federation: Federation) -> list[Round]:
    """Return the completed rounds since the first known accuracy, in their order; not all are whole.

    A round whose state does not report the accuracy before it uses that of the latest round that
    reports one.
    """
    metric = past.study.objective.metric
    history: list[Round] = []
    latest: float | None = None
    for trial in sorted(past.trials, key=lambda t: t.number):
        if trial.state is not TrialState.COMPLETED:
            continue
        shown = _finite(trial)
        before = trial.ran_at.get(ACCURACY, latest)
        evaluated = 0.0 <= shown.get(ACCURACY, -1.0) <= 1.0
        latest = shown[ACCURACY] if evaluated else latest
        if before is None or not math.isfinite(before):
            continue
        by_class = {
            c.name: value
            for c in federation.classes
            if metric == ENERGY and (value := shown.get(f"energy_{c.name}_j", -1.0)) >= 0.0
        }
        spent = shown.get(metric, 0.0)
        history.append(
            Round(
                trial.number,
                trial.setting,
                trial.ran_at,
                spent,
                by_class,
                before,
                shown[ACCURACY] if evaluated else before,
                shown,
                evaluated and spent > 0.0,
            )
        )
    return history


def of_this_training(past: Past, learnt: Sequence[Round]) -> Sequence[Round]:
    """Return the latest rounds, those of the training that the coming round continues."""
    begin, accuracy = len(learnt), state_now(past, learnt).get(ACCURACY)
    while begin and not begins(accuracy, learnt[begin - 1].accuracy):
        begin -= 1
        accuracy = learnt[begin].before
    return learnt[begin:]


def begins(before: float | None, last: float) -> bool:
    """Return whether another training begins at an accuracy after a round that ended with the last."""
    return before is not None and abs(before - last) > JUMP


def state_now(past: Past, learnt: Sequence[Round]) -> Context:
    """Return the state at the start of the coming round: as reported, else that of the latest one."""
    if past.context:
        return past.context
    return {**learnt[-1].state, ACCURACY: learnt[-1].accuracy} if learnt else {}


def _finite(trial: Trial) -> dict[str, float]:
    """Return the finite means that a trial's round reports, by metric."""
    return {name: e.mean for name, e in trial.shown.items() if math.isfinite(e.mean)}


def _near(knob: Knob, value: Value) -> Value:
    """Return the value of a knob that is nearest to a value of another class."""
    return min(knob.values, key=lambda own: abs(math.log(float(own) / float(value))))


def _class_of(knob: Knob) -> str:
    """Return the class of clients in a knob's name: the part after the last dot."""
    return knob.name.rpartition(".")[2]
