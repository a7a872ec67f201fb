"""Trials over SQLAlchemy."""

from __future__ import annotations

import json
import typing
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
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
from sqlalchemy.orm import Session
from sqlalchemy.sql.base import ReadOnlyColumnCollection

from db import refusals
from db.codec import encode_limit, encode_setting
from db.schema import (
    EstimateRow,
    LeaseRow,
    MeasurementRow,
    ReportRow,
    StudyRow,
    TrialRow,
    TrialStateRow,
)
from db.sql.database import Database, Refused, insert_into
from db.sql.rows import (
    keep_window,
    report_of,
    report_values,
    to_estimate,
    trial_of,
    window_of,
)
from tuner.core import (
    ANYWHERE,
    Context,
    Estimate,
    Measurement,
    Outcome,
    Phase,
    Report,
    Setting,
    Trial,
    TrialCare,
    TrialState,
    setting_key,
)

TABLE, WINDOW = TrialRow.__table__, MeasurementRow.__table__
WHEN = (TrialRow.started_at, TrialRow.study_id, TrialRow.number)
NAMED_AT_ONCE = 200
"""So many windows are named in one statement: databases plan for each."""
OF_STUDY = (
    select(*TABLE.c)
    .where(TrialRow.study_id == bindparam("study"), TrialRow.number >= bindparam("first"))
    .order_by(TrialRow.number)
)
"""Made once, as the next are: the trials of a study are read at its every step."""
WINDOWS_OF_STUDY = select(*WINDOW.c).where(
    MeasurementRow.study_id == bindparam("study"), MeasurementRow.trial_number >= bindparam("first")
)
WINDOWS_OF_TRIALS = select(*WINDOW.c).where(
    tuple_(MeasurementRow.study_id, MeasurementRow.trial_number).in_(
        bindparam("trials", expanding=True)
    )
)
SHOWN = (
    select(*EstimateRow.__table__.c)
    .where(EstimateRow.measurement_id.in_(bindparam("windows", expanding=True)))
    .order_by(EstimateRow.measurement_id, EstimateRow.position)
)
RUNNING = (
    select(*TABLE.c)
    .where(TrialRow.study_id == bindparam("study"), TrialRow.state == TrialState.RUNNING.value)
    .order_by(TrialRow.number)
)
OF_TRIAL = (ReportRow.study_id == bindparam("study")) & (
    ReportRow.trial_number == bindparam("trial")
)
ON_TRIAL = select(*ReportRow.__table__.c).where(OF_TRIAL).order_by(ReportRow.id)
WINDOWS_ON_TRIAL = (
    select(*WINDOW.c).join(ReportRow, MeasurementRow.report_id == ReportRow.id).where(OF_TRIAL)
)


