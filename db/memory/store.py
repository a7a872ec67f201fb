"""The memory without a database: for tests and for runs that shall leave nothing behind.

Values are copied on the way in and on the way out, as a database would.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from datetime import datetime

from db import refusals
from db.memory.audit import MemoryAudit
from db.memory.bus import LocalBus
from db.memory.deliveries import MemoryDeliveries
from db.memory.log import MemoryEvents, MemoryObservations
from db.memory.replicas import MemoryReplicas
from db.memory.stops import MemoryStops
from db.memory.tables import Tables
from db.memory.tokens import MemoryTokens
from tuner.core import (
    ANYWHERE,
    Applied,
    Context,
    Device,
    Lease,
    Outcome,
    Phase,
    Report,
    Revision,
    Setting,
    Situation,
    Study,
    Trial,
    TrialCare,
    TrialState,
)


class MemoryStudies:
    """Studies in memory."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def add(self, study: Study, who: str, why: str) -> None:
        """Store a new study as revision 1. Raises Conflict, DeviceBusy."""
        with self._tables.lock:
            if study.id in self._tables.revisions:
                raise refusals.id_taken(study.id)
            self._check_devices(study)
            first = deepcopy(replace(study, revision=1))
            self._tables.trials[study.id] = {}
            self._tables.revisions[study.id] = [
                Revision(study=first, who=who, why=why, at=study.created_at)
            ]

    def get(self, study: str) -> Study:
        """Return a study as it is now. Raises NotFound."""
        with self._tables.lock:
            return deepcopy(self._tables.study(study))

    def list(
        self,
        *,
        device: str | None = None,
        among: Collection[str] | None = None,
        active: bool = False,
    ) -> Sequence[Study]:
        """Return all studies, oldest first: those of a device, of these ids, the active ones."""
        return self.stored(device=device, among=among, active=active)

    def stored(
        self,
        *,
        device: str | None = None,
        among: Collection[str] | None = None,
        active: bool = False,
    ) -> Sequence[Study]:
        """Return the same: all in memory can be read."""
        with self._tables.lock:
            current = [
                study
                for revisions in self._tables.revisions.values()
                for study in (revisions[-1].study,)
                if (device is None or device in study.devices)
                and (among is None or study.id in among)
                and (study.active or not active)
            ]
            return tuple(deepcopy(sorted(current, key=lambda s: (s.created_at, s.id))))

    def stopped(self) -> Sequence[str]:
        """Return the ids of the studies that are over, oldest first."""
        return tuple(study.id for study in self.list() if not study.active)

    def of(self, device: str) -> Study | None:
        """Return the active study that has a device, None where none does."""
        return next((s for s in self.list() if s.active and device in s.devices), None)

    def situation(self, device: str) -> Situation:
        """Return what a device's next order goes by. Raises NotFound."""
        tables = self._tables
        with tables.lock:
            if device not in tables.devices:
                raise refusals.no_device(device)
            study, notes = self.of(device), tables.applied.get(device)
            trials = {} if study is None else tables.trials[study.id]
            return Situation(
                applied=deepcopy(notes[-1]) if notes else None,
                study=study,
                since=None if study is None else tables.revisions[study.id][-1].at,
                trials=len(trials),
                running=any(not trial.state.final for trial in trials.values()),
                stopped=tables.stop is not None,
            )

    def windows_s(self, devices: Collection[str]) -> Mapping[str, float]:
        """Return how long a window of each of these is; without those that no active study has."""
        return {
            device: study.terms.window_s
            for study in self.list(active=True)
            for device in study.devices
            if device in devices
        }

    def active(self) -> Mapping[str, int]:
        """Return the revision of each study that is not over, by its id, oldest first."""
        return {study.id: study.revision for study in self.list(active=True)}

    def ids(self, device: str | None = None, workload: str | None = None) -> Sequence[str]:
        """Return the ids of the studies of a device, of a workload, or of both; oldest first."""
        found = self.list(device=device)
        return tuple(s.id for s in found if workload in (None, s.workload))

    def holding(self) -> Sequence[str]:
        """Return the ids of the studies that hold a plan, oldest first."""
        return tuple(study.id for study in self.list() if study.phase is Phase.HOLDING)

    def revise(self, study: Study, who: str, why: str, at: datetime) -> Study:
        """Store the next revision and return it. Raises NotFound, Conflict, DeviceBusy."""
        with self._tables.lock:
            stored = self._tables.study(study.id).revision
            if stored != study.revision:
                raise refusals.revised_since(study.id, study.revision, stored)
            self._check_devices(study)
            following = deepcopy(replace(study, revision=study.revision + 1))
            self._tables.revisions[study.id].append(
                Revision(study=following, who=who, why=why, at=at)
            )
            return deepcopy(following)

    def revisions(self, study: str) -> Sequence[Revision]:
        """Return every revision, first to last. Raises NotFound."""
        with self._tables.lock:
            self._tables.study(study)
            return tuple(deepcopy(self._tables.revisions[study]))

    def latest(self, study: str) -> Revision:
        """Return the last revision. Raises NotFound."""
        with self._tables.lock:
            self._tables.study(study)
            return deepcopy(self._tables.revisions[study][-1])

    def delete(self, study: str) -> None:
        """Remove an inactive study with all that hangs on it. Raises NotFound, Conflict."""
        tables = self._tables
        with tables.lock:
            found = tables.study(study)
            if found.active:
                raise refusals.still_active(study, found.phase)
            del tables.revisions[study]
            for number in tables.trials.pop(study):
                del tables.states[study, number]
                tables.reports.pop((study, number), None)
            for key in [k for k in tables.observations if k[0] == study]:
                del tables.observations[key]
            for device in [d for d, lease in tables.leases.items() if lease.study == study]:
                del tables.leases[device]

    def _check_devices(self, study: Study) -> None:
        if not study.active:
            return
        for revisions in self._tables.revisions.values():
            other = revisions[-1].study
            if other.id == study.id or not other.active:
                continue
            for device in sorted(study.devices):
                if device in other.devices:
                    raise refusals.device_busy(device, other.id)


