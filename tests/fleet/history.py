"""Millions of trials in PostgreSQL, made by the database itself, and how long it takes to look at them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx2
from sqlalchemy import text

from db.sql.address import read_url
from db.sql.database import Database
from tests.bench.fleet.fleet import OF_FLEET
from tests.fleet.holding import hold
from tests.fleet.site import ADMIN, Tuner

DEVICES = 500
PER_STUDY = 500
TURNS = 40
DEVICE = f"{OF_FLEET}7"
PAGES = {
    "a device's history, page": f"/history?device={DEVICE}",
    "a device's history, API": f"/v1/history?device={DEVICE}&last=50",
    "the fleet, page": "/",
    "the fleet, API": "/v1/fleet",
    "all history, page": "/history",
}
FILL = (
    "SET LOCAL session_replication_role = replica",
    """INSERT INTO studies SELECT 'old' || n || '-' || id, workload, 'stopped', 1, :per_study,
       created_at - n * interval '1 day' FROM studies, generate_series(1, :rounds) n""",
    """INSERT INTO study_revisions SELECT 'old' || n || '-' || r.study_id, 1,
       jsonb_set(jsonb_set(r.document::jsonb, '{id}', to_jsonb('old' || n || '-' || r.study_id)),
       '{phase}', '"stopped"')::json, who, why, at FROM study_revisions r
       JOIN studies s ON s.id = r.study_id AND s.revision = r.revision AND s.phase = 'holding',
       generate_series(1, :rounds) n""",
    """INSERT INTO study_devices SELECT 'old' || n || '-' || study_id, device_id, false
       FROM study_devices, generate_series(1, :rounds) n""",
    """INSERT INTO trials SELECT s.id, n, t.setting, t.phase, t.context, t.state, 1,
       s.created_at + n * interval '30 s', s.created_at + n * interval '30 s', t.why, t.broke, ''
       FROM studies s CROSS JOIN generate_series(1, :per_study) n
       JOIN trials t ON t.study_id = :model AND t.number = CASE WHEN n % 10 = 1 THEN 1 ELSE 2 END
       WHERE s.phase = 'stopped'""",
    """INSERT INTO trial_states (study_id, trial_number, state, attempt, at)
       SELECT study_id, number, state, 1, started_at FROM trials WHERE study_id LIKE 'old%'""",
    """INSERT INTO measurements (study_id, trial_number, started_at, seconds, overhead_s, completed,
       failed, utilisation, context, throttled, foreign_share, sources)
       SELECT t.study_id, t.number, t.started_at, m.seconds, m.overhead_s, m.completed, m.failed,
       m.utilisation, m.context, m.throttled, m.foreign_share, m.sources
       FROM trials t JOIN measurements m ON m.study_id = :model
       AND m.trial_number = CASE WHEN t.number % 10 = 1 THEN 1 ELSE 2 END
       WHERE t.study_id LIKE 'old%'""",
    """INSERT INTO estimates SELECT m.id, e.metric, e.position, e.mean, e.stderr, e.n, e.low, e.high,
       e.origin, e.scope FROM measurements m
       JOIN measurements p ON p.study_id = :model
       AND p.trial_number = CASE WHEN m.trial_number % 10 = 1 THEN 1 ELSE 2 END
       JOIN estimates e ON e.measurement_id = p.id AND e.metric IN ('energy_j', 'latency_p99_ms')
       WHERE m.study_id LIKE 'old%'""",
)


def many_trials(url: str, trials: int) -> dict[str, Any]:
    """Store so many trials, a tenth of them at the baseline, of 500 devices that hold, in stopped studies
    of each; return how much that is.
    """
    hold(url, DEVICES, (), "orin")
    database = Database(read_url(url))
    rounds = max(1, round(trials / DEVICES / PER_STUDY))
    given = {"rounds": rounds, "per_study": PER_STUDY, "model": f"{0:08x}"}
    with database.alone() as connection:
        for statement in FILL:
            own = {k: v for k, v in given.items() if f":{k}" in statement}
            connection.execute(text(statement), own)
    counts = {}
    with database.engine.connect() as connection:
        connection.execution_options(isolation_level="AUTOCOMMIT").execute(text("VACUUM ANALYZE"))
        for table in ("studies", "trials", "estimates"):
            counts[table] = connection.execute(text(f"SELECT count(*) FROM {table}")).scalar()
        size = text("SELECT pg_database_size(current_database())")
        counts["bytes"] = connection.execute(size).scalar()
    database.engine.dispose()
    return {"devices": DEVICES, **counts}


def timed(folder: Path, url: str, pages: dict[str, str]) -> dict[str, Any]:
    """Return how long each page took, first and at the 95th percentile, at a tuner of its own."""
    tuner = Tuner(folder, url=url)
    tuner.token_file.touch(0o600)
    tuner.token_file.write_text(ADMIN)
    try:
        tuner.start_tuner()
        base = f"http://127.0.0.1:{tuner.tuner_port}"
        html = {"Accept": "text/html"}
        client = httpx2.Client(base_url=base, headers=html, follow_redirects=True, timeout=600.0)
        client.post("/login", data={"token": ADMIN})
        first = {name: _asked(client, path) for name, path in pages.items()}
        taken: dict[str, list[float]] = {name: [] for name in pages}
        for _ in range(TURNS):
            for name, path in pages.items():
                taken[name].append(_asked(client, path))
        client.close()
    finally:
        tuner.kill("tuner")
    return {"first_s": first, "p95_s": {name: _at_95(found) for name, found in taken.items()}}


def _asked(client: httpx2.Client, path: str) -> float:
    began = time.perf_counter()
    client.get(path).raise_for_status()
    return time.perf_counter() - began


def _at_95(times: Sequence[float]) -> float:
    return sorted(times)[int(0.95 * (len(times) - 1))]