class SqlTrials:
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
    ) -> Trial:
        """Store a RUNNING trial under the next number and return it. Raises NotFound, StaleRevision."""
        as_seen = StudyRow.id == study
        if seen is not None:
            as_seen &= (StudyRow.revision == seen[0]) & (StudyRow.last_trial == seen[1])
        with self._database.write() as session:
            # The counter's row is locked until the end: numbers are distinct and without gaps, and of
            # several tuners that decided by the same trials one begins the next.
            number = session.scalar(
                update(StudyRow)
                .where(as_seen)
                .values(last_trial=StudyRow.last_trial + 1)
                .returning(StudyRow.last_trial)
            )
            if number is None and session.get(StudyRow, study) is not None:
                raise refusals.begun_since(study)
            if number is None:
                raise refusals.no_study(study)
            trial = Trial(
                number=number,
                setting=dict(setting),
                phase=phase,
                context=dict(context),
                device=device,
                started_at=at,
                why=why,
            )
            session.connection().execute(
                insert(TrialRow).values(
                    study_id=study,
                    number=number,
                    setting=encode_setting(setting),
                    phase=phase.value,
                    context=dict(context),
                    device_id=device or None,
                    state=trial.state.value,
                    attempt=trial.attempt,
                    started_at=at,
                    ended_at=None,
                    why=why,
                    broke=None,
                    reason="",
                )
            )
            _keep_state(session, study, trial, at)
        return trial

    def restart(self, study: str, number: int, at: datetime) -> Trial:
        """Count a further attempt of a running trial. Raises NotFound, IllegalTransition."""
        with self._database.write() as session:
            trial = _locked(session, study, number).again()
            _change(session, study, number, attempt=trial.attempt)
            _keep_state(session, study, trial, at)
        return trial

    def end(self, study: str, number: int, outcome: Outcome, at: datetime) -> Trial:
        """Give a trial its one final state. Raises NotFound, IllegalTransition."""
        with self._database.write() as session:
            trial = _locked(session, study, number).ended(outcome, at)
            _change(
                session,
                study,
                number,
                state=trial.state.value,
                ended_at=at,
                broke=encode_limit(trial.broke),
                reason=trial.reason,
            )
            keep_window(session, trial.measurement, study_id=study, trial_number=number)
            _keep_state(session, study, trial, at)
        return trial

    def list(self, study: str, first: int = 1) -> Sequence[Trial]:
        """Return the trials of a study by number, from the first on; empty for an unknown study."""
        # What has ended never changes, so that several looks agree.
        named = {"study": study, "first": first}
        with self._database.look() as connection:
            rows = connection.execute(OF_STUDY, named).all()
            windows = _shown(connection, connection.execute(WINDOWS_OF_STUDY, named).all())
        return tuple(trial for _, trial in _trials(rows, windows))

    def tried(self, study: str, setting: Setting) -> Sequence[Trial]:
        """Return the trials of a study at a setting by number; empty for an unknown study."""
        text, of_study = cast(TrialRow.setting, Text), TrialRow.study_id == study
        with self._database.read() as session:  # there are few settings: each is decoded once
            texts = session.scalars(select(text).where(of_study).distinct()).all()
        key = setting_key(setting)
        same = [text for text in texts if setting_key(json.loads(text)) == key]
        return self._of(of_study, text.in_(same)) if same else ()

    def _of(self, *which: ColumnElement[bool]) -> Sequence[Trial]:
        found = self._read(select(*TABLE.c).where(*which).order_by(TrialRow.number))
        return tuple(trial for _, trial in found)

    def _read(self, asked: Select[tuple[object, ...]]) -> Sequence[tuple[str, Trial]]:
        """Return trials by their columns: as mapped objects they take three times as long."""
        windows: dict[object, Measurement] = {}
        with self._database.look() as connection:
            rows = connection.execute(asked).all()
            ended = [(row.study_id, row.number) for row in rows if TrialState(row.state).final]
            for first in range(0, len(ended), NAMED_AT_ONCE):
                some = {"trials": ended[first : first + NAMED_AT_ONCE]}
                found = connection.execute(WINDOWS_OF_TRIALS, some).all()
                windows |= _shown(connection, found)
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
    ) -> Sequence[tuple[str, Trial]]:
        """Return trials with their study, latest start first: of these studies, or of all."""
        which: list[ColumnElement[bool]] = []
        if studies is not None:
            which.append(TrialRow.study_id.in_(studies))
        if since is not None:
            which.append(TrialRow.started_at >= since)
        if until is not None:
            which.append(TrialRow.started_at < until)
        if state is not None:
            which.append(TrialRow.state == state.value)
        if device is not None:
            which.append(TrialRow.device_id.is_(None) | (TrialRow.device_id == device))
        if studies is None or (device is None and len(studies) > 1):
            asked = select(*TABLE.c).where(*which).order_by(*_latest_first(TABLE.c))
            return self._read(asked.limit(last).offset(skip))
        # What is one device's or study's is gathered first. Were all trials walked back by time until there
        # are enough, everybody else's would be in the way of one that has rested for long.
        own = select(*WHEN).where(*which).cte().prefix_with("MATERIALIZED")
        page = select(own).order_by(*_latest_first(own.c)).limit(last).offset(skip).subquery()
        same = (TrialRow.study_id == page.c.study_id) & (TrialRow.number == page.c.number)
        return self._read(select(*TABLE.c).join(page, same).order_by(*_latest_first(TABLE.c)))

    def count(self, study: str) -> int:
        """Return how many trials a study has; 0 for an unknown study."""
        with self._database.look() as connection:
            asked = select(StudyRow.last_trial).where(StudyRow.id == study)
            return connection.scalar(asked) or 0

    def running(self, study: str) -> Sequence[Trial]:
        """Return the trials of a study that have not ended, by number."""
        with self._database.look() as connection:
            rows = connection.execute(RUNNING, {"study": study}).all()
        return tuple(trial_of(typing.cast("TrialRow", row), None) for row in rows)

    def at_work(self) -> Sequence[TrialCare]:
        """Return every trial that has not ended, by study and number, with the leases on it."""
        own = (LeaseRow.study_id == TrialRow.study_id) & (LeaseRow.trial_number == TrialRow.number)
        reported = exists(literal(1)).where(
            ReportRow.study_id == TrialRow.study_id,
            ReportRow.trial_number == TrialRow.number,
            ReportRow.late.is_(False),
        )
        asked = (
            select(
                TrialRow.study_id,
                TrialRow.number,
                TrialRow.attempt,
                reported.correlate(TrialRow).label("reported"),
                LeaseRow.token,
                LeaseRow.expires_at,
            )
            .outerjoin(LeaseRow, own)
            .where(TrialRow.state == TrialState.RUNNING.value)
            .order_by(TrialRow.study_id, TrialRow.number)
        )
        with self._database.look() as connection:
            rows = connection.execute(asked).all()
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
        """Keep a report; False where it is kept already. Raises NotFound."""
        try:
            with self._database.write() as session:
                number = session.connection().scalar(
                    insert_into(session, ReportRow)
                    .values(report_values(report))
                    .on_conflict_do_nothing()
                    .returning(ReportRow.id)
                )
                if number is not None:
                    keep_window(session, report.outcome.measurement, report_id=number)
        except Refused as error:
            if not 1 <= report.trial <= self.count(report.study):
                raise refusals.no_trial(report.study, report.trial) from error
            raise
        return number is not None

    def reports(self, study: str, number: int) -> Sequence[Report]:
        """Return every report on a trial, late ones too, in order of arrival."""
        named = {"study": study, "trial": number}
        with self._database.look() as connection:
            rows = connection.execute(ON_TRIAL, named).all()
            found = connection.execute(WINDOWS_ON_TRIAL, named).all() if rows else ()
            windows = _shown(connection, found)
        return tuple(report_of(typing.cast("ReportRow", row), windows.get(row.id)) for row in rows)


