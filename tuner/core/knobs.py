"""Knobs, settings and the space they span. Every knob is a finite ordered list of values.

A knob may have an effect only while a comparison of another knob's value holds, written `workers > 0`.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from operator import lt
from types import MappingProxyType

from tuner.compat import StrEnum
from tuner.core.quantities import Finite, Span
from tuner.errors import InvalidInput, OutOfRange, UnknownKnob

_ORDERS: Mapping[str, Callable[[float, float], bool]] = MappingProxyType(
    {"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt}
)
"""Comparisons of numbers; `==` and `!=` compare any values."""
_WRITTEN = re.compile(r"\s*([^\s<>=!]+)\s*(<=|>=|==|!=|<|>)\s*([^\s<>=!](?:.*\S)?)\s*")
Value = bool | int | float | str
Setting = Mapping[str, Value]
"""Knob name to value: one point of the space, device part and workload part together."""
SettingKey = tuple[tuple[str, Value], ...]


@dataclass(frozen=True, slots=True)
class Condition:
    """A comparison under which a knob has an effect: `knob` is the other knob, `value` is as written.

    Raises:
        InvalidInput: the operator is unknown, or orders by a text, as `mode < fast` does.
    """

    knob: str
    op: str
    value: str

    def __post_init__(self) -> None:
        if self.op in _ORDERS and _number(self.value) is None:
            raise InvalidInput(
                f"the condition {str(self)!r} compares with {self.value!r}, which is not a number",
                hint=f"compare with a number, or write {self.knob} == {self.value}",
            )
        if self.op not in (*_ORDERS, "==", "!="):
            raise InvalidInput(
                f"a condition cannot compare by {self.op!r}", hint="use < <= > >= == or !="
            )

    @classmethod
    def parse(cls, text: str) -> Condition:
        """Read a condition such as `workers > 0` or `mode == fast`. Raises InvalidInput."""
        match = _WRITTEN.fullmatch(text)
        if match is None:
            raise InvalidInput(
                f"cannot read the condition {text.strip()!r}",
                hint="write a knob, one of < <= > >= == !=, and a value: workers > 0",
            )
        return cls(*match.groups())

    def __str__(self) -> str:
        return f"{self.knob} {self.op} {self.value}"

    def holds(self, value: bool | float | str) -> bool:
        """Return whether the condition holds at a value of the other knob; a text has no order."""
        own, other = _number(value), _number(self.value)
        if self.op in _ORDERS:
            return own is not None and other is not None and _ORDERS[self.op](own, other)
        same = str(value) == self.value if own is None or other is None else own == other
        if isinstance(value, bool):
            same = str(value).lower() == self.value.lower()
        return same if self.op == "==" else not same


def _number(value: bool | float | str) -> float | None:
    """Return a value as a number, None for a switch or a text that is not a number."""
    try:
        return None if isinstance(value, bool) else float(value)
    except ValueError:
        return None


def setting_key(setting: Setting) -> SettingKey:
    """Return a hashable form of a setting that does not depend on the order of its knobs."""
    return tuple(sorted(setting.items()))


class Part(StrEnum):
    """The side that a knob belongs to: the hardware, or the workload that runs on it."""

    DEVICE = "device"
    WORKLOAD = "workload"


class Role(StrEnum):
    """The effect of a knob on work and power.

    The driver or the workload that offers a knob declares its role; it is never guessed from the name.
    """

    CORE_CLOCK = "core_clock"
    """The clock of the cores that do the work: a GPU's, or a CPU's in a device without a GPU."""
    MEMORY_CLOCK = "memory_clock"
    """The clock of the memory, or of the fabric between it and the cores."""
    CPU_CLOCK = "cpu_clock"
    """The clock of a CPU that does the work itself, or of one of its clusters."""
    HOST_CLOCK = "host_clock"
    """The clock of a CPU that only feeds a GPU."""
    BOOST = "boost"
    """Whether a CPU may clock itself above its nominal clock: off or on."""
    POWER_LIMIT = "power_limit"
    BATCH = "batch"
    """The number of items that are processed at once."""
    CEILING = "ceiling"
    """The most requests that may be in progress at once."""
    HOST_CORES = "host_cores"
    """The number of cores of a CPU that only feeds a GPU."""
    PARALLEL = "parallel"
    """The degree of parallelism: the number of threads, cores, instances or GPUs."""
    SPECULATION_LENGTH = "speculation_length"
    """The number of tokens that a draft model proposes per step; 0 is off."""
    DRAFT = "draft"
    """The draft model that proposes them."""
    PARTICIPANTS = "participants"
    """The number of clients that train in a federated round (K)."""
    LOCAL_BATCH = "local_batch"
    """The batch size that a class of clients trains with (B)."""
    LOCAL_EPOCHS = "local_epochs"
    """The number of passes of a class of clients through its data in a round (E)."""
    AVERAGING_STEPS = "averaging_steps"
    """The number of steps that clients train between two averagings, in place of epochs."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a change of a knob: seconds until it is in force, and whether the workload restarts."""

    seconds: Span = 0.0
    restart: bool = False


