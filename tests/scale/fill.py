"""Fill a database with a fleet with a long history: python -m tests.scale.fill --db URL.

All values follow formulas. The trials of the first study are copied to the others by the database.
"""

from __future__ import annotations

import argparse
import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from db import Store, open_store
from db.sql.address import read_url
from db.sql.database import Database
from tests.builders import device, setting, study, surface
from tests.scale.bulk import copy_trials, store_trials
from tuner.core import (
    Applied,
    Event,
    Level,
    Measurement,
    Observation,
    Phase,
    Plan,
    Setting,
    Study,
    Terms,
    Trial,
    TrialState,
)

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
CLOCKS, BATCHES = (1000, 900, 800, 700, 600), (1, 2, 4)
EVERY = timedelta(minutes=3)
HELD_WINDOWS = 30
EVENTS = 2_000
WATCHED, LOOKED_AT = "gpu1@host0", 300
"""The device and the size of the study whose page is measured."""
HELD_DAYS = 30


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--db", required=True)
    parser.add_argument("--devices", type=int, default=500)
    parser.add_argument("--studies", type=int, default=200)
    parser.add_argument("--trials", type=int, default=100_000)
    given = parser.parse_args()
    fill(given.db, given.devices, given.studies, given.trials)


def fill(url: str, devices: int, studies: int, trials: int, seed: int = 0) -> None:
    """Store devices; the first ones have a study each, among which the trials are divided."""
    store, database, dice = open_store(url), Database(read_url(url)), random.Random(seed)
    for number in range(devices):
        found = device(f"gpu{number}@host{number // 8}", seen_at=BEGAN, agent=f"host{number // 8}")
        store.devices.put(found)
        store.devices.apply(
            Applied(device=found.id, setting=setting(), level=Level.ORIGINAL, at=BEGAN)
        )
    for number in range(studies):
        name = f"gpu{number}@host{number // 8}"
        asked = study(
            Phase.BASELINE,
            devices=(name,),
            id=f"{number:08x}",
            created_at=BEGAN,
            policy="polythrottle",
            terms=Terms(trials=trials // studies),
        )
        store.studies.add(asked, "somebody", "created")
        if name == WATCHED:
            store_trials(database, asked.id, _tried(LOOKED_AT, datetime.now(UTC), dice))
        elif not number:
            store_trials(database, asked.id, _tried(trials // studies, datetime.now(UTC), dice))
        else:
            copy_trials(database, f"{0:08x}", asked.id)
        if number % 4:
            _held(store, asked, dice)
    for number in range(EVENTS):
        at = BEGAN + number * EVERY
        store.events.add(Event(at=at, kind="holding", text="held", study=f"{number % studies:08x}"))
    database.engine.dispose()
    store.close()


def _tried(trials: int, until: datetime, dice: random.Random) -> list[Trial]:
    """Return the trials of a study up to a time: its baseline first, then random settings."""
    made = []
    for number in range(1, trials + 1):
        began = until - (trials - number) * EVERY
        first = number < 3
        at = setting() if first else setting(dice.choice(CLOCKS), dice.choice(BATCHES))
        made.append(
            Trial(
                number=number,
                setting=at,
                phase=Phase.BASELINE if first else Phase.TUNING,
                state=TrialState.COMPLETED,
                started_at=began,
                ended_at=began + timedelta(seconds=20),
                measurement=_window(at, began, dice),
                why="made up",
            )
        )
    return made


def _held(store: Store, asked: Study, dice: random.Random) -> None:
    """Run a study to a hold, and store its windows."""
    best = setting(700, 2)
    study = store.studies.get(asked.id)
    for phase, plan in (
        (Phase.TUNING, None),
        (Phase.CONFIRMING, Plan.single(best)),
        (Phase.HOLDING, Plan.single(best)),
    ):
        moved = study.moved(phase, plan)
        study = store.studies.revise(moved, "tuner", "made up", datetime.now(UTC))
    now = datetime.now(UTC)
    begun = [now + timedelta(seconds=10 + 60 * number) for number in range(HELD_WINDOWS)]
    if asked.devices == (WATCHED,):
        begun += [now - timedelta(minutes=5 * n) for n in range(1, HELD_DAYS * 24 * 12)]
    for first in range(0, len(begun), 1_000):
        windows = [
            Observation(
                study=asked.id,
                device=asked.devices[0],
                setting=best,
                measurement=_window(best, began, dice),
                at=began,
            )
            for began in begun[first : first + 1_000]
        ]
        store.observations.add_all(windows)


def _window(at: Setting, began: datetime, dice: random.Random) -> Measurement:
    """Return a window on the builders' surface, with some noise."""
    seen = surface(at)
    noisy = {
        name: replace(e, mean=(m := e.mean * dice.gauss(1.0, 0.01)), low=m * 0.98, high=m * 1.02)
        for name, e in seen.estimates.items()
    }
    return replace(seen, estimates=noisy, started_at=began)


if __name__ == "__main__":
    main()
