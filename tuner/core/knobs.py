"""Knobs, settings and the space they span. Every knob is a finite ordered list of values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from operator import lt

from tuner.compat import StrEnum
from tuner.core.conditions import Condition
from tuner.core.units import Finite, Span
from tuner.errors import InvalidInput, OutOfRange, UnknownKnob

__all__ = [
    "Cost",
    "Knob",
    "Part",
    "Role",
    "Setting",
    "SettingKey",
    "Space",
    "Value",
    "render_setting",
    "setting_key",
]

Value = bool | int | float | str
Setting = Mapping[str, Value]
"""Knob name to value: one point of the space, device part and workload part together."""

SettingKey = tuple[tuple[str, Value], ...]


def setting_key(setting: Setting) -> SettingKey:
    """Return a hashable form of a setting, the same whatever the order of its knobs."""
    return tuple(sorted(setting.items()))


class Part(StrEnum):
    """Which side a knob belongs to: the hardware or the thing that runs on it."""

    DEVICE = "device"
    WORKLOAD = "workload"


class Role(StrEnum):
    """What a knob does to work and power: declared by who offers it, never guessed from its name."""

    CORE_CLOCK = "core_clock"
    """The clock of what does the work: a GPU's cores, or a CPU's where there is none."""
    MEMORY_CLOCK = "memory_clock"
    """The clock of memory, or of the fabric to it."""
    CPU_CLOCK = "cpu_clock"
    """The clock of a CPU that does the work itself, or of one of its clusters."""
    HOST_CLOCK = "host_clock"
    """The clock of a CPU that only feeds a GPU."""
    BOOST = "boost"
    """Whether a CPU may clock itself above its nominal clock: off or on."""
    POWER_LIMIT = "power_limit"
    BATCH = "batch"
    """How many items are done at once."""
    CEILING = "ceiling"
    """How many requests may be under way at once."""
    HOST_CORES = "host_cores"
    """Cores of a CPU that only feeds a GPU."""
    PARALLEL = "parallel"
    """How much works side by side: threads, cores, instances, GPUs."""
    SPECULATION_LENGTH = "speculation_length"
    """How many tokens a draft proposes per step; 0 is off."""
    DRAFT = "draft"
    """Which draft proposes them."""
    PARTICIPANTS = "participants"
    """How many clients train in a federated round (K)."""
    LOCAL_BATCH = "local_batch"
    """The batch size that a class of clients trains with (B)."""
    LOCAL_EPOCHS = "local_epochs"
    """How often a class of clients goes through its data in a round (E)."""
    AVERAGING_STEPS = "averaging_steps"
    """How many steps clients train between two averagings, in place of epochs."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Cost:
    """What it takes to change a knob: seconds until it is in force, and whether the workload restarts."""

    seconds: Span = 0.0
    restart: bool = False


@dataclass(frozen=True, slots=True)
class Knob:
    """A thing that can be set, as the finite ordered list of its values.

    `values` are in the knob's natural order (numbers ascending), `default` is the vendor's or the
    workload's own choice and so the baseline. The unit is part of the name: `gpu.clock_mhz`; what the
    knob does is its `role`. One that is `by_choice` is left at its default in a study that names no values
    of it: setting it at all has a price of its own. Where its `condition` does not hold it has no effect.
    Past each of its `breaks`, ascending, what it does may change: threads past the cores of a socket.

    Raises:
        InvalidInput: no values, duplicate or non-finite ones, breaks out of order, or another default.
    """

    name: str
    values: tuple[Value, ...]
    default: Value
    part: Part = Part.DEVICE
    cost: Cost = Cost()
    role: Role = Role.UNKNOWN
    by_choice: bool = False
    condition: Condition | None = None
    breaks: tuple[Finite, ...] = ()

    def __post_init__(self) -> None:
        if not self.name or not self.values:
            raise InvalidInput(f"knob {self.name!r} has no name or no values")
        if any(isinstance(v, float) and not math.isfinite(v) for v in self.values):
            raise InvalidInput(f"knob {self.name!r} has a value that is not finite")
        if len(set(self.values)) != len(self.values):
            raise InvalidInput(f"knob {self.name!r} has a value twice")
        if not all(map(lt, (-math.inf, *self.breaks), (*self.breaks, math.inf))):
            raise InvalidInput(
                f"the breaks of knob {self.name!r} are not finite and ascending",
                hint="list each once, the smallest first",
            )
        if self.default not in self.values:
            raise InvalidInput(
                f"knob {self.name!r}: default {self.default!r} is not in its list",
                hint="choose one of its values, or add it to them",
            )

    def __str__(self) -> str:
        """Return the name, and when it has an effect: `prefetch if workers > 0`."""
        return self.name if self.condition is None else f"{self.name} if {self.condition}"

    def index(self, value: Value) -> int:
        """Return the position of `value` in the list.

        Raises:
            OutOfRange: the value is not in the list.
        """
        try:
            return self.values.index(value)
        except ValueError:
            listed = ", ".join(str(v) for v in self.values[:12])
            more = f", … ({len(self.values)} values)" if len(self.values) > 12 else ""
            raise OutOfRange(
                f"knob {self.name!r} cannot be {value!r}", hint=f"choose one of {listed}{more}"
            ) from None