@dataclass(frozen=True, slots=True)
class Knob:
    """A parameter of a device or a workload, as the finite ordered list of its values.

    `values` are in the knob's natural order (numbers ascending). `default` is the choice of the vendor or
    of the workload, and so the baseline. The unit is part of the name: `gpu.clock_mhz`. `role` is the
    knob's effect. A knob that is `by_choice` stays at its default in a study that names no values of it,
    because setting it at all has a price. A knob has no effect while its `condition` does not hold.
    Above each of its `breaks`, ascending, its effect may change: more threads than a socket has cores.

    Raises:
        InvalidInput: no name, no values, duplicate or non-finite values, breaks out of order, or a default
            that is not one of the values.
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
        """Return the name, with the condition under which it has an effect: `prefetch if workers > 0`."""
        return self.name if self.condition is None else f"{self.name} if {self.condition}"

    def spelled(self, text: str) -> Value:
        """Return the value with this text. Raises OutOfRange."""
        by_text: Mapping[str, Value] = {str(value): value for value in self.values}
        return by_text[text] if text in by_text else self.values[self.index(text)]

    def index(self, value: Value) -> int:
        """Return the position of `value` in the list.

        Raises:
            OutOfRange: the value is not in the list; a switch (`true`) is no number there.
        """
        if value in self.values:
            at = self.values.index(value)
            if isinstance(value, bool) is isinstance(self.values[at], bool):
                return at
        listed = ", ".join(str(v) for v in self.values[:12])
        more = f", … ({len(self.values)} values)" if len(self.values) > 12 else ""
        raise OutOfRange(
            f"knob {self.name!r} cannot be {value!r}", hint=f"choose one of {listed}{more}"
        )


@dataclass(frozen=True, slots=True)
class Space:
    """The settings a study may choose from.

    These are all combinations of the knobs' values, or, if `only` is not empty, just those in `only`: a
    measured table has holes, and some combinations are forbidden. A setting in `only` names every knob. A
    knob has its default if its condition does not hold, or is on a knob without effect. So no two settings
    of a space differ only in knobs without effect.

    Raises:
        InvalidInput: two knobs have one name, a combination is listed twice, `only` leaves out the default
            setting, or conditions form a cycle.
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
            UnknownKnob: the space has no knob of that name.
        """
        for knob in self.knobs:
            if knob.name == name:
                return knob
        names = ", ".join(k.name for k in self.knobs) or "none"
        raise UnknownKnob(f"there is no knob {name!r}", hint=f"available knobs: {names}")

    def check(self, setting: Setting) -> None:
        """Return quietly if the setting is a point of the space.

        Raises:
            UnknownKnob: the setting names a knob that the space lacks, or leaves one out.
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
        """Yield every setting, in the order of the knobs' lists; the last knob changes fastest."""
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
        """Return a setting in which every knob without effect has its default."""
        dead = {k.name: k.default for k in self.knobs if not self._has_effect(k, setting)}
        return {**setting, **dead} if dead else setting

    def restricted(self, choices: Mapping[str, tuple[Value, ...]]) -> Space:
        """Return the space with some knobs cut down to the given values.

        The default stays: it is the baseline for limits and savings.

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
        """Return the space with these conditions on some knobs, in place of their present ones.

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
        """Return quietly if the condition of each named knob holds at some value of the other knob.

        Raises:
            OutOfRange: a condition never holds.
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
        """Return the space without the values that a device no longer offers.

        The default stays: it is the baseline. A knob keeps all its values if `offered` lacks it or gives it
        another default: then the device did not answer, or it is another device.
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
        """Raise InvalidInput if a knob's condition leads back to it, UnknownKnob if it is on no knob."""
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
        """Return whether a knob has an effect in a setting, which names every knob that it depends on."""
        while (condition := knob.condition) is not None:
            if not condition.holds(setting[condition.knob]):
                return False
            knob = self.knob(condition.knob)
        return True

    def _check_effect(self, setting: Setting) -> None:
        """Raise OutOfRange if a knob without effect has another value than its default."""
        for knob in self.knobs:
            if setting[knob.name] != knob.default and not self._has_effect(knob, setting):
                raise OutOfRange(
                    f"knob {knob.name!r} has no effect in {render_setting(setting)}: it needs "
                    f"{knob.condition}",
                    hint=f"leave it at its default, {knob.default}",
                )

    def _size_below(self, knob: Knob) -> int:
        """Return the number of settings of a knob together with the knobs that depend on it."""
        below = [k for k in self.knobs if k.condition is not None and k.condition.knob == knob.name]
        sizes = {k.name: self._size_below(k) for k in below}
        return sum(
            math.prod(sizes[k.name] for k in below if k.condition and k.condition.holds(value))
            for value in knob.values
        )

    def _grid_below(self, setting: dict[str, Value], knobs: tuple[Knob, ...]) -> Iterator[Setting]:
        """Yield every setting of the space that extends a partial setting by values of `knobs`."""
        if not knobs:
            yield setting
            return
        for value in knobs[0].values:
            longer = {**setting, knobs[0].name: value}
            if all(self._may_be(k, longer) for k in self.knobs if k.condition):
                yield from self._grid_below(longer, knobs[1:])

    def _may_be(self, knob: Knob, setting: Setting) -> bool:
        """Return whether a knob may have its value in a partial setting; missing knobs do not matter."""
        if setting.get(knob.name, knob.default) == knob.default:
            return True
        while (condition := knob.condition) is not None and condition.knob in setting:
            if not condition.holds(setting[condition.knob]):
                return False
            knob = self.knob(condition.knob)
        return True

    def check_named(self, setting: Setting) -> None:
        """Check the knobs that a setting names, and their values. Raises UnknownKnob, OutOfRange."""
        for name, value in setting.items():
            self.knob(name).index(value)

    def _check_values(self, setting: Setting) -> None:
        """Raise if a knob or a value is not in the space, or a knob has no value in the setting."""
        self.check_named(setting)
        missing = [k.name for k in self.knobs if k.name not in setting]
        if missing:
            raise UnknownKnob(
                f"the setting has no value for {', '.join(missing)}",
                hint="give every knob a value",
            )


def render_setting(setting: Setting) -> str:
    """Return a setting as one short line: `gpu.clock_mhz=1005 batch_size=8`."""
    return " ".join(f"{name}={value}" for name, value in setting.items()) or "(nothing to set)"
