"""The studies that a fleet file declares, on the registered devices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields

from tuner.core import ConfigError, Device, Exploration, InvalidInput, Study, TuningError, Written
from tuner.service.creation import about, drafted
from tuner.service.declared.file import ExplorationTable, FleetFile, GroupTable, StudyTable
from tuner.service.energy_price import EnergyPrice, in_energy
from tuner.study.loop import Loop
from tuner.study.maintenance_windows import check_windows
from tuner.typed_toml import TomlText, Way
from tuner.wire import StudyDraft

IN_A_STUDY = frozenset({"objective", "constraints", "terms", "choices", "exploration"})
"""Keys of a group that a device's own table may have, too."""


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
