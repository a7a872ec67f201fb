"""Raw samples of a thousand windows among ten thousand of a device, on both databases."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import event, text

from db import open_store
from db.sql.database import Database
from tests import postgres
from tests.builders import study, trial, window
from tests.scale.bulk import store_trials
from tuner.core import Latencies, WindowSamples

pytestmark = pytest.mark.slow
MOST_BYTES = 100_000_000
WINDOWS, SAMPLED = 10_000, 1_000


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'samples.sqlite'}"
        return
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)  # the server's user opens it
        with postgres.server(Path(folder) / "server") as server:
            yield postgres.new_database(server, "samples")


def samples(chance: random.Random) -> WindowSamples:
    """Return a full window: 4,096 latencies, and 100 readings of eight totals."""
    names = (
        "energy_j",
        "items",
        "failed",
        "cpu_s",
        "busy_s",
        "foreign_s",
        "own_cpu_s",
        "load_cpu_s",
    )
    return WindowSamples(
        clock_s=(0.0, 100.0),
        wall_s=(1e9, 1e9 + 100.0),
        seconds=tuple(float(k) + 1.0 for k in range(100)),
        totals={n: tuple(k * chance.uniform(1.0, 2.0) for k in range(100)) for n in names},
        latencies=Latencies.of([chance.lognormvariate(3.0, 0.3) for _ in range(4_096)]),
    )


def test_a_thousand_sampled_windows_take_less_than_100_mb(url: str) -> None:
    chance = random.Random(1)
    own = study()
    trials = [
        replace(
            trial(n, own.baseline, one := window(chance.uniform(9.0, 11.0))),
            measurement=replace(one, samples=samples(chance) if n <= SAMPLED else None),
        )
        for n in range(1, WINDOWS + 1)
    ]
    store = open_store(url)
    database: Database = store._database
    before = size(database, url)
    store.studies.add(own, "ann", "")
    store_trials(database, own.id, trials)
    with database.act() as connection:
        kept = connection.scalar(text("SELECT count(*) FROM window_samples"))
        largest = connection.scalar(text("SELECT max(length(document)) FROM window_samples"))
    assert kept == SAMPLED
    assert largest is not None
    assert largest <= 65_536
    assert size(database, url) - before <= MOST_BYTES
    statements: list[str] = []
    event.listen(database.engine, "before_cursor_execute", lambda *a: statements.append(a[2]))
    assert len(store.trials.list(own.id)) == WINDOWS
    assert statements
    assert not any("window_samples" in statement for statement in statements)
    store.close()


def size(database: Database, url: str) -> int:
    """Return the bytes of a database."""
    if url.startswith("sqlite"):
        return Path(database.engine.url.database or "").stat().st_size
    with database.look() as connection:
        return int(connection.scalar(text("SELECT pg_database_size(current_database())")) or 0)
