"""The process that keeps a job's lease at the actuator until the job or its time ends."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

from agents.actuator.grants import ActuatorConfig
from agents.actuator_client.line import ActuatorClient
from agents.devices.nvidia.nvml import Gpu, counter_mj
from agents.job.record import JobRecords, utc_now
from agents.job.slurm import SlurmJob, seen
from tuner.errors import TuningError

BEAT_S = 2.0
"""Seconds between two renewals; the actuator restores a lease not renewed within its agent_grace_s."""
COUNTER_STEP_S = 0.1
"""The update period of NVML's energy counter, in seconds: agents/devices/nvidia/energy.py."""
LEASED = b"leased"
MOST_LOST = 100
ENDINGS = {signal.SIGTERM: "the epilog", signal.SIGUSR1: "the next job on its GPU"}


@dataclass
class CountedEnergy:
    """A GPU's energy since the first reading of its counter.

    `refused` is the reason that it is not reported, empty if it is.
    """

    gpu: Gpu
    first: int = -1
    last: int = -1
    seconds: float = 0.0
    began: float = 0.0
    refused: str = ""

    def look(self) -> None:
        """Read the counter. A fall means a reset, and the energy is then not reported."""
        try:
            shown = counter_mj(self.gpu)
        except TuningError as error:
            self.refused = self.refused or error.message
            return
        if self.first < 0:
            self.first, self.began = shown, time.monotonic()
        if shown < self.last:
            self.refused = "the energy counter was reset"
        self.last, self.seconds = shown, time.monotonic() - self.began

    def reported(self) -> dict[str, object]:
        """Return the joules with their standard error, or the reason that they are missing."""
        if self.refused or self.seconds <= 0.0:
            return {"refused": self.refused or "the job had ended before the counter moved"}
        joules = (self.last - self.first) / 1000.0
        error_j = joules / self.seconds * COUNTER_STEP_S
        about = {
            "seconds": round(self.seconds, 3),
            "scope": "the GPU's own counter, all of its users",
        }
        return {"energy_j": joules, "error_j": round(error_j, 3), **about}


@dataclass
class JobLease:
    """One job's setting on its GPUs."""

    job: SlurmJob
    wish: Mapping[str, float]
    uuids: Sequence[str]
    config: ActuatorConfig
    root: Path
    ours: set[str] = field(default_factory=set)
    lost: list[str] = field(default_factory=list)

    def take(self, line: ActuatorClient) -> None:
        """Put the job's setting in force on every GPU, or on none. Raises TuningError."""
        try:
            for uuid in self.uuids:
                self._hold(line, uuid)
        except TuningError:
            self.give_back(line)
            raise

    def give_back(self, line: ActuatorClient) -> None:
        """Restore every GPU still leased; the actuator has already restored those whose lease it ended."""
        for uuid in sorted(self.ours):
            try:
                line.ask("release", device=uuid)
            except TuningError as error:
                self._lose(f"{uuid} at the end: {error.message}")
        self.ours.clear()

    def renew(self, line: ActuatorClient) -> None:
        """Renew the lease of each GPU; request one that the actuator has ended once more."""
        for uuid in self.uuids:
            try:
                line.ask("renew", device=uuid, lease_s=1.0)
            except TuningError as error:
                self.ours.discard(uuid)
                self._lose(f"{uuid}: {error.message}")
                with suppress(TuningError):
                    self._hold(line, uuid)

    def _hold(self, line: ActuatorClient, uuid: str) -> None:
        """Hold the job's setting on a GPU. Raises TuningError."""
        line.ask("hold", device=uuid, setting=dict(self.wish), valid_for_s=self.config.hold_s)
        self.ours.add(uuid)

    def _lose(self, why: str) -> None:
        """Note an error, each text once."""
        if why not in self.lost and len(self.lost) < MOST_LOST:
            self.lost.append(why)

    def wait(self, line: ActuatorClient, counted: Sequence[CountedEnergy]) -> str:
        """Renew until the lease must end, and return the cause."""
        began = shown_at = time.monotonic()
        while (ended := signal.sigtimedwait(ENDINGS, BEAT_S)) is None:
            self.renew(line)
            for energy in counted:
                energy.look()
            now = time.monotonic()
            shown_at = now if seen(self.job, self.root) else shown_at
            if now >= began + self.config.hold_s:
                return "its longest time"
            if now >= shown_at + self.config.job_absent_s:
                return "the absence of the job, without an epilog"
        return ENDINGS[signal.Signals(ended.si_signo)]


def keep(lease: JobLease, records: JobRecords, answer: int) -> None:
    """Run the process of a lease: take it, write the result to `answer`, and keep it until it ends."""
    job, held = lease.job, records.lock(lease.job.key, lease.job.gpus)
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDINGS)  # an end waits until the driver has answered
    counted = [CountedEnergy(Gpu(uuid)) for uuid in lease.uuids]
    try:
        with closing(ActuatorClient(Path(lease.config.socket))) as line:
            try:
                lease.take(line)
            except TuningError as error:
                os.write(answer, str(error).encode())
                return
            for energy in counted:
                energy.look()
            records.note(job.key, state="leased", gpus=list(lease.uuids))
            try:
                os.write(answer, LEASED)
                ended_by = lease.wait(line, counted)
            except BrokenPipeError:
                ended_by = "a prolog that did not wait for it"
            lease.give_back(line)
            _report(lease, ended_by, counted, records)
    finally:
        records.unlock(job.key, held)


def _report(
    lease: JobLease, ended_by: str, counted: Sequence[CountedEnergy], records: JobRecords
) -> None:
    """Record the end of the lease, and each GPU's energy during it."""
    for energy in counted:
        energy.look()
    energies = dict(zip(lease.uuids, (energy.reported() for energy in counted), strict=True))
    ended = {"ended_by": ended_by, "ended_at": utc_now(), "lost": lease.lost}
    records.note(lease.job.key, state="ended", energy=energies, **ended)
