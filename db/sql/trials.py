"""Trials and their leases over SQLAlchemy."""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from itertools import groupby
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    Text,
    UnaryExpression,
    bindparam,
    cast,
    exists,
    insert,
    literal,
    select,
    tuple_,
    update,
)
from sqlalchemy.sql.base import ReadOnlyColumnCollection

from db import refusals
from db.schema import LeaseRow, MeasurementRow, ReportRow, StudyRow, TrialRow, TrialStateRow
from db.sql.database import Database, Refused, insert_into
from db.sql.rows import LEASES, OUTCOMES, REPORTS, TRIALS
from db.sql.windows import AT_ONCE, OF_WINDOWS, keep_window, sampled, shown
from tuner.core import (
    ANYWHERE,
    Context,
    Lease,
    Measurement,
    Outcome,
    Phase,
    Plan,
    Report,
    Setting,
    SettingKey,
    Trial,
    TrialCare,
    TrialState,
    Unreadable,
    setting_key,
)
from tuner.rows import StoredRows

OF_DEVICE = LEASES.all.where(LeaseRow.device == bindparam("device"))
WHEN = (TrialRow.started_at, TrialRow.study, TrialRow.number)
ALL = TRIALS.all.add_columns(TrialRow.study.label("study"))
OF_STUDY = ALL.where(
    TrialRow.study == bindparam("study"), TrialRow.number >= bindparam("first")
).order_by(TrialRow.number)
"""Built once, like the following queries: the trials of a study are read at each of its steps."""
WINDOWS_OF_STUDY = OF_WINDOWS.where(
    MeasurementRow.study == bindparam("study"), MeasurementRow.trial >= bindparam("first")
)
WINDOWS_OF_TRIALS = OF_WINDOWS.where(
    tuple_(MeasurementRow.study, MeasurementRow.trial).in_(bindparam("trials", expanding=True))
)
RUNNING = TRIALS.all.where(
    TrialRow.study == bindparam("study"), TrialRow.state == TrialState.RUNNING
).order_by(TrialRow.number)
OF_TRIAL = (ReportRow.study == bindparam("study")) & (ReportRow.trial == bindparam("trial"))
ON_TRIAL = (
    select(*REPORTS.columns, *OUTCOMES.columns, ReportRow.id).where(OF_TRIAL).order_by(ReportRow.id)
)
WINDOWS_ON_TRIAL = OF_WINDOWS.join(ReportRow, MeasurementRow.report_id == ReportRow.id).where(
    OF_TRIAL
)
CHANGING = ("state", "attempt", "ended_at", "broke", "reason")
"""The fields that change after a trial has begun."""


