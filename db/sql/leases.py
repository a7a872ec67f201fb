"""Leases over SQLAlchemy."""

from __future__ import annotations

import secrets
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import Row, bindparam, update

from db import refusals
from db.schema import LeaseRow
from db.sql.database import Database, Refused, insert_into
from db.sql.rows import LEASES
from tuner.core import Lease, Trial

ONE = LEASES.all.where(LeaseRow.device == bindparam("device"))


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
            row = connection.execute(ONE, {"device": device}).first()
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


def _lease(row: Row[Any] | None) -> Lease | None:
    """Return the lease of a row, None if the row only keeps the token."""
    return None if row is None or row.study is None else LEASES.read(row)