class MemoryTrials:
    """Trials in memory."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def begin(
        self,
        study: str,
        setting: Setting,
        phase: Phase,
        why: str,
        at: datetime,
        context: Context = ANYWHERE,
        seen: tuple[int, int] | None = None,
        device: str = "",
    ) -> Trial:
        """Store a RUNNING trial under the next number and return it. Raises NotFound, StaleRevision."""
        with self._tables.lock:
            now = self._tables.study(study).revision, len(self._tables.trials[study])
            if seen not in (None, now):
                raise refusals.begun_since(study)
            number = now[1] + 1
            trial = Trial(
                number=number,
                setting=dict(setting),
                phase=phase,
                context=dict(context),
                device=device,
                started_at=at,
                why=why,
            )
            self._tables.trials[study][number] = trial
            self._tables.states[study, number] = [(TrialState.RUNNING, 1, at)]
            return deepcopy(trial)

    def restart(self, study: str, number: int, at: datetime) -> Trial:
        """Count a further attempt of a running trial. Raises NotFound, IllegalTransition."""
        with self._tables.lock:
            return self._keep(study, self._tables.trial(study, number).again(), at)

    def end(self, study: str, number: int, outcome: Outcome, at: datetime) -> Trial:
        """Give a trial its one final state. Raises NotFound, IllegalTransition."""
        with self._tables.lock:
            ended = self._tables.trial(study, number).ended(deepcopy(outcome), at)
            return self._keep(study, ended, at)

    def list(self, study: str, first: int = 1) -> Sequence[Trial]:
        """Return the trials of a study by number, from the first on; empty for an unknown study."""
        with self._tables.lock:
            trials = self._tables.trials.get(study, {}).values()
            return tuple(deepcopy([trial for trial in trials if trial.number >= first]))

    def tried(self, study: str, setting: Setting) -> Sequence[Trial]:
        """Return the trials of a study at a setting by number; empty for an unknown study."""
        return tuple(trial for trial in self.list(study) if trial.tries(setting))

    def latest(
        self,
        last: int,
        skip: int = 0,
        studies: Collection[str] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        state: TrialState | None = None,
        device: str | None = None,
    ) -> Sequence[tuple[str, Trial]]:
        """Return trials with their study, latest start first: of these studies, or of all."""
        with self._tables.lock:
            found = [
                (study, trial)
                for study, trials in self._tables.trials.items()
                if studies is None or study in studies
                for trial in trials.values()
                if (since is None or trial.started_at >= since)
                and (until is None or trial.started_at < until)
                and state in (None, trial.state)
                and device in (None, trial.device or device)
            ]
            found.sort(key=lambda each: (each[1].started_at, each[0], each[1].number), reverse=True)
            return tuple(deepcopy(found[skip : skip + last]))

    def count(self, study: str) -> int:
        """Return how many trials a study has; 0 for an unknown study."""
        return len(self._tables.trials.get(study, {}))

    def running(self, study: str) -> Sequence[Trial]:
        """Return the trials of a study that have not ended, by number."""
        with self._tables.lock:
            trials = self._tables.trials.get(study, {}).values()
            return tuple(deepcopy([trial for trial in trials if not trial.state.final]))

    def at_work(self) -> Sequence[TrialCare]:
        """Return every trial that has not ended, by study and number, with the leases on it."""
        with self._tables.lock:
            running = [
                (study, trial)
                for study, trials in sorted(self._tables.trials.items())
                for trial in trials.values()
                if not trial.state.final
            ]
            leases, reports = self._tables.leases.values(), self._tables.reports
            return tuple(
                TrialCare.of(study, trial, leases, any(not r.late for r in known.values()))
                for study, trial in running
                for known in (reports.get((study, trial.number), {}),)
            )

    def report(self, report: Report) -> bool:
        """Keep a report; False where it is kept already. Raises NotFound."""
        with self._tables.lock:
            self._tables.trial(report.study, report.trial)
            kept = self._tables.reports.setdefault((report.study, report.trial), {})
            key = report.device, report.token, report.nonce
            if key in kept:
                return False
            kept[key] = deepcopy(report)
            return True

    def reports(self, study: str, number: int) -> Sequence[Report]:
        """Return every report on a trial, late ones too, in order of arrival."""
        with self._tables.lock:
            return tuple(deepcopy(list(self._tables.reports.get((study, number), {}).values())))

    def states(self, study: str, number: int) -> Sequence[tuple[TrialState, int, datetime]]:
        """Return the trial's history: state, attempt, and when it came to that."""
        with self._tables.lock:
            return tuple(self._tables.states.get((study, number), ()))

    def _keep(self, study: str, trial: Trial, at: datetime) -> Trial:
        self._tables.trials[study][trial.number] = trial
        self._tables.states[study, trial.number].append((trial.state, trial.attempt, at))
        return deepcopy(trial)