class Trials:
    """Trials in a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(
        self,
        study: str,
        setting: Setting,
        phase: Phase,
        why: str,
        at: datetime,
        context: Context = ANYWHERE,
        seen: tuple[int, int] | None = None,
        device: str = "",
        plan: Plan | None = None,
    ) -> Trial:
        """Store a RUNNING trial under the next number and return it. Raises NotFound, StaleRevision."""
        as_seen = StudyRow.id == study
        if seen is not None:
            as_seen &= (StudyRow.revision == seen[0]) & (StudyRow.last_trial == seen[1])
        with self._database.write() as connection:
            # The counter's row is locked until the end: numbers are distinct and without gaps, and only
            # one of several tuners that decided from the same trials begins the next.
            number = connection.scalar(
                update(StudyRow)
                .where(as_seen)
                .values(last_trial=StudyRow.last_trial + 1)
                .returning(StudyRow.last_trial)
            )
            if number is None:
                stored = connection.scalar(select(StudyRow.id).where(StudyRow.id == study))
                raise refusals.no_study(study) if stored is None else refusals.begun_since(study)
            trial = Trial(
                number=number,
                setting=dict(setting),
                phase=phase,
                context=dict(context),
                device=device,
                plan=plan,
                started_at=at,
                why=why,
            )
            connection.execute(insert(TrialRow).values(study=study, **TRIALS.values(trial)))
            _keep_state(connection, study, trial, at)
        return trial

    def restart(self, study: str, number: int, at: datetime) -> Trial:
        """Count another attempt of a running trial. Raises NotFound, IllegalTransition."""
        with self._database.write() as connection:
            trial = _locked(connection, study, number).again()
            _change(connection, study, trial, at)
        return trial

    def end(self, study: str, number: int, outcome: Outcome, at: datetime) -> Trial:
        """Move a trial to its final state. Raises NotFound, IllegalTransition."""
        with self._database.write() as connection:
            trial = _locked(connection, study, number).ended(outcome, at)
            keep_window(connection, trial.measurement, study=study, trial=number)
            _change(connection, study, trial, at)
        return trial

    def list(self, study: str, first: int = 1) -> Sequence[Trial]:
        """Return the trials of a study by number, from `first` on; empty for an unknown study.

        Raises:
            Unreadable: a trial, its window or an estimate cannot be read.
        """
        # An ended trial never changes, so that the two statements agree.
        named = {"study": study, "first": first}
        with (
            self._database.look() as connection,
            self._database.reading(f"a trial of study {study!r}"),
        ):
            rows = connection.execute(OF_STUDY, named).all()
            windows = shown(connection, WINDOWS_OF_STUDY, named)
            return tuple(trial for _, trial in _trials(rows, windows))

    def stored(self, study: str) -> StoredRows[Trial]:
        """Return the trials of a study by number, and the reason for each that cannot be read."""
        return self._of(TrialRow.study == study)

    def tried(self, study: str, setting: Setting) -> Sequence[Trial]:
        """Return the readable trials of a study with a setting, by number; empty for an unknown study."""
        text, of_study = cast(TrialRow.setting, Text), TrialRow.study == study
        with self._database.look() as connection:  # few settings differ: each is decoded once
            texts = connection.scalars(select(text).where(of_study).distinct()).all()
        key = setting_key(setting)
        same = [text for text in texts if _key(text) == key]
        return self._of(of_study, text.in_(same)) if same else ()

    def _of(self, *which: ColumnElement[bool]) -> StoredRows[Trial]:
        """Return the trials that match all conditions, by number."""
        pairs = self._each(ALL.where(*which).order_by(TrialRow.number))
        return StoredRows((trial for _, trial in pairs), pairs.unread)

    def _each(self, query: Select[Any]) -> StoredRows[tuple[str, Trial]]:
        """Return the trials that a query selects, with their studies; read one by one if one is damaged."""
        with suppress(Unreadable):
            return StoredRows(self._read(query))
        with self._database.look() as connection:
            keys = query.with_only_columns(TrialRow.study, TrialRow.number)
            named = connection.execute(keys).all()
        pairs, unread = list[tuple[str, Trial]](), dict[str, str]()
        for study, number in named:
            own = ALL.where(TrialRow.study == study, TrialRow.number == number)
            try:
                pairs += self._read(own, f"trial {number} of study {study!r}")
            except Unreadable as error:
                unread[f"trial {number} of {study}"] = str(error)
        return StoredRows(pairs, unread)

    def _read(self, query: Select[Any], what: str = "a trial") -> Sequence[tuple[str, Trial]]:
        """Return the trials that a query selects, with their studies and windows. Raises Unreadable."""
        windows: dict[object, Measurement] = {}
        with self._database.look() as connection, self._database.reading(what):
            rows = connection.execute(query).all()
            ended = [(row.study, row.number) for row in rows if row.state.final]
            for first in range(0, len(ended), AT_ONCE):
                some = {"trials": ended[first : first + AT_ONCE]}
                windows |= shown(connection, WINDOWS_OF_TRIALS, some)
            return _trials(rows, windows)

    def latest(
        self,
        last: int,
        skip: int = 0,
        studies: Collection[str] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        state: TrialState | None = None,
        device: str | None = None,
    ) -> StoredRows[tuple[str, Trial]]:
        """Return trials with their studies, latest start first: of these studies, or of all."""
        which: list[ColumnElement[bool]] = []
        if studies is not None:
            which.append(TrialRow.study.in_(studies))
        if since is not None:
            which.append(TrialRow.started_at >= since)
        if until is not None:
            which.append(TrialRow.started_at < until)
        if state is not None:
            which.append(TrialRow.state == state)
        if device is not None:
            which.append(TrialRow.device.is_(None) | (TrialRow.device == device))
        if studies is None or (device is None and len(studies) > 1):
            query = ALL.where(*which).order_by(*_latest_first(TrialRow.__table__.c))
            return self._each(query.limit(last).offset(skip))
        # The trials of one device or study are gathered first. A walk back by time would pass the trials of
        # all others until it finds enough of a study that has been idle for long.
        own = select(*WHEN).where(*which).cte().prefix_with("MATERIALIZED")
        page = select(own).order_by(*_latest_first(own.c)).limit(last).offset(skip).subquery()
        same = (TrialRow.study == page.c.study) & (TrialRow.number == page.c.number)
        return self._each(ALL.join(page, same).order_by(*_latest_first(page.c)))

    def count(self, study: str) -> int:
        """Return the number of trials of a study; 0 for an unknown study."""
        with self._database.look() as connection:
            query = select(StudyRow.last_trial).where(StudyRow.id == study)
            return connection.scalar(query) or 0

    def running(self, study: str) -> Sequence[Trial]:
        """Return the running trials of a study, by number."""
        with self._database.look() as connection:
            rows = connection.execute(RUNNING, {"study": study}).all()
        return tuple(TRIALS.read(row, measurement=None) for row in rows)

    def at_work(self) -> Sequence[TrialCare]:
        """Return every running trial with the leases on it, by study and number."""
        own = (LeaseRow.study == TrialRow.study) & (LeaseRow.trial == TrialRow.number)
        reported = exists(literal(1)).where(
            ReportRow.study == TrialRow.study,
            ReportRow.trial == TrialRow.number,
            ReportRow.late.is_(False),
        )
        query = (
            select(
                TrialRow.study,
                TrialRow.number,
                TrialRow.attempt,
                reported.correlate(TrialRow).label("reported"),
                LeaseRow.token,
                LeaseRow.expires_at,
            )
            .outerjoin(LeaseRow, own)
            .where(TrialRow.state == TrialState.RUNNING)
            .order_by(TrialRow.study, TrialRow.number)
        )
        with self._database.look() as connection:
            rows = connection.execute(query).all()
        return tuple(
            TrialCare(
                study=study,
                trial=number,
                attempt=attempt,
                leases=frozenset((r.token, r.expires_at) for r in leases if r.token is not None),
                reported=reported,
            )
            for (study, number, attempt, reported), leases in groupby(rows, lambda row: row[:4])
        )

    def report(self, report: Report) -> bool:
        """Store a report; return False if it is stored already. Raises NotFound."""
        try:
            with self._database.write() as connection:
                number = connection.scalar(
                    insert_into(connection, ReportRow)
                    .values(REPORTS.values(report) | OUTCOMES.values(report.outcome))
                    .on_conflict_do_nothing()
                    .returning(ReportRow.id)
                )
                if number is not None:
                    keep_window(connection, report.outcome.measurement, report_id=number)
        except Refused as error:
            if not 1 <= report.trial <= self.count(report.study):
                raise refusals.no_trial(report.study, report.trial) from error
            raise
        return number is not None

    def reports(self, study: str, number: int) -> Sequence[Report]:
        """Return every report on a trial, late ones included, in order of arrival."""
        named = {"study": study, "trial": number}
        with self._database.look() as connection:
            rows = connection.execute(ON_TRIAL, named).all()
            windows = shown(connection, WINDOWS_ON_TRIAL, named) if rows else {}
        return tuple(_report(row, windows.get(row.id)) for row in rows)

    def samples(self, study: str) -> Mapping[tuple[int, str], bytes]:
        """Return the JSON of the raw values of a study's windows, by trial and device."""
        with self._database.look() as connection:
            return sampled(connection, study)


