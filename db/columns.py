"""Column types for values of the core that databases have no type for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TypeVar

from sqlalchemy import JSON, DateTime, Dialect, Double, String, TypeDecorator

from db.codec import Json, plan_document, plan_of
from tuner.compat import StrEnum
from tuner.core import Limit, Plan

Member = TypeVar("Member", bound=StrEnum)


class UtcDateTime(TypeDecorator[datetime]):
    """A moment in UTC. SQLite stores no zone: it is removed on writing and added again on reading."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Return the moment in UTC. Raises ValueError for a time without a zone."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"the time {value.isoformat()} has no zone")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Return the moment in UTC, with its zone."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Named(TypeDecorator[Member]):
    """A member of an enumeration, stored by its value."""

    impl = String
    cache_ok = True

    def __init__(self, kind: type[Member]) -> None:
        super().__init__()
        self.kind = kind

    def process_bind_param(self, value: Member | None, dialect: Dialect) -> str | None:
        """Return the text of a member."""
        return None if value is None else value.value

    def process_result_value(self, value: str | None, dialect: Dialect) -> Member | None:
        """Return the member of a text. Raises ValueError for a member of a newer release."""
        return None if value is None else self.kind(value)


class LimitText(TypeDecorator[Limit]):
    """A limit, as text that reads back exactly."""

    impl = String
    cache_ok = True

    def process_bind_param(self, value: Limit | None, dialect: Dialect) -> str | None:
        """Return the text of a limit."""
        return None if value is None else str(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Limit | None:
        """Return the limit of a text."""
        return None if value is None else Limit.parse(value)


class PlanDocument(TypeDecorator[Plan]):
    """A plan, as a JSON object."""

    impl = JSON(none_as_null=True)
    cache_ok = True

    def process_bind_param(self, value: Plan | None, dialect: Dialect) -> Json | None:
        """Return the object of a plan."""
        return None if value is None else plan_document(value)

    def process_result_value(self, value: Json | None, dialect: Dialect) -> Plan | None:
        """Return the plan of an object."""
        return None if value is None else plan_of(value)


class TextOrNull(TypeDecorator[str]):
    """A text, stored as null if empty."""

    impl = String
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Return the text, None for an empty one."""
        return value or None

    def process_result_value(self, value: str | None, dialect: Dialect) -> str:
        """Return the text, empty for null."""
        return value or ""


class OpenEnd(TypeDecorator[float]):
    """A bound, stored as null if infinite, because databases treat infinity differently."""

    impl = Double
    cache_ok = True

    def __init__(self, end: float) -> None:
        super().__init__()
        self.end = end

    def process_bind_param(self, value: float | None, dialect: Dialect) -> float | None:
        """Return the bound, None for an infinite one."""
        return value if value is not None and math.isfinite(value) else None

    def process_result_value(self, value: float | None, dialect: Dialect) -> float:
        """Return the bound, infinite for null."""
        return self.end if value is None else value


class CountsByNumber(TypeDecorator[Mapping[int, int]]):
    """A count for each number, stored as a JSON object, whose names are text."""

    impl = JSON
    cache_ok = True

    def process_result_value(
        self, value: Mapping[str, int] | None, dialect: Dialect
    ) -> Mapping[int, int]:
        """Return the counts by numbers."""
        return {int(number): count for number, count in (value or {}).items()}


class TextList(TypeDecorator[tuple[str, ...]]):
    """Texts in their order, stored as a JSON array."""

    impl = JSON
    cache_ok = True

    def process_result_value(self, value: list[str] | None, dialect: Dialect) -> tuple[str, ...]:
        """Return the texts."""
        return tuple(value or ())
