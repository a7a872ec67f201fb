"""The process that keeps a job's lease at the actuator until the job or its time ends."""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agents.actuator.grants import ActuatorConfig
from agents.actuator_client.line import ActuatorClient
from agents.job.record import JobRecords, utc_now
from agents.job.slurm import SlurmJob, has_node, seen, uuids_of
from tuner.errors import InvalidInput, TuningError, UnknownKnob

BEAT_S = 2.0
"""Seconds between two renewals; the actuator restores a lease not renewed within its agent_grace_s."""
COUNTER_STEP_S = 0.1
"""The update period of NVML's energy counter, in seconds: agents/devices/nvidia/energy.py."""
PACKAGES = "sys/class/powercap/intel-rapl:*[0-9]/energy_uj"


@dataclass
class CountedEnergy:
    """A device's energy since the first reading of its counter, which `read` returns in mJ.

    `refused` is the reason that it is not reported, empty if it is.
    """

    read: Callable[[], int]
    scope: str
    first: int = -1
    last: int = -1
    seconds: float = 0.0
    began: float = 0.0
    refused: str = ""

    def look(self) -> None:
        """Read the counter. A fall means a reset or a wrap, and the energy is then not reported."""
        try:
            shown = self.read()
        except (TuningError, OSError, ValueError) as error:
            self.refused = self.refused or str(error)
            return
        if self.first < 0:
            self.first, self.began = shown, time.monotonic()
        if shown < self.last:
            self.refused = "the energy counter was reset, or has wrapped"
        self.last, self.seconds = shown, time.monotonic() - self.began

    def reported(self) -> dict[str, object]:
        """Return the joules with their standard error, or the reason that they are missing."""
        if self.refused or self.seconds <= 0.0:
            return {"refused": self.refused or "the job had ended before the counter moved"}
        joules = (self.last - self.first) / 1000.0
        error_j = round(joules / self.seconds * COUNTER_STEP_S, 3)
        about = {"seconds": round(self.seconds, 3), "scope": self.scope}
        return {"energy_j": joules, "error_j": error_j, **about}


def counter_of(uuid: str, root: Path) -> CountedEnergy:
    """Return the energy counter of a GPU, or of the host's CPU packages."""
    if uuid.startswith("GPU-"):
        from agents.devices.nvidia.nvml import Gpu, counter_mj  # slow: after the Prolog

        gpu = Gpu(uuid)
        return CountedEnergy(lambda: counter_mj(gpu), "the GPU's own counter, all of its users")

    def packages_mj() -> int:
        return sum(int(path.read_text()) for path in [*root.glob(PACKAGES)]) // 1000

    return CountedEnergy(packages_mj, "RAPL's counters of all packages")


def shares_of(
    job: SlurmJob, wish: Mapping[str, object], devices: Sequence[Mapping[str, Any]]
) -> dict[str, dict[str, object]]:
    """Return the part of a wish for each of the job's own devices: its GPUs, and a whole node's CPUs.

    Raises:
        InvalidInput: it has no device of its own.
        UnknownKnob: none of its devices has a requested knob.
    """
    own, node = {*uuids_of(job)}, has_node(job)
    own |= {about["uuid"] for about in devices if node and about["driver"].startswith("cpu")}
    if not own:
        hint = (
            "request whole GPUs, --gres=gpu:1; for CPUs, a partition with OverSubscribe=EXCLUSIVE"
        )
        raise InvalidInput("the job has no GPU of its own, and no node; shards are none", hint=hint)
    granted = {about["uuid"]: about["granted"] for about in devices if about["uuid"] in own}
    shares = {uuid: {k: v for k, v in wish.items() if k in ours} for uuid, ours in granted.items()}
    if left := wish.keys() - {knob for share in shares.values() for knob in share}:
        hint = f"devices of the job: {', '.join(sorted(own))}"
        raise UnknownKnob(f"no device of the job is granted {min(left)}", hint=hint)
    return {uuid: share for uuid, share in shares.items() if share}


@dataclass
class JobKeeper:
    """Keeps one job's setting on its devices; `lost` has a device's latest interruption."""

    job: SlurmJob
    wish: Mapping[str, object]
    config: ActuatorConfig
    records: JobRecords
    shares: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)
    leased: bool = False

    def keep(self, answer: int) -> None:
        """Take the lease on all devices or on none, write the result to `answer`, and wait for its end."""
        key, ending = self.job.key, self.records.listen(self.job.key)
        self.line = ActuatorClient(Path(self.config.socket))
        counted, caller = dict[str, CountedEnergy](), None
        try:
            self.shares = shares_of(self.job, self.wish, self.line.ask("capabilities")["devices"])
            for uuid in self.shares:
                self._lease(uuid)
            about = {"devices": [*self.shares], "exclusive": has_node(self.job), "pid": os.getpid()}
            self.records.note(key, state="leased", **about)
            self.leased = bool(os.write(answer, b"leased"))
            counted |= {uuid: counter_of(uuid, self.job.root) for uuid in self.shares}
            ended_by, caller = self._wait(counted.values(), ending)
        except (BrokenPipeError, TuningError) as error:
            ended_by = str(error)
            with suppress(BrokenPipeError):
                os.write(answer, ended_by.encode())
        for uuid in self.shares:
            self._try(uuid, lambda uuid: self.line.ask("end_job", device=uuid, job=key))
        if counted:
            energy = {uuid: one.reported() for uuid, one in counted.items()}
            ended = {"ended_by": ended_by, "ended_at": utc_now(), "lost": self.lost}
            self.records.note(key, state="ended", energy=energy, **ended)
        self.records.forget(key, ending)
        del caller  # its close is the answer

    def _wait(
        self, counted: Iterable[CountedEnergy], ending: socket.socket
    ) -> tuple[str, socket.socket | None]:
        """Renew until the lease must end; return the cause, and the connection of an epilog."""
        began = shown_at = time.monotonic()
        while not _looked(counted, ending):
            for uuid in self.shares:
                self._try(uuid, self._lease)
            now = time.monotonic()
            shown_at = now if seen(self.job) else shown_at
            if now >= began + self.config.hold_s:
                return "its longest time", None
            if now >= shown_at + self.config.job_absent_s:
                return "the absence of the job, without an epilog", None
        caller, _ = ending.accept()
        return caller.recv(64).decode(errors="replace"), caller

    def _lease(self, uuid: str) -> None:
        """Lease a device, or renew its lease, and note whether it was lost. Raises TuningError."""
        fields = {"device": uuid, "job": self.job.key, "setting": dict(self.shares[uuid])}
        if not self.line.ask("lease_job", **fields)["renewed"] and self.leased:
            self.lost[uuid] = "the actuator was restarted, or restored it"

    def _try(self, uuid: str, ask: Callable[[str], object]) -> None:
        """Ask the actuator, and note an error."""
        try:
            ask(uuid)
        except TuningError as error:
            self.lost[uuid] = error.message


def _looked(counted: Iterable[CountedEnergy], ending: socket.socket) -> bool:
    """Read the counters before and after a wait of up to BEAT_S; return whether the lease must end."""
    for energy in counted:
        energy.look()
    called = bool(select.select([ending], [], [], BEAT_S)[0])
    for energy in counted:
        energy.look()
    return called
