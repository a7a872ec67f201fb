"""A database of thirteen devices in every state, with studies of 10 to 300 trials, for the pages' tests."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from db import Store, open_store
from db.sql.address import read_url
from db.sql.database import Database
from tests.builders import device, knob, study, window
from tests.scale.bulk import store_trials
from tuner.core import (
    Applied,
    Event,
    Level,
    Measurement,
    Observation,
    Part,
    Phase,
    Plan,
    Safety,
    Setting,
    Space,
    Study,
    Terms,
    Trial,
    TrialState,
)

SPACE = Space(
    (
        knob("gpu.clock_mhz", tuple(range(600, 1411, 90)), 1410),
        knob("gpu.memory_clock_mhz", (810, 1215), 1215),
        knob("batch_size", (1, 2, 4, 8, 16), 16, Part.WORKLOAD),
    )
)
BEST: Setting = {"gpu.clock_mhz": 1050, "gpu.memory_clock_mhz": 1215, "batch_size": 8}
LIMIT = "latency_p99_ms <= 1.2x baseline"
LOOSENED = "latency_p99_ms <= 60"
TRYING_FOR = timedelta(minutes=90)
LEASE_S = 1_000_000.0
TOML = f'lease_s = {LEASE_S}\nprice_per_kwh = 0.25\ncurrency = "EUR"\n'

OLD = "0ld00000"
"""The study of a month ago."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A device, the state it is to be shown in, and how many trials its study has."""

    name: str
    state: str
    trials: int = 0
    phase: Phase | None = None
    limit: str = LIMIT


FLEET = (
    Placed("gpu0@rack1", "holding", 60, Phase.HOLDING),
    Placed("gpu1@rack1", "holding", 300, Phase.HOLDING),
    Placed("gpu2@rack1", "holding", 20, Phase.HOLDING),
    Placed("gpu3@rack1", "trying", 10, Phase.TUNING),
    Placed("gpu4@rack1", "trying", 100, Phase.TUNING),
    Placed("gpu0@rack2", "proposed", 40, Phase.PROPOSED),
    Placed("gpu1@rack2", "paused", 30, Phase.PAUSED),
    Placed("gpu2@rack2", "limit not met", 25, Phase.HOLDING, "latency_p99_ms <= 50"),
    Placed("gpu3@rack2", "offline", 50, Phase.HOLDING),
    Placed("orin0@lab", "safe"),
    Placed("orin1@lab", "safe"),
    Placed("orin2@lab", "holding", 15, Phase.HOLDING),
    Placed("xavier0@edge", "observed"),
)
"""Eight states at once; the ninth, stopped, is every device's after a stop of all."""


def study_of(name: str) -> str:
    """Return the id of a device's study."""
    return f"{[one.name for one in FLEET].index(name):08x}"


def fill(url: str, seed: int = 0) -> None:
    """Store the fleet as of now."""
    store, database, dice = open_store(url), Database(read_url(url)), random.Random(seed)
    now = datetime.now(UTC)
    for one in FLEET:
        away = one.state == "offline"
        seen = now - timedelta(seconds=2 * LEASE_S) if away else now
        board = "Jetson AGX Orin" if one.name.startswith("orin") else "A100-SXM4-40GB"
        host = one.name.partition("@")[2]
        alone = one.state == "observed"
        space = Space(()) if alone else SPACE
        registered = device(one.name, board=board, space=space, agent=host, workload="resnet50",
                       labels={"room": host}, seen_at=seen, observed=alone)  # fmt: skip
        store.devices.put(registered)
        note = Applied(device=one.name, setting=space.default, level=Level.ORIGINAL,
                       at=now - timedelta(days=2))  # fmt: skip
        store.devices.apply(note)
        if alone:
            store.observations.add_all(
                [
                    Observation(study="", device=one.name, setting={}, at=at,
                                measurement=measured(SPACE.default, at, dice))
                    for at in (now - timedelta(minutes=m) for m in range(1, 600))
                ]
            )  # fmt: skip
        if one.phase is not None:
            _tuned(store, database, one, now, dice)
    old = study(Phase.STOPPED, id=OLD, devices=("orin0@lab",), workload="resnet50", space=SPACE,
                name="night batch", created_at=now - timedelta(days=30))  # fmt: skip
    store.studies.add(old, "ann", "created by ann")
    database.engine.dispose()
    store.close()


