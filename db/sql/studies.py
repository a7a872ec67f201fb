"""Studies over SQLAlchemy."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any, NoReturn

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    and_,
    bindparam,
    case,
    delete,
    exists,
    func,
    insert,
    literal,
    or_,
    select,
    update,
)

from db import refusals
from db.codec import STUDIES
from db.schema import (
    AppliedRow,
    DeviceRow,
    ReleaseRow,
    RevisionRow,
    StopRow,
    StudyDeviceRow,
    StudyRow,
    TrialRow,
)
from db.sql.database import Database, Refused
from db.sql.rows import APPLIED, Unparsed
from tuner.core import (
    ACTIVE,
    Conflict,
    Device,
    Phase,
    Revision,
    Situation,
    Study,
    StudyStamp,
    TrialState,
    Unreadable,
    UnreadableStudy,
)

DOCUMENT = Unparsed(RevisionRow.document).label("document")
"""A study's document as text: each is parsed separately, so that a damaged one affects no other."""
CURRENT = select(StudyRow.id, DOCUMENT).join(
    RevisionRow,
    (StudyRow.id == RevisionRow.study) & (StudyRow.revision == RevisionRow.revision),
)
"""The latest revision of studies."""
REVISIONS = select(RevisionRow.study, DOCUMENT, RevisionRow.who, RevisionRow.why, RevisionRow.at)
BY_AGE = (StudyRow.created_at, StudyRow.id)
ONE = CURRENT.where(StudyRow.id == bindparam("study"))
NAMED_AT_ONCE = 5_000
"""Number of devices named in one statement; databases accept some ten thousand values."""
LAST_NOTE = (
    select(func.max(AppliedRow.id))
    .where(AppliedRow.device == DeviceRow.id)
    .correlate(DeviceRow)
    .scalar_subquery()
)
SITUATION = (
    select(
        *APPLIED.columns,
        DOCUMENT,
        RevisionRow.at.label("since"),
        StudyRow.id.label("owner"),
        StudyRow.last_trial,
        exists(literal(1))
        .where(TrialRow.study == StudyRow.id, TrialRow.state == TrialState.RUNNING)
        .correlate(StudyRow)
        .label("running"),
        or_(
            exists(select(StopRow.id)),
            exists(select(ReleaseRow.device).where(ReleaseRow.device == bindparam("device"))),
        ).label("stopped"),
    )
    .select_from(DeviceRow)
    .outerjoin(AppliedRow, AppliedRow.id == LAST_NOTE)
    .outerjoin(StudyDeviceRow, and_(StudyDeviceRow.device == DeviceRow.id, StudyDeviceRow.active))
    .outerjoin(StudyRow, StudyRow.id == StudyDeviceRow.study)
    .outerjoin(
        RevisionRow,
        and_(RevisionRow.study == StudyRow.id, RevisionRow.revision == StudyRow.revision),
    )
    .where(DeviceRow.id == bindparam("device"))
)
"""The data from which a device's next order is chosen, in one statement. Built once: agents poll it."""