class MemoryLeases:
    """Leases in memory. Tokens outlive the leases they fenced."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def grant(
        self, device: str, study: str, trial: Trial, agent: str, expires_at: datetime
    ) -> Lease:
        """Give the device's lease to a trial, replacing any other. Raises NotFound."""
        with self._tables.lock:
            self._tables.trial(study, trial.number)
            token = self._tables.tokens.get(device, 0) + 1
            lease = Lease(
                device=device,
                study=study,
                trial=trial.number,
                attempt=trial.attempt,
                token=token,
                nonce=secrets.token_hex(16),
                agent=agent,
                expires_at=expires_at,
            )
            self._tables.tokens[device] = token
            self._tables.leases[device] = lease
            return lease

    def get(self, device: str) -> Lease | None:
        """Return the device's lease, None where there is none."""
        with self._tables.lock:
            return self._tables.leases.get(device)

    def renew(self, device: str, token: int, nonce: str, expires_at: datetime) -> Lease:
        """Put off the end of the lease that has this token and nonce. Raises NotFound, StaleToken."""
        with self._tables.lock:
            lease = self._tables.leases.get(device)
            if lease is None:
                raise refusals.no_lease(device)
            lease.admit(token, nonce)
            self._tables.leases[device] = renewed = replace(lease, expires_at=expires_at)
            return renewed

    def release(self, device: str, token: int) -> None:
        """End the lease that has this token; quietly nothing where it is not in force."""
        with self._tables.lock:
            lease = self._tables.leases.get(device)
            if lease is not None and lease.token == token:
                del self._tables.leases[device]