@dataclass(frozen=True, slots=True)
class Space:
    """The settings a study may choose from.

    All combinations of the knobs' values, or, where `only` is not empty, just those listed: a
    measured table has holes, and some combinations are forbidden. `only` settings name every knob. A knob
    whose condition does not hold, or is on a knob that has no effect itself, has its default: no two
    settings of a space differ only in what has no effect.

    Raises:
        InvalidInput: two knobs of one name, a combination listed twice, a default setting that `only`
            leaves out, or conditions in a cycle.
        UnknownKnob, OutOfRange: an entry of `only` or a condition does not fit the knobs.
    """

    knobs: tuple[Knob, ...]
    only: tuple[Setting, ...] = ()

    def __post_init__(self) -> None:
        names = [k.name for k in self.knobs]
        if len(set(names)) != len(names):
            raise InvalidInput(f"two knobs have the same name in {', '.join(names)}")
        for knob in self.knobs:
            self._refuse_cycle(knob)
        for setting in self.only:
            self._check_values(setting)
            self._check_effect(setting)
        if len({setting_key(setting) for setting in self.only}) != len(self.only):
            raise InvalidInput(
                "a setting is listed twice in a space", hint="list every combination once"
            )
        if self.only:
            self.check(self.default)

    @property
    def default(self) -> Setting:
        """The setting with every knob at its default: the baseline of a study."""
        return {k.name: k.default for k in self.knobs}

    @property
    def size(self) -> int:
        """The number of settings."""
        if self.only:
            return len(self.only)
        return math.prod(self._size_below(k) for k in self.knobs if k.condition is None)

    def knob(self, name: str) -> Knob:
        """Return the knob of that name.

        Raises:
            UnknownKnob: there is none.
        """
        for knob in self.knobs:
            if knob.name == name:
                return knob
        names = ", ".join(k.name for k in self.knobs) or "none"
        raise UnknownKnob(f"there is no knob {name!r}", hint=f"available knobs: {names}")

    def check(self, setting: Setting) -> None:
        """Return quietly when the setting is a point of the space.

        Raises:
            UnknownKnob: it names a knob that is not there, or leaves one out.
            OutOfRange: a value, or the combination, is not in the space.
        """
        self._check_values(setting)
        self._check_effect(setting)
        if self.only and setting_key(setting) not in {setting_key(s) for s in self.only}:
            raise OutOfRange(
                f"the combination {render_setting(setting)} is not one of the {len(self.only)} "
                "allowed",
                hint="choose a listed combination",
            )

    def grid(self) -> Iterator[Setting]:
        """Yield every setting, in the order of the knobs' lists, the last knob fastest."""
        if self.only:
            yield from self.only
            return
        if any(k.condition is not None for k in self.knobs):
            yield from self._grid_below({}, self.knobs)
            return
        names = [k.name for k in self.knobs]
        for values in product(*(k.values for k in self.knobs)):
            yield dict(zip(names, values, strict=True))

    def canonical(self, setting: Setting) -> Setting:
        """Return a setting with every knob that has no effect in it at its default."""
        dead = {k.name: k.default for k in self.knobs if not self._has_effect(k, setting)}
        return {**setting, **dead} if dead else setting

    def restricted(self, choices: Mapping[str, tuple[Value, ...]]) -> Space:
        """Return the space with some knobs cut down to the given values.

        The default stays: it is the baseline that limits and savings are relative to.

        Raises:
            UnknownKnob, OutOfRange: a choice does not fit the knobs, or leaves the default out.
        """
        for name, values in choices.items():
            knob = self.knob(name)
            for value in values:
                knob.index(value)
            if knob.default not in values:
                raise OutOfRange(
                    f"the choice for {name!r} leaves out its default {knob.default!r}",
                    hint="keep it: the default is the baseline of every comparison",
                )
        knobs = tuple(
            replace(k, values=tuple(v for v in k.values if v in choices[k.name]))
            if k.name in choices
            else k
            for k in self.knobs
        )
        listed = tuple(
            s for s in self.only if all(s[name] in values for name, values in choices.items())
        )
        return Space(knobs, listed)

    def conditioned(self, conditions: Mapping[str, Condition]) -> Space:
        """Return the space with conditions on some knobs, in place of those they have.

        Raises:
            UnknownKnob, OutOfRange, InvalidInput: a condition does not fit the knobs, or never holds.
        """
        for name in conditions:
            self.knob(name)
        knobs = tuple(replace(k, condition=conditions.get(k.name, k.condition)) for k in self.knobs)
        free = Space(knobs)
        listed = tuple(s for s in self.only if setting_key(free.canonical(s)) == setting_key(s))
        conditioned = Space(knobs, listed)
        conditioned.refuse_unreached(conditions)
        return conditioned

    def refuse_unreached(self, names: Iterable[str]) -> None:
        """Return quietly where the condition of each of some knobs holds at a value of the other knob.

        Raises:
            OutOfRange: one never does.
        """
        for condition in (self.knob(name).condition for name in names):
            values = self.knob(condition.knob).values if condition else ()
            if condition and not any(condition.holds(value) for value in values):
                listed = ", ".join(str(v) for v in values[:12])
                raise OutOfRange(
                    f"the condition {str(condition)!r} never holds",
                    hint=f"{condition.knob} can be {listed}; change the condition, or add a value",
                )

    def within(self, offered: Space) -> Space:
        """Return the space without the values that a device offers no more.

        The default stays: it is the baseline. Nothing is taken from a knob that the device does not have at
        present, or that has another default there: that is a device that did not answer, or another one.
        """
        by_name = {knob.name: knob for knob in offered.knobs}
        same = {
            k.name for k in self.knobs if k.name in by_name and by_name[k.name].default == k.default
        }
        knobs = tuple(
            replace(k, values=tuple(v for v in k.values if v in by_name[k.name].values))
            if k.name in same
            else k
            for k in self.knobs
        )
        left = {knob.name: knob.values for knob in knobs}
        only = tuple(s for s in self.only if all(v in left[name] for name, v in s.items()))
        return Space(knobs, only)

    def has(self, setting: Setting) -> bool:
        """Return whether every value of a setting is in the space."""
        return all(k.name not in setting or setting[k.name] in k.values for k in self.knobs)

    def _refuse_cycle(self, knob: Knob) -> None:
        """Raise where a knob's condition is on no knob, or leads back to the knob."""
        passed, at = [knob.name], knob
        while at.condition is not None:
            at = self.knob(at.condition.knob)
            if at.name in passed:
                raise InvalidInput(
                    f"the condition of knob {knob.name!r} is on itself"
                    if at is knob and len(passed) == 1
                    else f"conditions in a cycle: {' -> '.join([*passed, at.name])}",
                    hint="write a condition on a knob that does not depend on this one",
                )
            passed.append(at.name)

    def _has_effect(self, knob: Knob, setting: Setting) -> bool:
        """Return whether a knob has an effect in a setting that names all that it depends on."""
        while (condition := knob.condition) is not None:
            if not condition.holds(setting[condition.knob]):
                return False
            knob = self.knob(condition.knob)
        return True

    def _check_effect(self, setting: Setting) -> None:
        for knob in self.knobs:
            if setting[knob.name] != knob.default and not self._has_effect(knob, setting):
                raise OutOfRange(
                    f"knob {knob.name!r} has no effect in {render_setting(setting)}: it needs "
                    f"{knob.condition}",
                    hint=f"leave it at its default, {knob.default}",
                )

    def _size_below(self, knob: Knob) -> int:
        """Return how many settings a knob has together with those that depend on it."""
        below = [k for k in self.knobs if k.condition is not None and k.condition.knob == knob.name]
        sizes = {k.name: self._size_below(k) for k in below}
        return sum(
            math.prod(sizes[k.name] for k in below if k.condition and k.condition.holds(value))
            for value in knob.values
        )

    def _grid_below(self, setting: dict[str, Value], knobs: tuple[Knob, ...]) -> Iterator[Setting]:
        """Yield every setting that extends some knobs' values by those of the others."""
        if not knobs:
            yield setting
            return
        for value in knobs[0].values:
            longer = {**setting, knobs[0].name: value}
            if all(self._may_be(k, longer) for k in self.knobs if k.condition):
                yield from self._grid_below(longer, knobs[1:])

    def _may_be(self, knob: Knob, setting: Setting) -> bool:
        """Return whether a knob may have its value in a partial setting."""
        if setting.get(knob.name, knob.default) == knob.default:
            return True
        while (condition := knob.condition) is not None and condition.knob in setting:
            if not condition.holds(setting[condition.knob]):
                return False
            knob = self.knob(condition.knob)
        return True

    def _check_values(self, setting: Setting) -> None:
        for name, value in setting.items():
            self.knob(name).index(value)
        missing = [k.name for k in self.knobs if k.name not in setting]
        if missing:
            raise UnknownKnob(
                f"the setting has no value for {', '.join(missing)}",
                hint="give every knob a value",
            )


def render_setting(setting: Setting) -> str:
    """Return a setting as one short line: `gpu.clock_mhz=1005 batch_size=8`."""
    return " ".join(f"{name}={value}" for name, value in setting.items()) or "(nothing to set)"