def _tuned(
    store: Store, database: Database, one: Placed, now: datetime, dice: random.Random
) -> None:
    began = now - (TRYING_FOR if one.phase is Phase.TUNING else timedelta(hours=26))
    advised = one.phase is Phase.PROPOSED
    made = study(
        Phase.BASELINE,
        constraints=(one.limit,),
        devices=(one.name,),
        id=study_of(one.name),
        workload="resnet50",
        space=SPACE,
        policy="polythrottle",
        terms=Terms(
            trials=max(20, one.trials), window_s=10.0,
            safety=Safety.ADVISE if advised else Safety.BALANCED,
        ),
        created_at=began,
    )  # fmt: skip
    store.studies.add(made, "ann", "created by ann")
    store_trials(database, made.id, _trials(one, began, dice))
    _moved(store, made, one, began)
    events = [("holding", "a setting is held"), ("violation", "one window over the limit")]
    for n, (kind, text) in enumerate(events):
        at = now - timedelta(hours=8 * n + 1)
        store.events.add(Event(at=at, kind=kind, text=text, study=made.id, device=one.name))


def _moved(store: Store, made: Study, one: Placed, began: datetime) -> None:
    """Bring a study to its phase, and apply and measure what it holds."""
    stays = one.state == "limit not met"
    plan = Plan.single(SPACE.default if stays else BEST)
    ways = {
        Phase.TUNING: (Phase.TUNING,),
        Phase.HOLDING: (Phase.TUNING, Phase.CONFIRMING, Phase.HOLDING),
        Phase.PAUSED: (Phase.TUNING, Phase.CONFIRMING, Phase.HOLDING, Phase.PAUSED),
        Phase.PROPOSED: (Phase.TUNING, Phase.CONFIRMING, Phase.PROPOSED),
    }
    stored = store.studies.get(made.id)
    if stays:
        wider = study(constraints=(LOOSENED,)).constraints
        stored = store.studies.revise(
            replace(stored, constraints=wider), "bob", "the SLO is 60 ms now", began
        )
    for n, phase in enumerate(ways[one.phase or Phase.TUNING]):
        planned = phase in (Phase.CONFIRMING, Phase.HOLDING, Phase.PROPOSED)
        moved = replace(stored.moved(phase, plan if planned else None), reason=f"why it is {phase}")
        who = "bob" if phase is Phase.PAUSED else "tuner"
        stored = store.studies.revise(moved, who, f"moved to {phase}", began + timedelta(hours=n))
    if one.phase not in (Phase.HOLDING, Phase.PAUSED):
        return
    dice, now = random.Random(7), began + timedelta(hours=26)
    held = plan.rows[0].setting
    times = [now - timedelta(minutes=m) for m in range(1, 60)]
    times += [now - timedelta(minutes=20 * m) for m in range(3, 66)]
    store.observations.add_all(
        [
            Observation(study=made.id, device=one.name, setting=held, at=at,
                        measurement=measured(held, at, dice))
            for at in times
        ]
    )  # fmt: skip
    store.devices.apply(
        Applied(device=one.name, setting=held, level=Level.HOLD, at=began + timedelta(hours=2),
                study=made.id, revision=stored.revision)
    )  # fmt: skip
    if one.phase is Phase.PAUSED:
        at = began + timedelta(hours=3)
        back = Applied(device=one.name, setting=SPACE.default, level=Level.ORIGINAL, at=at)
        store.devices.apply(back)


def _trials(one: Placed, began: datetime, dice: random.Random) -> list[Trial]:
    made = []
    every = TRYING_FOR / max(one.trials, 1)
    for number in range(1, one.trials + 1):
        at = began + number * every
        first, last = number < 4, number > one.trials - 3
        tried = SPACE.default if first else {k.name: dice.choice(k.values) for k in SPACE.knobs}
        tried = BEST if last and number > 5 else tried
        made.append(
            Trial(
                number=number,
                setting=tried,
                phase=Phase.BASELINE if first else Phase.TUNING,
                state=TrialState.COMPLETED,
                started_at=at,
                ended_at=at + timedelta(seconds=12),
                measurement=measured(tried, at, dice),
                why="largest expected saving within the limit",
            )
        )
    return made


def measured(at: Setting, began: datetime, dice: random.Random) -> Measurement:
    """Return a window on a smooth surface with 1 % noise."""
    clock, memory = float(at["gpu.clock_mhz"]) / 1410.0, float(at["gpu.memory_clock_mhz"]) / 1215.0
    batch = float(at["batch_size"]) / 16.0
    energy_j = 0.06 * (0.3 + 0.5 / clock + 1.2 * clock**2) * (0.9 + 0.1 * memory) / batch**0.15
    latency_ms = 100.0 * batch**0.35 / (clock**0.6 * math.sqrt(memory))
    noise = dice.gauss(1.0, 0.01)
    return replace(
        window(energy_j * noise, latency_ms * dice.gauss(1.0, 0.01), rate=2_000.0), started_at=began
    )
