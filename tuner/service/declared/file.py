"""A fleet file: groups of devices, and the studies that it declares on the registered devices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, make_dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Literal, get_type_hints

from pydantic import Field

from tuner.core import (
    BudgetTerms,
    ConfigError,
    Device,
    Exploration,
    HourRow,
    InvalidInput,
    Priority,
    Study,
    Terms,
    TuningError,
    Value,
    Watts,
    Written,
)
from tuner.service.creation import about, drafted
from tuner.service.energy_price import EnergyPrice, in_energy
from tuner.study.exploring import check_windows
from tuner.study.loop import Loop
from tuner.typed_toml import Filled, Table, TomlText, Way
from tuner.wire import BudgetDraft, StudyDraft

if TYPE_CHECKING:
    OmittableLimits = Table
else:
    OmittableLimits = make_dataclass(
        "OmittableLimits",
        [(n, k | None, None) for n, k in get_type_hints(Exploration, include_extras=True).items()],
        bases=(Table,), frozen=True, slots=True, kw_only=True,
    )  # fmt: skip

IN_A_STUDY = frozenset({"objective", "constraints", "terms", "choices", "exploration"})
"""Keys of a group that a device's own table may have, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplorationTable(OmittableLimits):
    """When and how much studies may explore; omitted keys are those of the enclosing table.

    `fixed` are the knobs that stay at their default.
    """

    fixed: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        self.over(Exploration())

    def within(self, inner: ExplorationTable) -> ExplorationTable:
        """Return this table, overridden by the keys of an inner one."""
        values = {f.name: getattr(inner, f.name) for f in fields(inner)}
        return replace(self, **{n: value for n, value in values.items() if value is not None})

    def over(self, present: Exploration) -> Exploration:
        """Return the limits of this table; without `frozen` a present freeze stays."""
        values = {f.name: getattr(self, f.name) for f in fields(Exploration)}
        named = {n: value for n, value in values.items() if value is not None}
        return Exploration(**{"frozen": present.frozen, **named})


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyTable(Table):
    """The keys in which one device's study differs from those of its group."""

    device: Filled
    objective: str | None = None
    constraints: tuple[str, ...] | None = None
    terms: Terms | None = None
    choices: dict[str, tuple[Value, ...]] | None = None
    exploration: ExplorationTable = ExplorationTable()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTable(Table, Written):
    """Devices selected by their fields and labels, and the study of each.

    `select` has patterns (`A100*`) by field or label. All of them must match; of a list, any one. With
    `together` one study has all the devices. With the mode `observe` they have no study.
    """

    name: Filled = field()  # the base's default would be an empty name
    select: dict[str, str | tuple[str, ...]]
    mode: Literal["tune", "observe"] = "tune"
    together: bool = False
    choices: dict[str, tuple[Value, ...]] = field(default_factory=dict)
    conditions: dict[str, str] = field(default_factory=dict)
    exploration: ExplorationTable = ExplorationTable()
    studies: Annotated[tuple[StudyTable, ...], Field(alias="study")] = ()

    def selects(self, device: Device) -> bool:
        """Return whether a device belongs to the group."""
        return all(
            (trait := device.trait(name)) is not None
            and any(
                fnmatchcase(trait, p)
                for p in ([patterns] if isinstance(patterns, str) else patterns)
            )
            for name, patterns in self.select.items()
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetTable(Table, BudgetTerms):
    """Devices that share watts, with the keys of `budget set`: one of `watts`, `rows` and `series`."""

    name: Filled = field()  # the base's default would be an empty name
    select: dict[str, str | tuple[str, ...]]
    watts: Watts | None = None
    rows: tuple[HourRow, ...] = ()
    time_zone: str = "UTC"
    priorities: dict[str, Priority] = field(default_factory=dict)

    def draft(self) -> BudgetDraft:
        """Return the group as an operator's draft."""
        select = {n: (p,) if isinstance(p, str) else p for n, p in self.select.items()}
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "name"}
        return BudgetDraft(**{**values, "select": select})


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetFile(Table):
    """A whole fleet: limits of exploring for all its studies, groups of devices, and shared watts."""

    exploration: ExplorationTable = ExplorationTable()
    groups: Annotated[tuple[GroupTable, ...], Field(alias="group")] = ()
    budgets: Annotated[tuple[BudgetTable, ...], Field(alias="budget")] = ()


@dataclass(frozen=True, slots=True)
class Declared:
    """A declared study, and its table of exploring.

    A present freeze stays unless the table has `frozen`.
    """

    study: Study
    exploration: ExplorationTable


@dataclass(frozen=True)
class Desired:
    """All studies of a file, and the names of the groups that select no device."""

    studies: Sequence[Declared]
    empty: Sequence[str]
    observed: Mapping[str, str] = field(default_factory=dict)
    """Each observed device's group, by the device's id."""