class Studies:
    """Studies in a database. Every revision is a document; fields that are searched are columns too."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, study: Study, who: str, why: str) -> None:
        """Store a new study as revision 1. Raises Conflict, DeviceBusy."""
        first = replace(study, revision=1)
        try:
            with self._database.write() as connection:
                connection.execute(
                    insert(StudyRow).values(
                        id=first.id,
                        workload=first.workload,
                        phase=first.phase.value,
                        revision=1,
                        last_trial=0,
                        created_at=first.created_at,
                    )
                )
                _keep(connection, first, who, why, first.created_at)
        except Refused as refused:
            self._explain(first, new=True, refused=refused)

    def get(self, study: str) -> Study:
        """Return the latest revision of a study. Raises NotFound, Unreadable."""
        with self._database.look() as connection:
            row = connection.execute(ONE, {"study": study}).first()
        if row is None:
            raise refusals.no_study(study)
        return self._decoded(row.id, row.document)

    def list(self, *, among: Collection[str] | None = None) -> Sequence[Study]:
        """Return the readable studies, oldest first: all, or those with these ids."""
        stored = self.stored(among=among)
        return tuple(study for study in stored if isinstance(study, Study))

    def stored(
        self,
        *,
        device: str | None = None,
        among: Collection[str] | None = None,
        active: bool = False,
    ) -> Sequence[Study | UnreadableStudy]:
        """Return all studies that match the arguments, oldest first, unreadable ones included."""
        query = CURRENT.add_columns(
            StudyRow.workload, StudyRow.phase, StudyRow.revision, StudyRow.created_at
        )
        if device is not None:
            query = query.where(StudyRow.id.in_(_of(device)))
        if among is not None:
            query = query.where(StudyRow.id.in_(among))
        if active:
            query = query.where(StudyRow.phase.in_([phase.value for phase in ACTIVE]))
        with self._database.read() as connection:
            rows = connection.execute(query.order_by(*BY_AGE)).all()
            return tuple(self._study_of(connection, row) for row in rows)

    def stamps(self) -> Mapping[str, StudyStamp]:
        """Return the progress of each study by its id, oldest first."""
        running = (
            select(TrialRow.study, func.count().label("running"))
            .where(TrialRow.state == TrialState.RUNNING)
            .group_by(TrialRow.study)
            .subquery()
        )
        query = (
            select(
                StudyRow.id,
                StudyRow.created_at,
                StudyRow.revision,
                StudyRow.last_trial,
                func.coalesce(running.c.running, 0),
            )
            .outerjoin(running, running.c.study == StudyRow.id)
            .order_by(*BY_AGE)
        )
        with self._database.look() as connection:
            return {name: StudyStamp(*fields) for name, *fields in connection.execute(query)}

    def _ids(self, *which: ColumnElement[bool]) -> Sequence[str]:
        """Return the ids of the studies that match all conditions, oldest first."""
        with self._database.look() as connection:
            query = select(StudyRow.id).where(*which).order_by(*BY_AGE)
            return tuple(connection.scalars(query).all())

    def of(self, device: str) -> Study | None:
        """Return the active study that owns a device, None if there is none or it cannot be read."""
        with self._database.look() as connection:
            row = connection.execute(
                CURRENT.join(StudyDeviceRow, StudyDeviceRow.study == StudyRow.id).where(
                    StudyDeviceRow.device == device, StudyDeviceRow.active
                )
            ).first()
        with suppress(Unreadable):
            return None if row is None else self._decoded(row.id, row.document)
        return None

    def situation(self, device: str) -> Situation:
        """Return the data from which a device's next order is chosen. Raises NotFound."""
        with self._database.look() as connection:
            row = connection.execute(SITUATION, {"device": device}).first()
        if row is None:
            raise refusals.no_device(device)
        study, unreadable = None, ""
        try:
            study = None if row.document is None else self._decoded(row.owner, row.document)
        except Unreadable as error:
            unreadable = str(error)
        return Situation(
            applied=None if row.level is None else APPLIED.read(row),
            study=study,
            since=row.since,
            trials=row.last_trial or 0,
            running=row.running,
            stopped=row.stopped,
            unreadable=unreadable,
        )

    def windows_s(self, devices: Collection[str]) -> Mapping[str, float]:
        """Return the window in seconds of each of these devices that has an active study."""
        stated = self._stated(RevisionRow.document["terms"]["window_s"].as_string())
        query = (
            CURRENT.with_only_columns(StudyDeviceRow.device, stated.label("window_s"))
            .join(StudyDeviceRow, StudyDeviceRow.study == StudyRow.id)
            .where(StudyDeviceRow.active)
        )
        named, by_device = list(devices), dict[str, float]()
        with self._database.read() as connection:
            for first in range(0, len(named), NAMED_AT_ONCE):
                own = StudyDeviceRow.device.in_(named[first : first + NAMED_AT_ONCE])
                for row in connection.execute(query.where(own)):
                    with suppress(TypeError, ValueError):  # the study cannot be read
                        by_device[row[0]] = float(row.window_s)
        return by_device

    def phases(self) -> Mapping[str, tuple[Phase, int]]:
        """Return the phase and revision of each study by its id, oldest first."""
        query = select(StudyRow.id, StudyRow.phase, StudyRow.revision).order_by(*BY_AGE)
        with self._database.look() as connection:
            rows = connection.execute(query)
            return {row.id: (Phase(row.phase), row.revision) for row in rows}

    def ids(
        self,
        device: str | None = None,
        workload: str | None = None,
        phase: str | None = None,
        group: str | None = None,
    ) -> Sequence[str]:
        """Return the ids of the studies that match the arguments, oldest first."""
        which: list[ColumnElement[bool]] = []
        if device is not None:
            which.append(StudyRow.id.in_(_of(device)))
        if workload is not None:
            which.append(StudyRow.workload == workload)
        if phase is not None:
            which.append(StudyRow.phase == phase)
        if group is not None:
            named = self._stated(RevisionRow.document["group"].as_string()) == group
            which.append(StudyRow.id.in_(CURRENT.with_only_columns(StudyRow.id).where(named)))
        return self._ids(*which)

    def holding_like(self, device: Device, most: int) -> Sequence[str]:
        """Return the newest studies that hold on a device with the same board, workload and versions."""
        names = ("board", "driver", "workload", "workload_version")
        query = (
            select(StudyRow.id)
            .join(StudyDeviceRow, StudyDeviceRow.study == StudyRow.id)
            .join(DeviceRow, DeviceRow.id == StudyDeviceRow.device)
            .where(StudyRow.phase == Phase.HOLDING.value)
            .where(*(getattr(DeviceRow, name) == getattr(device, name) for name in names))
            .group_by(StudyRow.id)
            .order_by(StudyRow.created_at.desc(), StudyRow.id)
        )
        with self._database.look() as connection:
            return tuple(connection.scalars(query.limit(most)))

    def revise(self, study: Study, who: str, why: str, at: datetime) -> Study:
        """Store the next revision and return it. Raises NotFound, Conflict, DeviceBusy."""
        following = replace(study, revision=study.revision + 1)
        try:
            with self._database.write() as connection:
                changed = connection.scalar(
                    update(StudyRow)
                    .where(StudyRow.id == study.id, StudyRow.revision == study.revision)
                    .values(
                        revision=following.revision,
                        phase=following.phase.value,
                        workload=following.workload,
                    )
                    .returning(StudyRow.id)
                )
                if changed is None:
                    query = select(StudyRow.revision).where(StudyRow.id == study.id)
                    stored = connection.scalar(query)
                    if stored is None:
                        raise refusals.no_study(study.id)
                    raise refusals.revised_since(study.id, study.revision, stored)
                _keep(connection, following, who, why, at)
        except Refused as refused:
            self._explain(following, new=False, refused=refused)
        return following

    def revisions(self, study: str) -> Sequence[Revision]:
        """Return every revision, oldest first. Raises NotFound."""
        query = REVISIONS.where(RevisionRow.study == study).order_by(RevisionRow.revision)
        with self._database.look() as connection:
            rows = connection.execute(query).all()
        if not rows:
            raise refusals.no_study(study)
        return tuple(self._to_revision(row) for row in rows)

    def latest(self, study: str) -> Revision:
        """Return the latest revision. Raises NotFound."""
        query = REVISIONS.where(RevisionRow.study == study).order_by(RevisionRow.revision.desc())
        with self._database.look() as connection:
            row = connection.execute(query.limit(1)).first()
        if row is None:
            raise refusals.no_study(study)
        return self._to_revision(row)

    def end_unreadable(self, study: UnreadableStudy, who: str, why: str, at: datetime) -> None:
        """End a study that cannot be read, and free its devices.

        Its last revision wraps the unread document: no later release holds again what was ended.

        Raises:
            Conflict: the study was changed since it was read.
        """
        following = study.revision + 1
        with self._database.write() as connection:
            unread = connection.scalar(
                select(DOCUMENT).where(
                    RevisionRow.study == study.id, RevisionRow.revision == study.revision
                )
            )
            changed = connection.scalar(
                update(StudyRow)
                .where(StudyRow.id == study.id, StudyRow.revision == study.revision)
                .values(revision=following, phase=Phase.STOPPED.value)
                .returning(StudyRow.id)
            )
            if changed is None:
                raise refusals.revised_since(study.id, study.revision, following)
            text = unread.decode(errors="replace") if isinstance(unread, bytes) else unread
            row = insert(RevisionRow).values(study=study.id, revision=following)
            connection.execute(row.values(document={"unread": text}, who=who, why=why, at=at))
            own = update(StudyDeviceRow).where(StudyDeviceRow.study == study.id)
            connection.execute(own.values(active=False))

    def delete(self, study: str) -> None:
        """Remove an inactive study with its dependent rows. Raises NotFound, Conflict."""
        own = StudyRow.id == study
        with self._database.write() as connection:
            phase = connection.scalar(select(StudyRow.phase).where(own).with_for_update())
            if phase is None:
                raise refusals.no_study(study)
            if Phase(phase) in ACTIVE:
                raise refusals.still_active(study, phase)
            connection.execute(delete(StudyRow).where(own))

    def _to_revision(self, row: Row[str, str, str, str, datetime]) -> Revision:
        """Return the revision in a row. Raises Unreadable."""
        study = self._decoded(row[0], row.document)
        return Revision(study=study, who=row.who, why=row.why, at=row.at)

    def _decoded(self, study: str, document: str | bytes) -> Study:
        """Return the study of a document. Raises Unreadable: it is damaged, or of a newer release."""
        with self._database.reading(f"study {study!r}"):
            return STUDIES.decode(json.loads(document))

    def _study_of(self, connection: Connection, row: Row[Any]) -> Study | UnreadableStudy:
        """Return the study of a row; if its document cannot be read, an UnreadableStudy of its columns."""
        try:
            return self._decoded(row.id, row.document)
        except Unreadable as error:
            own = select(StudyDeviceRow.device).where(StudyDeviceRow.study == row.id)
            return UnreadableStudy(
                id=row.id,
                devices=tuple(connection.scalars(own.order_by(StudyDeviceRow.device))),
                workload=row.workload,
                phase=Phase(row.phase) if row.phase in set(Phase) else Phase.STOPPED,
                revision=row.revision,
                created_at=row.created_at,
                error=str(error),
            )

    def _explain(self, study: Study, *, new: bool, refused: Refused) -> NoReturn:
        """Raise the TuningError that explains why a study could not be stored."""
        with self._database.read() as connection:
            stored = connection.scalar(select(StudyRow.id).where(StudyRow.id == study.id))
            if new and stored is not None:
                raise refusals.id_taken(study.id) from refused
            busy = connection.execute(
                select(StudyDeviceRow.device, StudyDeviceRow.study)
                .where(
                    StudyDeviceRow.active,
                    StudyDeviceRow.device.in_(study.devices),
                    StudyDeviceRow.study != study.id,
                )
                .order_by(StudyDeviceRow.device)
            ).first()
        if busy is not None:
            raise refusals.device_busy(*busy) from refused
        raise Conflict(
            f"study {study.id!r} conflicted with another study that no longer exists",
            hint="repeat the change",
        ) from refused

    def _stated(self, value: ColumnElement[str]) -> ColumnElement[str]:
        """Return an SQL value of the document, NULL if the document is not JSON; SQLite fails at it."""
        sqlite = self._database.engine.dialect.name == "sqlite"
        return case((func.json_valid(RevisionRow.document) == 1, value)) if sqlite else value


def _of(device: str) -> Select[str]:
    """Return the statement that selects the ids of a device's studies."""
    return select(StudyDeviceRow.study).where(StudyDeviceRow.device == device)


def _keep(connection: Connection, study: Study, who: str, why: str, at: datetime) -> None:
    """Store a revision and claim its devices."""
    row = insert(RevisionRow).values(study=study.id, revision=study.revision)
    connection.execute(row.values(document=STUDIES.encode(study), who=who, why=why, at=at))
    connection.execute(delete(StudyDeviceRow).where(StudyDeviceRow.study == study.id))
    claims = [
        {"study": study.id, "device": device, "active": study.active}
        # Always in the same order, so that two transactions cannot deadlock.
        for device in sorted(study.devices)
    ]
    connection.execute(insert(StudyDeviceRow), claims)
