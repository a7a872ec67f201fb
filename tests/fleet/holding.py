"""Studies that already hold, for devices of a simulated fleet: by the protocol this would take hours."""

from __future__ import annotations

import random
from collections.abc import Collection
from datetime import UTC, datetime

from sqlalchemy import text

from db import open_store
from db.sql.address import read_url
from db.sql.database import Database
from tests.bench.fleet.device import DeviceModel
from tests.bench.fleet.fleet import OF_FLEET
from tuner.core import (
    Constraint,
    Objective,
    Outcome,
    Phase,
    Plan,
    Study,
    Terms,
    TrialState,
)

PATTERN = "hold-template"
"""The id of the template study, and of its device."""
HOST = f"{OF_FLEET}host-"
COPIES = (
    """INSERT INTO devices (id, kind, board, driver, agent, workload, workload_version, seen_at,
       description) SELECT n.device, kind, board, driver, n.host, workload, workload_version, seen_at,
       description FROM devices, wanted n WHERE id = :pattern""",
    """INSERT INTO studies SELECT n.study, workload, phase, revision, last_trial, created_at
       FROM studies, wanted n WHERE id = :pattern""",
    """INSERT INTO study_revisions (study_id, revision, document, who, why, at)
       SELECT n.study, revision, replace(replace(document::text, '"id": "' || :pattern, '"id": "' ||
       n.study), :pattern, n.device)::json, who, why, at FROM study_revisions, wanted n
       WHERE study_id = :pattern""",
    """INSERT INTO study_devices SELECT n.study, n.device, active FROM study_devices, wanted n
       WHERE study_id = :pattern""",
    """INSERT INTO trials SELECT n.study, number, setting, phase, context, state, attempt, started_at,
       ended_at, why, broke, reason FROM trials, wanted n WHERE study_id = :pattern""",
    """INSERT INTO trial_states (study_id, trial_number, state, attempt, at)
       SELECT n.study, trial_number, state, attempt, at FROM trial_states, wanted n
       WHERE study_id = :pattern""",
    """INSERT INTO measurements (study_id, trial_number, started_at, seconds, overhead_s, completed,
       failed, utilisation, context, throttled, foreign_share, sources)
       SELECT n.study, trial_number, started_at, seconds, overhead_s, completed, failed, utilisation,
       context, throttled, foreign_share, sources FROM measurements, wanted n
       WHERE study_id = :pattern""",
    """INSERT INTO estimates SELECT copy.id, e.metric, e.position, e.mean, e.stderr, e.n, e.low, e.high,
       e.origin, e.scope FROM estimates e JOIN measurements m ON m.id = e.measurement_id
       JOIN measurements copy ON copy.trial_number = m.trial_number AND copy.study_id <> m.study_id
       WHERE m.study_id = :pattern""",
    "DELETE FROM leases",
)


def hold(url: str, devices: int, free: Collection[str], spec: str) -> None:
    """Store devices `fleet-0` …, each with a holding study, except for the `free` ones.

    On PostgreSQL only: one study is created through the ports, the others are copies of it.
    """
    _template(url, spec)
    database = Database(read_url(url))
    wanted = [n for n in range(devices) if f"{OF_FLEET}{n}" not in free]
    with database.alone() as connection:
        connection.execute(
            text(
                "CREATE TEMPORARY TABLE wanted (study text, device text, host text) ON COMMIT DROP"
            )
        )
        rows = [
            {"study": f"{n:08x}", "device": f"{OF_FLEET}{n}", "host": f"{HOST}{n // 8}"}
            for n in wanted
        ]
        connection.execute(text("INSERT INTO wanted VALUES (:study, :device, :host)"), rows)
        for copy in COPIES:
            connection.execute(text(copy), {"pattern": PATTERN} if ":pattern" in copy else {})
    database.engine.dispose()
    store = open_store(url)
    template = store.studies.get(PATTERN)
    store.studies.revise(template.moved(Phase.STOPPED), "bench", "", datetime.now(UTC))
    store.studies.delete(PATTERN)
    store.devices.forget(PATTERN)
    store.close()


def _template(url: str, spec: str) -> None:
    store, model, rng, now = open_store(url), DeviceModel(spec), random.Random(0), datetime.now(UTC)
    device = model.described(PATTERN, "nobody", now)
    store.devices.put(device)
    first = device.space.knobs[0]
    held = {**device.space.default, first.name: first.values[len(first.values) // 2]}
    holding = Study(
        id=PATTERN,
        devices=(PATTERN,),
        workload=device.workload,
        space=device.space,
        objective=Objective("energy_j"),
        quantities=device.quantities,
        constraints=(Constraint.parse("latency_p99_ms <= 2x baseline"),),
        policy="sobol",
        terms=Terms(trials=2),
        phase=Phase.BASELINE,
        created_at=now,
    )
    store.studies.add(holding, "bench", "it holds already")
    for at, phase in ((device.space.default, Phase.BASELINE), (held, Phase.CONFIRMING)) * 2:
        trial = store.trials.begin(PATTERN, at, phase, "made up", now)
        window = model.window(at, now, 10.0, rng)
        ended = Outcome(state=TrialState.COMPLETED, measurement=window)
        store.trials.end(PATTERN, trial.number, ended, now)
    study = store.studies.get(PATTERN)
    for moved, plan in (
        (Phase.TUNING, None),
        (Phase.CONFIRMING, Plan.single(held)),
        (Phase.HOLDING, Plan.single(held)),
    ):
        study = store.studies.revise(study.moved(moved, plan), "bench", "it holds already", now)
    store.close()
