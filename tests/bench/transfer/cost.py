"""The processor time of a study's suggestions with a thousand siblings in the database."""

from __future__ import annotations

import time
from dataclasses import replace
from statistics import median

import torch

from policies.polythrottle.policy import Polythrottle
from tests.bench.contest.replay import Task, studied
from tests.bench.transfer.families import families
from tests.bench.transfer.fleet import Fleet, finished
from tuner.core import NO_MEMORY, Past, Phase, Transfer

SIBLINGS = 1000
TRIALS = (0, 2, 5, 8)
"""Numbers of trials after which a suggestion is timed."""


def cost(seed: int) -> dict[str, object]:
    """Return seconds of one thread: to choose siblings, to load them, and to suggest."""
    torch.set_num_threads(1)
    known, other = families(seed, ("roofline",))[:2]
    task = Task(tuner="ours", problem=known.problem, slack=1.1, seed=seed, budgets=(8,))
    _, past = studied(task)
    fleet = Fleet()
    fleet.finish(other, studied(replace(task, problem=other.problem))[1])
    fleet.remember()
    device = fleet.store.devices.get(str(other.declared))
    ((_, posterior),) = fleet.store.posteriors.near(device, 1)
    study = finished(known, past)
    fleet.store.devices.put(replace(device, id=study.id))
    for number in range(SIBLINGS):
        name = f"sibling-{number}"
        fleet.store.studies.add(replace(study, id=name, devices=(name,)), "bench", "")
        fleet.store.posteriors.put(
            replace(posterior, study=name, revision=number), study.created_at
        )
    began = time.process_time()
    used = replace(study, transfer=fleet.memory.transfer(study) or Transfer())
    chose = time.process_time() - began
    memory = fleet.memory.memory(used)
    loaded = time.process_time() - began - chose
    found: dict[str, object] = {
        "siblings": SIBLINGS,
        "settings": study.space.size,
        "choose_s": round(chose, 4),
        "load_s": round(loaded, 4),
    }
    for name, which in (("suggest_s", memory), ("suggest_cold_s", NO_MEMORY)):
        seconds = []
        for count in TRIALS:
            tuned = [t for t in past.trials if t.phase is Phase.TUNING][:count]
            base = [t for t in past.trials if t.phase is not Phase.TUNING]
            early = Past(study=past.study, trials=(*base, *tuned), memory=which)
            began = time.process_time()
            Polythrottle().suggest(early)
            seconds.append(time.process_time() - began)
        found[name] = {"median": round(median(seconds), 4), "most": round(max(seconds), 4)}
    return found