class MemoryDevices:
    """Devices in memory."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def put(self, device: Device) -> None:
        """Store a device, replacing its former description."""
        with self._tables.lock:
            self._tables.devices[device.id] = deepcopy(device)

    def get(self, device: str) -> Device:
        """Return a device. Raises NotFound."""
        with self._tables.lock:
            if device not in self._tables.devices:
                raise refusals.no_device(device)
            return deepcopy(self._tables.devices[device])

    def agent(self, device: str) -> str:
        """Return the agent that registered a device. Raises NotFound."""
        return self.get(device).agent

    def list(self) -> Sequence[Device]:
        """Return all devices by id."""
        with self._tables.lock:
            return tuple(deepcopy([d for _, d in sorted(self._tables.devices.items())]))

    def apply(self, applied: Applied) -> None:
        """Note what a device is set to, where that differs from the last note."""
        with self._tables.lock:
            notes = self._tables.applied.setdefault(applied.device, [])
            if not notes or replace(notes[-1], at=applied.at) != applied:
                notes.append(deepcopy(applied))

    def applied(self, device: str) -> Sequence[Applied]:
        """Return what a device was set to, latest first."""
        with self._tables.lock:
            return tuple(deepcopy(self._tables.applied.get(device, [])[::-1]))

    def standing(self) -> Mapping[str, Applied]:
        """Return what each device is set to, by its id; without those of which nothing is known."""
        with self._tables.lock:
            return {name: deepcopy(notes[-1]) for name, notes in self._tables.applied.items()}

    def refuse(self, device: str, why: str) -> None:
        """Note why a device takes no orders; empty: it takes them."""
        with self._tables.lock:
            if device in self._tables.devices:
                self._tables.refusals[device] = why

    def refusals(self, devices: Collection[str] | None = None) -> Mapping[str, str]:
        """Return why (these) devices take no orders, by id; without those that do and unknown ones."""
        with self._tables.lock:
            known = self._tables.refusals
            asked = known if devices is None else devices
            return {name: why for name in asked if (why := known.get(name))}

    def heard_at(self) -> Mapping[str, datetime]:
        """Return when each device was last heard of, by its id, as it was stored."""
        with self._tables.lock:
            return {name: found.seen_at for name, found in self._tables.devices.items()}

    def seen(self, at: Mapping[str, datetime]) -> None:
        """Note when devices were last heard of; unknown ones are left out."""
        with self._tables.lock:
            for name in at.keys() & self._tables.devices.keys():
                known = self._tables.devices[name]
                self._tables.devices[name] = replace(known, seen_at=at[name])

    def forget(self, device: str) -> None:
        """Remove a device and what was applied to it. Raises NotFound, DeviceBusy."""
        with self._tables.lock:
            self.get(device)
            owner = MemoryStudies(self._tables).of(device)
            if owner is not None:
                raise refusals.device_busy(device, owner.id)
            del self._tables.devices[device]
            self._tables.applied.pop(device, None)
            self._tables.refusals.pop(device, None)


class MemoryStore:
    """All ports over one set of tables that ends with the process."""

    def __init__(self) -> None:
        tables = Tables()
        self.studies = MemoryStudies(tables)
        self.trials = MemoryTrials(tables)
        self.leases = MemoryLeases(tables)
        self.devices = MemoryDevices(tables)
        self.observations = MemoryObservations(tables)
        self.bus = LocalBus()
        self.events = MemoryEvents(tables, self.bus)
        self.tokens = MemoryTokens(tables)
        self.stops = MemoryStops(tables)
        self.audit = MemoryAudit(tables)
        self.deliveries = MemoryDeliveries(tables)
        self.replicas = MemoryReplicas(tables)

    def ping(self) -> None:
        """Return quietly: memory always answers."""

    def check_writable(self) -> None:
        """Return quietly: memory takes everything."""

    def close(self) -> None:
        """Let go of nothing: there are no connections."""
