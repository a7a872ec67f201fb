"""Leases over SQLAlchemy."""

from __future__ import annotations

import secrets
from datetime import datetime
from typing import Any, cast

from sqlalchemy import bindparam, select, update

from db import refusals
from db.schema import LeaseRow
from db.sql.database import Database, Refused, insert_into
from db.sql.rows import to_lease
from tuner.core import Lease, Trial

ONE = select(*LeaseRow.__table__.c).where(LeaseRow.device_id == bindparam("device"))


class SqlLeases:
    """Leases in a database. A device's row stays when its lease ends: it keeps the token."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def grant(
        self, device: str, study: str, trial: Trial, agent: str, expires_at: datetime
    ) -> Lease:
        """Give the device's lease to a trial, replacing any other. Raises NotFound."""
        values: dict[str, Any] = {
            "study_id": study,
            "trial_number": trial.number,
            "attempt": trial.attempt,
            "nonce": secrets.token_hex(16),
            "agent": agent,
            "expires_at": expires_at,
        }
        try:
            with self._database.act() as connection:
                token = connection.scalar(
                    insert_into(connection, LeaseRow)
                    .values(device_id=device, token=1, **values)
                    .on_conflict_do_update(
                        index_elements=[LeaseRow.device_id],
                        set_={"token": LeaseRow.token + 1, **values},
                    )
                    .returning(LeaseRow.token)
                )
        except Refused as error:  # there is nothing else that it hangs on
            raise refusals.no_trial(study, trial.number) from error
        assert token is not None  # an upsert returns its row
        return Lease(
            device=device,
            study=study,
            trial=trial.number,
            attempt=trial.attempt,
            token=token,
            nonce=values["nonce"],
            agent=agent,
            expires_at=expires_at,
        )

    def get(self, device: str) -> Lease | None:
        """Return the device's lease, None where there is none."""
        with self._database.look() as connection:
            row = connection.execute(ONE, {"device": device}).first()
        return None if row is None else to_lease(cast("LeaseRow", row))

    def renew(self, device: str, token: int, nonce: str, expires_at: datetime) -> Lease:
        """Put off the end of the lease that has this token and nonce. Raises NotFound, StaleToken."""
        with self._database.write() as session:
            row = session.get(LeaseRow, device, with_for_update=True)
            lease = to_lease(row) if row is not None else None
            if row is None or lease is None:
                raise refusals.no_lease(device)
            lease.admit(token, nonce)
            row.expires_at = expires_at
            session.flush()
            renewed = to_lease(row)
        assert renewed is not None  # only its end has changed
        return renewed

    def release(self, device: str, token: int) -> None:
        """End the lease that has this token; quietly nothing where it is not in force."""
        with self._database.act() as connection:
            connection.execute(
                update(LeaseRow)
                .where(LeaseRow.device_id == device, LeaseRow.token == token)
                .values(study_id=None, trial_number=None)
            )
