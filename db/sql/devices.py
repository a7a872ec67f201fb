"""Devices over SQLAlchemy."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from sqlalchemy import Text, bindparam, cast, delete, func, insert, select, text, update

from db import refusals
from db.schema import AppliedRow, DeviceRow, StudyDeviceRow, WorkloadVersionRow
from db.sql.bus import SqlBus
from db.sql.database import Database, insert_into, put
from db.sql.rows import APPLIED, DEVICES, described, device_values
from tuner.core import Applied, Device, Notice, Topic

SEEN = text(
    "UPDATE devices SET seen_at = seen.at FROM (SELECT id, at FROM unnest(CAST(:ids AS text[]), "
    "CAST(:ats AS timestamptz[])) AS heard(id, at) ORDER BY id) AS seen WHERE devices.id = seen.id"
)
"""Ten thousand devices at once, in one order: two processes must not wait for each other."""
LATEST = AppliedRow.id.desc()
AS_TEXT = DEVICES.all.add_columns(cast(DeviceRow.description, Text).label("text"))
"""Devices with their descriptions as text: there are few kinds, and each is decoded once."""


class SqlDevices:
    """Devices in a database, and what was applied to them."""

    def __init__(self, database: Database, bus: SqlBus) -> None:
        self._database, self._bus = database, bus

    def put(self, device: Device) -> None:
        """Store a device, replacing its former description."""
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
        return DEVICES.read(row, **described(json.loads(row.text)))

    def agent(self, device: str) -> str:
        """Return the agent that registered a device. Raises NotFound."""
        with self._database.look() as connection:
            agent = connection.scalar(select(DeviceRow.agent).where(DeviceRow.id == device))
        if agent is None:
            raise refusals.no_device(device)
        return agent

    def list(self) -> Sequence[Device]:
        """Return all devices by id."""
        with self._database.look() as connection:
            rows = connection.execute(AS_TEXT).all()
        texts = {row.text for row in rows}
        fields = {text: described(json.loads(text)) for text in texts}
        devices = (DEVICES.read(row, **fields[row.text]) for row in rows)
        return tuple(sorted(devices, key=lambda device: device.id))

    def apply(self, applied: Applied) -> None:
        """Note what a device is set to, where that differs from the last note; tell other processes."""
        own = APPLIED.all.where(AppliedRow.device == applied.device)
        with self._database.write() as connection:
            # Two notes at once wait for each other on the device's row, where it has one.
            connection.execute(
                select(DeviceRow.id).where(DeviceRow.id == applied.device).with_for_update()
            )
            last = connection.execute(own.order_by(LATEST).limit(1)).first()
            if last is not None and replace(APPLIED.read(last), at=applied.at) == applied:
                return
            connection.execute(insert(AppliedRow).values(APPLIED.values(applied)))
            self._bus.announce(connection, Notice(Topic.DEVICES, devices=(applied.device,)))

    def standing(self) -> Mapping[str, Applied]:
        """Return what each device is set to, by its id; without devices that have no data."""
        latest = select(func.max(AppliedRow.id)).group_by(AppliedRow.device)
        with self._database.look() as connection:
            rows = connection.execute(APPLIED.all.where(AppliedRow.id.in_(latest))).all()
        return {row.device: APPLIED.read(row) for row in rows}

    def applied(self, device: str, since: datetime, last: int) -> Sequence[Applied]:
        """Return what was applied to a device since a time, and the setting before it, oldest first."""
        own = APPLIED.all.where(AppliedRow.device == device).order_by(LATEST)
        with self._database.look() as connection:
            rows = list(connection.execute(own.where(AppliedRow.at >= since).limit(last)))
            if len(rows) < last:
                rows += connection.execute(own.where(AppliedRow.at < since).limit(1))
        return tuple(APPLIED.read(row) for row in reversed(rows))

    def refuse(self, device: str, why: str) -> None:
        """Note why a device takes no orders; empty: it takes them."""
        with self._database.act() as connection:
            connection.execute(update(DeviceRow).where(DeviceRow.id == device).values(unable=why))

    def refusals(self, devices: Collection[str] | None = None) -> Mapping[str, str]:
        """Return why (these) devices take no orders, by id; without those that do and unknown ones."""
        query = select(DeviceRow.id, DeviceRow.unable).where(DeviceRow.unable != "")
        if devices is not None:
            query = query.where(DeviceRow.id.in_(devices))
        with self._database.look() as connection:
            return {row.id: row[1] for row in connection.execute(query)}

    def heard_at(self) -> Mapping[str, datetime]:
        """Return when each device was last heard of, by its id, as it was stored."""
        with self._database.look() as connection:
            query = select(DeviceRow.id, DeviceRow.seen_at)
            return {row.id: row[1] for row in connection.execute(query)}

    def seen(self, at: Mapping[str, datetime]) -> None:
        """Note when devices were last heard of; unknown ones are left out."""
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
                # In one order: two processes must not wait for each other.
                [{"device": name, "at": at[name]} for name in sorted(at)],
            )

    def forget(self, device: str) -> None:
        """Remove a device and what was applied to it. Raises NotFound, DeviceBusy."""
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