class Leases:
    """Leases in a database. A device's row outlives its lease, because it stores the token."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def grant(
        self, device: str, study: str, trial: Trial, agent: str, expires_at: datetime
    ) -> Lease:
        """Give the device's lease to a trial, replacing any other. Raises NotFound."""
        first = Lease(
            device=device,
            study=study,
            trial=trial.number,
            attempt=trial.attempt,
            token=1,
            nonce=secrets.token_hex(16),
            agent=agent,
            expires_at=expires_at,
        )
        values = LEASES.values(first)
        try:
            with self._database.act() as connection:
                token = connection.scalar(
                    insert_into(connection, LeaseRow)
                    .values(values)
                    .on_conflict_do_update(
                        index_elements=[LeaseRow.__table__.c.device],
                        set_=values | {"token": LeaseRow.token + 1},
                    )
                    .returning(LeaseRow.token)
                )
        except Refused as error:  # its only foreign key is the trial's
            raise refusals.no_trial(study, trial.number) from error
        assert token is not None  # an upsert returns its row
        return replace(first, token=token)

    def get(self, device: str) -> Lease | None:
        """Return the device's lease, None if no lease is in force."""
        with self._database.look() as connection:
            row = connection.execute(OF_DEVICE, {"device": device}).first()
        return _lease(row)

    def renew(self, device: str, token: int, nonce: str, expires_at: datetime) -> Lease:
        """Extend the lease with this token and nonce to a later end. Raises NotFound, StaleToken."""
        own = LEASES.all.where(LeaseRow.device == device)
        with self._database.write() as connection:
            lease = _lease(connection.execute(own.with_for_update()).first())
            if lease is None:
                raise refusals.no_lease(device)
            lease.admit(token, nonce)
            put_off = update(LeaseRow).where(LeaseRow.device == device)
            connection.execute(put_off.values(expires_at=expires_at))
        return replace(lease, expires_at=expires_at)

    def release(self, device: str, token: int) -> None:
        """End the lease with this token; do nothing if it is not in force."""
        with self._database.act() as connection:
            connection.execute(
                update(LeaseRow)
                .where(LeaseRow.device == device, LeaseRow.token == token)
                .values(study=None, trial=None)
            )


