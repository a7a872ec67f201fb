"""A fleet file: groups of devices, and the studies of each group."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, make_dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Literal, get_type_hints

from pydantic import Field

from tuner.core import (
    BudgetTerms,
    Device,
    Exploration,
    HourRow,
    Priority,
    Terms,
    Value,
    Watts,
    Written,
)
from tuner.typed_toml import Filled, Table
from tuner.wire import BudgetDraft

if TYPE_CHECKING:
    OmittableLimits = Table
else:
    OmittableLimits = make_dataclass(
        "OmittableLimits",
        [(n, k | None, None) for n, k in get_type_hints(Exploration, include_extras=True).items()],
        bases=(Table,), frozen=True, slots=True, kw_only=True,
    )  # fmt: skip


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

    name: Filled
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

    name: Filled
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
