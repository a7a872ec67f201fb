"""The whole fleet at a glance: the status of every device, and the savings so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial

from tuner.core import (
    ACTIVE,
    ENERGY,
    IN_ALL,
    Applied,
    Device,
    Level,
    Phase,
    Study,
    UnreadableStudy,
    called,
    summed,
)
from tuner.rows import StoredRows
from tuner.service.inventory import watched_metrics
from tuner.service.operations import Operations
from tuner.service.reports import PERIODS
from tuner.service.summaries import StudySummary, Summaries
from tuner.wire import FleetRow, FleetView, Health, Savings

SEARCHING = (Phase.BASELINE, Phase.TUNING, Phase.CONFIRMING)


@dataclass(frozen=True)
class FleetOverview:
    """Answers requests about all devices together."""

    operations: Operations
    summaries: Summaries
    _kept: dict[str, Study | UnreadableStudy] = field(default_factory=dict, init=False, repr=False)

    def view(self) -> FleetView:
        """Return the status of every device. Sums are given once every study is evaluated or has failed."""
        store = self.operations.loop.store
        phases, devices = store.studies.phases(), store.devices.list()
        applied = store.devices.standing()
        lost = StoredRows[Device]((), {**applied.unread, **devices.unread})
        active = {name: revision for name, (phase, revision) in phases.items() if phase in ACTIVE}
        studies = [s for s in self._present(active, phases) if s.active]
        summaries = self.summaries.of_each(
            (study.id for study in studies), phases.keys() - active.keys()
        )
        owners = {device: study for study in studies for device in study.devices}
        stopped, capped = store.stops.current() is not None, self.operations.divider.capped()
        standing = {one.device: one for one in applied}
        standing |= {} if stopped else self._on_trial(owners)

        def row(device: Device) -> FleetRow:
            name, owner = device.id, owners.get(device.id)
            summary = summaries.get(owner.id) if owner else None
            halted = stopped or self.operations.loop.presence.released(name) is not None
            return self._row(device, standing.get(name), owner, summary, halted, name in capped)

        of_fleet = self.operations.loop.changes.rows("the row of the fleet")
        each = of_fleet.each
        rows = [
            each(d.id, partial(row, d), partial(_faulty, d))
            for d in devices
            if d.id not in lost.unread
        ]
        heard = store.devices.heard_at() if lost.unread else {}
        rows += of_fleet.unread(lost, lambda name, why: _unread(name, why, heard.get(name)))
        counted = [s for s in summaries.values() if s is not None]
        pending = len(summaries) - len(counted)
        saved: tuple[Savings, ...] = ()
        if not pending:  # a partial sum looks like a small one
            saved = each("all savings", partial(self.savings, counted), lambda _: ())
        return FleetView(
            rows=tuple(rows),
            health=dict(Counter(str(row.health) for row in rows)),
            stopped=stopped,
            studies=len(summaries),
            pending=pending,
            failed=sum(bool(s.error) for s in counted),
            uncounted=sum(s.uncounted for s in counted),
            savings=saved,
        )

    def studies(self) -> Sequence[Study | UnreadableStudy]:
        """Return all studies, oldest first."""
        stamps = self.operations.loop.store.studies.stamps()
        return self._present({name: stamp.revision for name, stamp in stamps.items()}, stamps)

    def _present(
        self, revisions: Mapping[str, int], every: Mapping[str, object]
    ) -> Sequence[Study | UnreadableStudy]:
        """Return the studies of these ids, in this order, each at its given revision or a later one.

        A study is read again only if its revision has changed; those not in `every` are forgotten.
        """
        kept = self._kept
        for name in kept.keys() - every.keys():
            kept.pop(name, None)
        present = {name: kept.get(name) for name in revisions}  # another thread may forget some
        changed = [n for n, s in present.items() if s is None or s.revision != revisions[n]]
        if changed:
            stored = self.operations.loop.store.studies.stored(among=changed)
            present |= {study.id: study for study in stored}
            kept |= {study.id: study for study in stored}
        return [study for study in present.values() if study is not None]

    def _on_trial(self, owners: Mapping[str, Study | UnreadableStudy]) -> dict[str, Applied]:
        """Return the settings of running trials by device: an agent reports nothing while it measures."""
        trials = self.operations.loop.store.trials
        applied = {}
        for study in {work.study for work in trials.at_work()}:
            for trial in trials.running(study):
                for device, owner in owners.items():
                    if owner.id == study and trial.device in ("", device):
                        applied[device] = Applied(
                            device=device, setting=trial.setting, level=Level.TRIAL,
                            at=trial.started_at, study=study,
                        )  # fmt: skip
        return applied

    def savings(self, summaries: Sequence[StudySummary]) -> tuple[Savings, ...]:
        """Return the savings of all holds together, for each origin and each period of `PERIODS`."""
        price, totals = self.operations.price, []
        for origin in sorted({s.origin for s in summaries}, key=lambda o: (o != "measured", o)):
            own = [s for s in summaries if s.origin == origin]
            for period in (*PERIODS, IN_ALL):
                parts = [p for s in own for p in s.saved if p.period == period]
                if not any(part.saved_j is not None for part in parts):
                    continue
                totals.append(
                    Savings(
                        period=summed(parts),
                        origin=origin,
                        currency=price.currency,
                        priced_by=tuple(series.name for series in price.series.values()),
                    )
                )
        return tuple(totals)

    def _row(
        self,
        device: Device,
        applied: Applied | None,
        study: Study | UnreadableStudy | None,
        summary: StudySummary | None,
        stopped: bool,
        capped: bool,
    ) -> FleetRow:
        """Return the row of one device; in its status a fault comes before all other states."""
        presence = self.operations.loop.presence
        unable = presence.blocked(device, study is not None)
        online = presence.online(device, study if isinstance(study, Study) else None)
        level, phase = applied.level if applied else None, study.phase if study else None
        error = (
            study.error if isinstance(study, UnreadableStudy) else summary.error if summary else ""
        )
        unmet = summary.unmet if study and summary else None
        states = {
            Health.OFFLINE: not online,
            Health.UNREADABLE: error,
            Health.STOPPED: stopped,
            Health.LIMIT_NOT_MET: capped or unmet,
            Health.PAUSED: phase is Phase.PAUSED or (study and unable),
            Health.PROPOSED: phase is Phase.PROPOSED,
            Health.NOT_MEASURED: device.observed and unable,
            Health.OBSERVED: device.observed,
            Health.HOLDING: level is Level.HOLD,
            Health.TRYING: level is Level.TRIAL or phase in SEARCHING,
            Health.SAFE: True,
        }
        in_force = online and not stopped and saves_now(study, applied)
        energy = device.metric(called(ENERGY, device.quantities))
        limits = summary.limits if summary else ()
        whole = summary.whole if summary else None
        latency, power = watched_metrics(device, limits)
        return FleetRow.of(
            device,
            device=device.id,
            host=device.agent,
            health=next(health for health, holds in states.items() if holds),
            unable=unable,
            study=study.id if study else "",
            phase=phase,
            setting=applied.setting if applied else None,
            default=device.space.default,
            level=level,
            last_seen=presence.last_seen(device),
            energy_origin=str(energy.origin) if energy else "",
            error=error,
            saving=summary.saving if summary and in_force else None,
            saved_j=whole.saved_j if whole else None,
            saved_stderr_j=whole.stderr_j if whole else None,
            latency=latency,
            power=power,
            limit=next((limit for limit in limits if limit.metric == latency), None),
        )


def _faulty(device: Device, why: str) -> FleetRow:
    """Return the row of a device whose full row failed, with the reason."""
    row = _unread(device.id, why, device.seen_at)
    about = {"board": device.board, "workload": device.workload, "host": device.agent}
    return row.model_copy(update={**about, "default": device.space.default})


def _unread(name: str, why: str, heard_at: datetime | None) -> FleetRow:
    """Return the row of a device that cannot be read from the database."""
    return FleetRow(
        device=name, board="", workload="", health=Health.UNREADABLE, default={},
        last_seen=heard_at or datetime.fromtimestamp(0.0, UTC), error=why,
    )  # fmt: skip


def saves_now(study: Study | UnreadableStudy | None, applied: Applied | None) -> bool:
    """Return whether a device, by its last report, holds its study's setting and not the baseline."""
    if not isinstance(study, Study) or applied is None:
        return False
    holds = applied.level is Level.HOLD and applied.study == study.id
    return holds and not study.rests(applied.setting)