def _latest_first(columns: ReadOnlyColumnCollection[str, Any]) -> list[UnaryExpression[Any]]:
    return [columns[column.key].desc() for column in WHEN]


def _trials(
    rows: Sequence[Row[tuple[object, ...]]], windows: Mapping[object, Measurement]
) -> Sequence[tuple[str, Trial]]:
    """Return trials with their study; one that ended while they were read still runs."""
    found = []
    for row in rows:
        ended = TrialState(row.state).final
        window = windows.get((row.study_id, row.number)) if ended else None
        found.append((row.study_id, trial_of(typing.cast("TrialRow", row), window)))
    return found


def _shown(
    connection: Connection, windows: Sequence[Row[tuple[object, ...]]]
) -> Mapping[object, Measurement]:
    """Return what windows showed, by study and number of a trial or by the id of a report."""
    estimates: dict[int, dict[str, Estimate]] = defaultdict(dict)
    for first in range(0, len(windows), NAMED_AT_ONCE):
        some = [row.id for row in windows[first : first + NAMED_AT_ONCE]]
        for row in connection.execute(SHOWN, {"windows": some}):
            estimates[row.measurement_id][row.metric] = to_estimate(typing.cast("EstimateRow", row))
    return {
        row.report_id or (row.study_id, row.trial_number): window_of(
            typing.cast("MeasurementRow", row), estimates[row.id]
        )
        for row in windows
    }


def _locked(session: Session, study: str, number: int) -> Trial:
    """Return a trial that nobody else changes until the end of the transaction. Raises NotFound."""
    own = (TrialRow.study_id == study) & (TrialRow.number == number)
    row = session.execute(select(*TABLE.c).where(own).with_for_update()).first()
    if row is None:
        raise refusals.no_trial(study, number)
    return trial_of(typing.cast("TrialRow", row), None)


def _change(session: Session, study: str, number: int, **values: object) -> None:
    own = (TrialRow.study_id == study) & (TrialRow.number == number)
    session.connection().execute(update(TrialRow).where(own).values(**values))


def _keep_state(session: Session, study: str, trial: Trial, at: datetime) -> None:
    session.connection().execute(
        insert(TrialStateRow).values(
            study_id=study,
            trial_number=trial.number,
            state=trial.state.value,
            attempt=trial.attempt,
            at=at,
        )
    )
