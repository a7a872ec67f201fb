"""Devices over SQLAlchemy."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import Row, bindparam, delete, func, insert, select, text, update

from db import refusals
from db.codec import Json
from db.schema import AppliedRow, DeviceRow, StudyDeviceRow, WorkloadVersionRow
from db.sql.bus import Bus
from db.sql.database import Database, insert_into, put
from db.sql.rows import APPLIED, DEVICES, Unparsed, described, device_values, readable
from tuner.core import Applied, Device, Notice, Topic
from tuner.rows import StoredRows

SEEN = text(
    "UPDATE devices SET seen_at = seen.at FROM (SELECT id, at FROM unnest(CAST(:ids AS text[]), "
    "CAST(:ats AS timestamptz[])) AS heard(id, at) ORDER BY id) AS seen WHERE devices.id = seen.id"
)
"""Updates ten thousand devices at once, sorted by id, so that two processes cannot deadlock."""
LATEST = AppliedRow.id.desc()
AS_TEXT = DEVICES.all.add_columns(Unparsed(DeviceRow.description).label("text"))
"""Devices with their descriptions as text: few differ, and each distinct one is decoded once."""


class Devices:
    """Devices in a database, and the settings applied to them."""

    def __init__(self, database: Database, bus: Bus) -> None:
        self._database, self._bus = database, bus

    def put(self, device: Device) -> None:
        """Store a device in place of its former description."""
        with self._database.write() as connection:
            connection.execute(
                insert_into(connection, WorkloadVersionRow)
                .values(
                    workload=device.workload,
                    version=device.workload_version,
                    first_seen_at=device.seen_at,
                )
                .on_conflict_do_nothing()
            )
            put(connection, DeviceRow, device_values(device))

    def get(self, device: str) -> Device:
        """Return a device. Raises NotFound."""
        with self._database.look() as connection:
            row = connection.execute(AS_TEXT.where(DeviceRow.id == device)).first()
        if row is None:
            raise refusals.no_device(device)
        with self._database.reading(f"device {device!r}"):
            return DEVICES.read(row, **described(json.loads(row.text)))

    def agent(self, device: str) -> str:
        """Return the agent that registered a device. Raises NotFound."""
        with self._database.look() as connection:
            agent = connection.scalar(select(DeviceRow.agent).where(DeviceRow.id == device))
        if agent is None:
            raise refusals.no_device(device)
        return agent

    def count(self, agent: str) -> int:
        """Return the number of devices that an agent has registered."""
        query = select(func.count()).where(DeviceRow.agent == agent)
        with self._database.look() as connection:
            return connection.scalar(query) or 0

    def list(self) -> StoredRows[Device]:
        """Return all devices, sorted by id."""
        fields = dict[str | bytes, Json]()

        def read(row: Row[Any]) -> Device:
            if row.text not in fields:
                fields[row.text] = described(json.loads(row.text))
            return DEVICES.read(row, **fields[row.text])

        rows = readable(self._database, AS_TEXT, DeviceRow.id, read)
        return StoredRows(sorted(rows, key=lambda device: device.id), rows.unread)

    def apply(self, applied: Applied) -> None:
        """Store the applied setting if it differs from the last one; notify other processes."""
        own = APPLIED.all.where(AppliedRow.device == applied.device)
        with self._database.write() as connection:
            # Concurrent calls for a device wait for each other on its row, if it has one.
            connection.execute(
                select(DeviceRow.id).where(DeviceRow.id == applied.device).with_for_update()
            )
            last = connection.execute(own.order_by(LATEST).limit(1)).first()
            if last is not None and replace(APPLIED.read(last), at=applied.at) == applied:
                return
            connection.execute(insert(AppliedRow).values(APPLIED.values(applied)))
            self._bus.announce(connection, Notice(Topic.DEVICES, devices=(applied.device,)))

    def standing(self) -> StoredRows[Applied]:
        """Return the last applied setting of each device that has one."""
        latest = select(func.max(AppliedRow.id)).group_by(AppliedRow.device)
        query = APPLIED.all.where(AppliedRow.id.in_(latest))
        return readable(self._database, query, AppliedRow.device, APPLIED.read)

    def applied(self, device: str, since: datetime, last: int) -> Sequence[Applied]:
        """Return up to `last` settings applied since a time, after the one in force then, oldest first."""
        own = APPLIED.all.where(AppliedRow.device == device).order_by(LATEST)
        with self._database.look() as connection:
            rows = list(connection.execute(own.where(AppliedRow.at >= since).limit(last)))
            if len(rows) < last:
                rows += connection.execute(own.where(AppliedRow.at < since).limit(1))
        return tuple(APPLIED.read(row) for row in reversed(rows))

    def refuse(self, device: str, why: str) -> None:
        """Store the reason why a device accepts no orders; empty if it accepts them."""
        with self._database.act() as connection:
            connection.execute(update(DeviceRow).where(DeviceRow.id == device).values(unable=why))

    def refusals(self, devices: Collection[str] | None = None) -> Mapping[str, str]:
        """Return the reason of each device that accepts no orders, by id. Without `devices`, of all."""
        query = select(DeviceRow.id, DeviceRow.unable).where(DeviceRow.unable != "")
        if devices is not None:
            query = query.where(DeviceRow.id.in_(devices))
        with self._database.look() as connection:
            return {row.id: row[1] for row in connection.execute(query)}

    def heard_at(self) -> Mapping[str, datetime]:
        """Return the stored time of the last contact with each device, by its id."""
        query = select(DeviceRow.id, DeviceRow.seen_at)
        return dict(readable(self._database, query, DeviceRow.id, tuple))

    def seen(self, at: Mapping[str, datetime]) -> None:
        """Store the times of the last contact with devices; unknown devices are ignored."""
        if not at:
            return
        with self._database.write() as connection:
            if connection.dialect.name == "postgresql":
                named = {"ids": sorted(at), "ats": [at[name] for name in sorted(at)]}
                connection.execute(SEEN, named)
                return
            connection.execute(
                update(DeviceRow)
                .where(DeviceRow.id == bindparam("device"))
                .values(seen_at=bindparam("at")),
                # Sorted, so that two processes cannot deadlock.
                [{"device": name, "at": at[name]} for name in sorted(at)],
            )

    def forget(self, device: str) -> None:
        """Remove a device and the settings applied to it. Raises NotFound, DeviceBusy."""
        own = DeviceRow.id == device
        with self._database.write() as connection:
            if connection.scalar(select(DeviceRow.id).where(own).with_for_update()) is None:
                raise refusals.no_device(device)
            owner = connection.scalar(
                select(StudyDeviceRow.study).where(
                    StudyDeviceRow.device == device, StudyDeviceRow.active
                )
            )
            if owner is not None:
                raise refusals.device_busy(device, owner)
            connection.execute(delete(AppliedRow).where(AppliedRow.device == device))
            connection.execute(delete(DeviceRow).where(own))
