"""Posteriors of finished studies over SQLAlchemy."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, and_, case, delete, func, select, update

from db import refusals
from db.codec import posterior_document, posterior_of
from db.schema import PosteriorRow, StudyRow
from db.sql.database import Database, put
from tuner.core import (
    POSTERIOR_VERSION,
    Closeness,
    Device,
    Posterior,
    SiblingRef,
    Worth,
    versions_of,
)

KEPT = 3
"""The number of versions of a study's posterior that are kept: a running study may use an older one."""

INFORMED = 5
"""A posterior from this number of settings is as good as one from more."""

COLUMNS = ["study", "revision", "version", "board", "workload", "kind", "versions", "settings"]
"""What rows are searched by, as a posterior has it."""

DOCUMENTS = select(PosteriorRow.study, PosteriorRow.digest, PosteriorRow.document).where(
    PosteriorRow.version == POSTERIOR_VERSION
)
"""Posteriors that this release can read."""

WORTHS = {
    Closeness.BOARD_AND_WORKLOAD: PosteriorRow.worth_of_board_and_workload,
    Closeness.BOARD: PosteriorRow.worth_of_board,
    Closeness.WORKLOAD: PosteriorRow.worth_of_workload,
    Closeness.KIND: PosteriorRow.worth_of_kind,
}


class SqlPosteriors:
    """Posteriors in a database, as documents; what they are searched by are columns."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, posterior: Posterior, at: datetime) -> str:
        """Keep a study's posterior as its latest, and return its digest. Raises NotFound."""
        document = posterior_document(posterior)
        text = json.dumps(document, sort_keys=True, allow_nan=False)
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        own = PosteriorRow.study == posterior.study
        values = {name: getattr(posterior, name) for name in COLUMNS}
        worth = {column.key: posterior.worth.get(c) for c, column in WORTHS.items()}
        row = {**values, **worth, "digest": digest, "at": at, "latest": True, "document": document}
        with self._database.write() as connection:
            owner = select(StudyRow.id).where(StudyRow.id == posterior.study).with_for_update()
            if connection.scalar(owner) is None:
                raise refusals.no_study(posterior.study)
            connection.execute(update(PosteriorRow).where(own).values(latest=False))
            put(connection, PosteriorRow, row)
            order = (PosteriorRow.latest.desc(), PosteriorRow.at.desc(), PosteriorRow.digest)
            query = select(PosteriorRow.digest).where(own).order_by(*order).limit(KEPT)
            kept = connection.scalars(query).all()
            connection.execute(delete(PosteriorRow).where(own, PosteriorRow.digest.not_in(kept)))
        return digest

    def revisions(self) -> Mapping[str, tuple[int, int]]:
        """Return the study's revision and the version of each latest posterior, by study."""
        query = select(PosteriorRow.study, PosteriorRow.revision, PosteriorRow.version)
        with self._database.look() as connection:
            rows = connection.execute(query.where(PosteriorRow.latest)).all()
        return {study: (revision, version) for study, revision, version in rows}

    def near(
        self,
        device: Device,
        most: int,
        without: str = "",
        which: Collection[Closeness] = tuple(Closeness),
    ) -> Sequence[tuple[SiblingRef, Posterior]]:
        """Return the latest posteriors of studies on like devices, closest first."""
        on_board = PosteriorRow.board == device.board
        of_workload = PosteriorRow.workload == device.workload
        alike: Mapping[Closeness, ColumnElement[bool]] = {
            Closeness.BOARD_AND_WORKLOAD: and_(on_board, of_workload),
            Closeness.BOARD: and_(on_board, ~of_workload),
            Closeness.WORKLOAD: and_(~on_board, of_workload),
            Closeness.KIND: and_(~on_board, ~of_workload, PosteriorRow.kind == device.kind),
        }
        order = (
            (PosteriorRow.versions == versions_of(device)).desc(),
            case((PosteriorRow.settings < INFORMED, PosteriorRow.settings), else_=INFORMED).desc(),
            PosteriorRow.at.desc(),
            PosteriorRow.study,
        )
        others = DOCUMENTS.where(PosteriorRow.latest, PosteriorRow.study != without)
        query = others.order_by(*order).limit(most)
        with self._database.look() as connection:
            return tuple(
                (SiblingRef(study, digest, closeness), posterior_of(document))
                for closeness in alike
                if closeness in which
                for study, digest, document in connection.execute(query.where(alike[closeness]))
            )

    def get(self, siblings: Sequence[SiblingRef]) -> Sequence[Posterior | None]:
        """Return the posteriors referred to, None for those of deleted studies."""
        digests = [s.digest for s in siblings]
        with self._database.look() as connection:
            rows = connection.execute(DOCUMENTS.where(PosteriorRow.digest.in_(digests))).all()
        by_key = {(study, digest): document for study, digest, document in rows}
        documents = [by_key.get((s.study, s.digest)) for s in siblings]
        return tuple(None if doc is None else posterior_of(doc) for doc in documents)

    def worth(self) -> Mapping[Closeness, Worth]:
        """Return the mean worth of each closeness over the latest posteriors."""
        figures = [f(column) for column in WORTHS.values() for f in (func.avg, func.count)]
        with self._database.look() as connection:
            row = connection.execute(select(*figures).where(PosteriorRow.latest)).one()
        pairs = zip(WORTHS, row[::2], row[1::2], strict=True)
        return {c: Worth(float(mean), count) for c, mean, count in pairs if count}
