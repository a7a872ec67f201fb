"""A fleet's finished studies in a database, and what each new study would get from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from db.sql.store import SqlStore
from tests.bench.transfer.families import Declared, Known
from tests.stores import memory_store
from tuner.core import Device, Outcome, Past, Phase, Plan, Setting, SiblingMemory, Study, Transfer
from tuner.memory.fleet import FleetMemory

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def device_of(known: Known, declared: Declared | None = None) -> Device:
    """Return the device of a surface, under other labels where these are given."""
    labels = declared or known.declared
    return Device(
        id=str(known.declared),
        kind=labels.kind,
        board=labels.board,
        driver="1",
        agent="bench",
        workload=labels.workload,
        workload_version="1",
        space=known.problem.surface.space,
        metrics=(),
        seen_at=NOW,
    )


class Fleet:
    """Finished studies in a database of their own."""

    def __init__(self) -> None:
        self.store: SqlStore = memory_store()
        self.memory = FleetMemory(self.store, lambda: NOW)

    def finish(self, known: Known, past: Past, declared: Declared | None = None) -> None:
        """Store a study as it ended: its device, trials and hold."""
        study = finished(known, past)
        self.store.devices.put(device_of(known, declared))
        self.store.studies.add(study, "bench", "finished")
        for trial in past.trials:
            self.store.trials.begin(study.id, trial.setting, trial.phase, trial.why, NOW)
            outcome = Outcome(state=trial.state, measurement=trial.measurement)
            self.store.trials.end(study.id, trial.number, outcome, NOW)

    def remember(self) -> None:
        """Build the posteriors of all finished studies."""
        for _ in self.memory.remember():
            pass

    def without(self, known: Sequence[Known]) -> None:
        """Delete studies."""
        for one in known:
            study = self.store.studies.get(str(one.declared))
            self.store.studies.revise(study.moved(Phase.STOPPED), "bench", "left out", NOW)
            self.store.studies.delete(study.id)

    def offered(self, known: Known, past: Past, declared: Declared | None = None) -> SiblingMemory:
        """Return the memory that a new study of a device would have."""
        fresh = finished(known, past)
        device = device_of(known, declared)
        self.store.devices.put(device)
        chosen = self.memory.transfer(fresh) or Transfer()
        return self.memory.memory(replace(fresh, transfer=chosen))


def finished(known: Known, past: Past, held: Setting | None = None) -> Study:
    """Return a bench's study as a finished one of its device."""
    return replace(
        past.study,
        id=str(known.declared),
        devices=(str(known.declared),),
        phase=Phase.HOLDING,
        plan=Plan.single(held or past.study.baseline),
    )