def _latest_first(columns: ReadOnlyColumnCollection[str, Any]) -> list[UnaryExpression[Any]]:
    """Return the sort order by start, latest first."""
    return [columns[column.key].desc() for column in WHEN]


def _key(text: str) -> SettingKey | None:
    """Return the key of a setting's JSON, None if that is damaged."""
    with suppress(ValueError, TypeError, AttributeError):
        return setting_key(json.loads(text))
    return None


def _trials(
    rows: Sequence[Row[Any]], windows: Mapping[object, Measurement]
) -> Sequence[tuple[str, Trial]]:
    """Return trials with their studies; one that ended during the read is returned as running."""
    pairs = []
    for row in rows:
        window = windows.get((row.study, row.number)) if row.state.final else None
        pairs.append((row.study, TRIALS.read(row, measurement=window)))
    return pairs


def _report(row: Sequence[Any], measurement: Measurement | None) -> Report:
    """Return the report in a row, with its measurement."""
    outcome = OUTCOMES.read(row[len(REPORTS.names) :], measurement=measurement)
    return REPORTS.read(row, outcome=outcome)


def _locked(connection: Connection, study: str, number: int) -> Trial:
    """Return a trial, locked against changes until the transaction ends. Raises NotFound."""
    own = TRIALS.all.where(TrialRow.study == study, TrialRow.number == number)
    row = connection.execute(own.with_for_update()).first()
    if row is None:
        raise refusals.no_trial(study, number)
    return TRIALS.read(row, measurement=None)


def _change(connection: Connection, study: str, trial: Trial, at: datetime) -> None:
    """Store the changed fields of a trial and its new state."""
    own = (TrialRow.study == study) & (TrialRow.number == trial.number)
    changed = {name: getattr(trial, name) for name in CHANGING}
    connection.execute(update(TrialRow).where(own).values(changed))
    _keep_state(connection, study, trial, at)


def _keep_state(connection: Connection, study: str, trial: Trial, at: datetime) -> None:
    """Store that a trial entered its state."""
    row = insert(TrialStateRow).values(study=study, trial=trial.number, at=at)
    connection.execute(row.values(state=trial.state, attempt=trial.attempt))


def _lease(row: Row[Any] | None) -> Lease | None:
    """Return the lease of a row, None if the row only keeps the token."""
    return None if row is None or row.study is None else LEASES.read(row)
