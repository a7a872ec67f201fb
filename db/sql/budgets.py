"""Groups that share a power budget over SQLAlchemy: documents, replaced only at their latest revision."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from pydantic import TypeAdapter
from sqlalchemy import Connection, CursorResult, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from db.schema import BudgetGroupRow, BudgetMemberRow
from db.sql.database import Database, Refused
from db.sql.rows import Unparsed, readable
from tuner.core import BudgetGroup, MemberRecord, NotFound, StaleRevision
from tuner.rows import StoredRows

Kept = TypeVar("Kept", BudgetGroup, MemberRecord)
GROUPS, MEMBERS = TypeAdapter(BudgetGroup), TypeAdapter(MemberRecord)
OF_GROUPS = select(Unparsed(BudgetGroupRow.document))
OF_MEMBERS = select(Unparsed(BudgetMemberRow.document))
"""Documents as text, so that a damaged one fails alone."""


class Budgets:
    """Groups that share a power budget, and their members, in a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def group(self, name: str) -> BudgetGroup:
        """Return a group. Raises NotFound."""
        with self._database.look() as connection:
            document = connection.scalar(OF_GROUPS.where(BudgetGroupRow.name == name))
        if document is None:
            raise NotFound(f"there is no budget {name!r}", hint="list them with `budget list`")
        with self._database.reading(f"budget {name!r}"):
            return GROUPS.validate_json(document, strict=True)

    def groups(self) -> StoredRows[BudgetGroup]:
        """Return all groups, sorted by name."""
        return self._documents(OF_GROUPS, BudgetGroupRow.name, GROUPS)

    def put_group(self, group: BudgetGroup) -> BudgetGroup:
        """Replace a group at its revision; return it with the next one. Raises StaleRevision."""
        after = replace(group, revision=group.revision + 1)
        values = {"name": after.name, "document": GROUPS.dump_python(after, mode="json")}
        self._put(BudgetGroupRow, BudgetGroupRow.name == group.name, values, after.revision)
        return after

    def forget_group(self, name: str) -> None:
        """Remove a group; do nothing if it does not exist."""
        with self._database.act() as connection:
            connection.execute(delete(BudgetGroupRow).where(BudgetGroupRow.name == name))

    def member(self, device: str) -> MemberRecord | None:
        """Return a device's membership, None if it has none."""
        with self._database.look() as connection:
            document = connection.scalar(OF_MEMBERS.where(BudgetMemberRow.device == device))
        with self._database.reading(f"the membership of {device!r}"):
            return None if document is None else MEMBERS.validate_json(document, strict=True)

    def members(self) -> StoredRows[MemberRecord]:
        """Return all memberships, released ones included, sorted by device."""
        return self._documents(OF_MEMBERS, BudgetMemberRow.device, MEMBERS)

    def put_member(self, member: MemberRecord) -> MemberRecord:
        """Replace a membership at its revision; return it with the next one. Raises StaleRevision."""
        after = replace(member, revision=member.revision + 1)
        values = {
            "device": after.device,
            "group": after.group,
            "document": MEMBERS.dump_python(after, mode="json"),
        }
        self._put(BudgetMemberRow, BudgetMemberRow.device == member.device, values, after.revision)
        return after

    def _documents(self, query: Any, key: Any, kind: TypeAdapter[Kept]) -> StoredRows[Kept]:  # noqa: ANN401
        """Return the documents of a query, sorted by key."""
        return readable(
            self._database, query, key, lambda row: kind.validate_json(row[0], strict=True)
        )

    def _put(self, table: Any, which: Any, values: dict[str, Any], revision: int) -> None:  # noqa: ANN401
        """Store a document as this revision. Raises StaleRevision unless it follows the stored one."""
        stale = StaleRevision("the budget was changed by another request", hint="try again")
        try:
            with self._database.write() as connection:
                if not _replaced(connection, table, which, values, revision):
                    raise stale
        except (Refused, IntegrityError):
            raise stale from None


def _replaced(
    connection: Connection,
    table: Any,  # noqa: ANN401  a mapped class
    which: Any,  # noqa: ANN401  a condition
    values: dict[str, Any],
    revision: int,
) -> bool:
    """Return whether the document was stored: revision 1 as a new row, a later one over its predecessor."""
    if revision == 1:
        connection.execute(insert(table).values(**values, revision=revision))
        return True
    changed = update(table).where(which, table.revision == revision - 1)
    result = connection.execute(changed.values(**values, revision=revision))
    return isinstance(result, CursorResult) and result.rowcount == 1