def desired(loop: Loop, price: EnergyPrice, text: TomlText, file: FleetFile) -> Desired:
    """Return the studies that a file declares.

    Raises:
        ConfigError: a key, a value or a study is not valid; the error names line and key.
    """
    devices = {device.id: device for device in loop.store.devices.list()}
    _refuse_repeats(text, file)
    _refuse_windows(text, file)
    studies: list[Declared] = []
    taken: dict[str, str] = {}
    empty, observed = list[str](), dict[str, str]()
    for at, group in enumerate(file.groups):
        members = [device for device in devices.values() if group.selects(device)]
        for device in members:
            if device.id in taken:
                other = taken[device.id]
                raise text.refuses(
                    ("group", at, "select"),
                    f"{device.id} is in the group {other!r} already",
                    "select it in one of them",
                )
            taken[device.id] = group.name
        if not members:
            empty.append(group.name)
        if group.mode == "observe":
            _require_observed(text, at, members)
            observed |= {device.id: group.name for device in members}
            continue
        studies += _of_group(loop, price, text, file, at, members)
    return Desired(studies, empty, observed)


def _require_observed(text: TomlText, at: int, members: Sequence[Device]) -> None:
    """Raise ConfigError if an agent can set a device of a group that is to be only observed."""
    for device in members:
        if not device.observed:
            raise text.refuses(
                ("group", at, "mode"),
                f"{device.id} is not only observed: its agent has an actuator for it",
                "write `observe = true` in its [[device]] table in agent.toml, and restart the agent",
            )


def _refuse_repeats(text: TomlText, file: FleetFile) -> None:
    """Refuse groups of the same name, and groups with an empty `select`."""
    names = [group.name for group in file.groups]
    for at, group in enumerate(file.groups):
        if group.name in names[:at]:
            raise text.refuses(("group", at, "name"), f"name {group.name!r} is used twice")
        if not group.select:
            hint = 'write what its devices have, like { board = "A100*" }; { id = "*" } selects all'
            raise text.refuses(("group", at, "select"), "select is empty", hint)


def _refuse_windows(text: TomlText, file: FleetFile) -> None:
    """Refuse windows that cannot open; the error names their line in the file."""
    tables: list[tuple[Way, ExplorationTable]] = [((), file.exploration)]
    for at, group in enumerate(file.groups):
        tables.append((("group", at), group.exploration))
        tables += [
            (("group", at, "study", number), study.exploration)
            for number, study in enumerate(group.studies)
        ]
    for way, table in tables:
        try:
            check_windows(table.over(Exploration()))
        except InvalidInput as error:
            key = "time_zone" if error.message.startswith("time_zone") else "windows"
            raise text.refuses((*way, "exploration", key), error.message, error.hint) from None


def _of_group(
    loop: Loop,
    price: EnergyPrice,
    text: TomlText,
    file: FleetFile,
    at: int,
    members: Sequence[Device],
) -> Iterator[Declared]:
    """Yield the studies of a group: one of all its devices with `together`, else one of each."""
    group, by_id = file.groups[at], {device.id: device for device in members}
    own = {table.device: number for number, table in enumerate(group.studies)}
    for name, number in own.items():
        if name not in by_id or group.together:
            why = (
                "its study has all of its devices" if group.together else "it is not in this group"
            )
            raise text.refuses(("group", at, "study", number, "device"), f"device {name!r}: {why}")
    teams = [list(members)] if group.together and members else [[device] for device in members]
    for team in teams:
        place = own.get(team[0].id)
        table = None if place is None else group.studies[place]
        exploration = file.exploration.within(group.exploration)
        if table is not None:
            exploration = exploration.within(table.exploration)
        try:
            draft = _draft(group, table, team, exploration)
            with about("objective"):
                draft = in_energy(draft, price, [m.name for d in team for m in d.metrics])
            yield Declared(drafted(loop, draft, by_id), exploration)
        except TuningError as error:
            raise _placed(text, error, at, place, table, team) from error


def _draft(
    group: GroupTable, table: StudyTable | None, team: Sequence[Device], limits: ExplorationTable
) -> StudyDraft:
    """Return the draft of one study. Raises ConfigError: a device lacks a knob of `fixed`."""
    own = table or StudyTable(device=team[0].id)
    choices = dict(group.choices if own.choices is None else own.choices)
    knobs = {knob.name: knob.default for knob in team[0].space.knobs}
    with about("exploration"):
        for name in limits.fixed or ():
            if name not in knobs:
                raise ConfigError(
                    f"fixed: {team[0].id} has no knob {name!r}",
                    hint=f"it has {', '.join(knobs) or 'none'}",
                )
            choices[name] = (knobs[name],)
    names = [field.name for field in fields(Written)]
    given = {n: value for n in names if (value := getattr(own, n, None)) is not None}
    return StudyDraft(
        **{n: getattr(group, n) for n in names} | given,
        devices=tuple(device.id for device in team),
        choices=choices,
        conditions=group.conditions,
        exploration=limits.over(Exploration()),
        group=group.name,
    )


def _placed(
    text: TomlText,
    error: TuningError,
    at: int,
    number: int | None,
    table: StudyTable | None,
    team: Sequence[Device],
) -> ConfigError:
    """Return the error of a study with the line and the key of the file that caused it."""
    key = error.key or "select"
    own = (
        table is not None
        and key in IN_A_STUDY
        and getattr(table, key) not in (None, ExplorationTable())
    )
    way: Way = ("group", at, key)
    if own and number is not None:
        way = ("group", at, "study", number, key)
    return text.refuses(way, f"{key} of {team[0].id}: {error.message}", error.hint)
