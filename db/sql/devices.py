"""Devices over SQLAlchemy."""

from __future__ import annotations

import json
import typing
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from sqlalchemy import Text, bindparam, cast, delete, func, insert, select, text, update

from db import refusals
from db.codec import encode_setting
from db.schema import AppliedRow, DeviceRow, StudyDeviceRow, WorkloadVersionRow
from db.sql.bus import SqlBus
from db.sql.database import Database, insert_into
from db.sql.rows import applied_of, described, device_of, device_values, to_device
from tuner.core import Applied, Device, Notice, Topic

SEEN = text(
    "UPDATE devices SET seen_at = told.at FROM (SELECT id, at FROM unnest(CAST(:ids AS text[]), "
    "CAST(:ats AS timestamptz[])) AS heard(id, at) ORDER BY id) AS told WHERE devices.id = told.id"
)
"""Ten thousand devices at once, in one order: two processes must not wait for each other."""
NOTE = AppliedRow.__table__.c
LATEST = AppliedRow.id.desc()
AS_TEXT = select(
    *(column for column in DeviceRow.__table__.c if column.name != "description"),
    cast(DeviceRow.description, Text).label("text"),
)
"""Devices with their descriptions as text: there are few kinds, and each is decoded once."""


class SqlDevices:
    """Devices in a database, and what was applied to them."""

    def __init__(self, database: Database, bus: SqlBus) -> None:
        self._database, self._bus = database, bus

    def put(self, device: Device) -> None:
        """Store a device, replacing its former description."""
        values = device_values(device)
        with self._database.write() as session:
            session.execute(
                insert_into(session, WorkloadVersionRow)
                .values(
                    workload=device.workload,
                    version=device.workload_version,
                    first_seen_at=device.seen_at,
                )
                .on_conflict_do_nothing()
            )
            session.execute(
                insert_into(session, DeviceRow)
                .values(id=device.id, **values)
                .on_conflict_do_update(index_elements=[DeviceRow.id], set_=values)
            )

    def get(self, device: str) -> Device:
        """Return a device. Raises NotFound."""
        with self._database.read() as session:
            row = session.get(DeviceRow, device)
            if row is None:
                raise refusals.no_device(device)
            return to_device(row)

    def agent(self, device: str) -> str:
        """Return the agent that registered a device. Raises NotFound."""
        with self._database.look() as connection:
            found = connection.scalar(select(DeviceRow.agent).where(DeviceRow.id == device))
        if found is None:
            raise refusals.no_device(device)
        return found

    def list(self) -> Sequence[Device]:
        """Return all devices by id."""
        with self._database.look() as connection:
            rows = connection.execute(AS_TEXT).all()
        texts = {row.text for row in rows}
        fields = {text: described(json.loads(text)) for text in texts}
        devices = (device_of(typing.cast("DeviceRow", row), fields[row.text]) for row in rows)
        return tuple(sorted(devices, key=lambda device: device.id))

    def apply(self, applied: Applied) -> None:
        """Note what a device is set to, where that differs from the last note; tell other processes."""
        own = AppliedRow.device_id == applied.device
        with self._database.write() as session:
            # Two notes at once wait for each other on the device's row, where it has one.
            session.execute(
                select(DeviceRow.id).where(DeviceRow.id == applied.device).with_for_update()
            )
            last = session.execute(select(*NOTE).where(own).order_by(LATEST).limit(1)).first()
            if last is not None and applied_of(applied.device, last, applied.at) == applied:
                return
            session.execute(
                insert(AppliedRow).values(
                    device_id=applied.device,
                    setting=encode_setting(applied.setting),
                    level=applied.level.value,
                    at=applied.at,
                    study_id=applied.study,
                    revision=applied.revision,
                )
            )
            self._bus.announce(session, Notice(Topic.DEVICES, devices=(applied.device,)))

    def standing(self) -> Mapping[str, Applied]:
        """Return what each device is set to, by its id; without those of which nothing is known."""
        latest = select(func.max(AppliedRow.id)).group_by(AppliedRow.device_id)
        with self._database.read() as session:
            rows = session.execute(select(*NOTE).where(AppliedRow.id.in_(latest))).all()
            return {row.device_id: applied_of(row.device_id, row, row.at) for row in rows}

    def refuse(self, device: str, why: str) -> None:
        """Note why a device takes no orders; empty: it takes them."""
        with self._database.write() as session:
            session.execute(update(DeviceRow).where(DeviceRow.id == device).values(unable=why))

    def refusals(self, devices: Collection[str] | None = None) -> Mapping[str, str]:
        """Return why (these) devices take no orders, by id; without those that do and unknown ones."""
        asked = select(DeviceRow.id, DeviceRow.unable).where(DeviceRow.unable != "")
        if devices is not None:
            asked = asked.where(DeviceRow.id.in_(devices))
        with self._database.read() as session:
            return {row.id: row[1] for row in session.execute(asked)}

    def heard_at(self) -> Mapping[str, datetime]:
        """Return when each device was last heard of, by its id, as it was stored."""
        with self._database.read() as session:
            asked = select(DeviceRow.id, DeviceRow.seen_at)
            return {row.id: row[1] for row in session.execute(asked)}

    def seen(self, at: Mapping[str, datetime]) -> None:
        """Note when devices were last heard of; unknown ones are left out."""
        if not at:
            return
        with self._database.write() as session:
            if session.get_bind().dialect.name == "postgresql":
                session.execute(SEEN, {"ids": sorted(at), "ats": [at[name] for name in sorted(at)]})
                return
            session.connection().execute(
                update(DeviceRow)
                .where(DeviceRow.id == bindparam("device"))
                .values(seen_at=bindparam("at")),
                # In one order: two processes must not wait for each other.
                [{"device": name, "at": at[name]} for name in sorted(at)],
            )

    def forget(self, device: str) -> None:
        """Remove a device and what was applied to it. Raises NotFound, DeviceBusy."""
        with self._database.write() as session:
            row = session.get(DeviceRow, device, with_for_update=True)
            if row is None:
                raise refusals.no_device(device)
            owner = session.scalar(
                select(StudyDeviceRow.study_id).where(
                    StudyDeviceRow.device_id == device, StudyDeviceRow.active
                )
            )
            if owner is not None:
                raise refusals.device_busy(device, owner)
            session.execute(delete(AppliedRow).where(AppliedRow.device_id == device))
            session.delete(row)
