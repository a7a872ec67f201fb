"""PgBouncer lends connections per transaction or per session; we support only the latter."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import pytest

from db.sql.database import Database
from db.sql.store import refuse_pooled
from tuner.core import ConfigError


class Pooler:
    """Lends backends per transaction (the last returned first, or in turns), or per session."""

    name = "postgresql://host/name"

    def __init__(self, mode: str) -> None:
        self.engine, self.mode, self.free = self, mode, [3, 2, 1]

    def spoken(self) -> AbstractContextManager[None]:
        return nullcontext()

    def connect(self) -> Lent:
        return Lent(self)


class Lent:
    def __init__(self, pooler: Pooler) -> None:
        self.pooler, self.backend = pooler, 0
        if pooler.mode == "session":
            self.backend = pooler.free.pop()

    def scalar(self, _statement: object) -> int:
        if not self.backend:
            self.backend = self.pooler.free.pop(0 if self.pooler.mode == "turns" else -1)
        return self.backend

    def rollback(self) -> None:
        if self.pooler.mode != "session":
            self.pooler.free.append(self.backend)
            self.backend = 0

    def __enter__(self) -> Lent:
        return self

    def __exit__(self, *_: object) -> None:
        if self.backend:
            self.pooler.free.append(self.backend)


@pytest.mark.parametrize("mode", ["last", "turns"])
def test_a_pooler_per_transaction_is_refused_by_name(mode: str) -> None:
    with pytest.raises(ConfigError, match="between transactions") as refused:
        refuse_pooled(cast(Any, Pooler(mode)))
    assert "session mode" in refused.value.hint


def test_a_pooler_per_session_is_accepted() -> None:
    refuse_pooled(cast("Database", Pooler("session")))
