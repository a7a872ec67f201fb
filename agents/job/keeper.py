"""The process that keeps a job's lease at the actuator until the job or its time ends."""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agents.actuator.grants import ActuatorConfig
from agents.actuator_client.line import ActuatorClient
from agents.job.record import BEGIN_S, JobRecords, utc_now
from agents.job.slurm import SlurmJob, has_node, seen, uuids_of
from tuner.errors import ActuationError, InvalidInput, TuningError, UnknownKnob

BEAT_S = 2.0
"""Seconds between two renewals; the actuator restores a lease not renewed within its agent_grace_s."""


def shares_of(
    job: SlurmJob, wish: Mapping[str, object], devices: Sequence[Mapping[str, Any]]
) -> dict[str, dict[str, object]]:
    """Return the part of a wish for each of the job's own devices: its GPUs, and a whole node's CPUs.

    Raises:
        InvalidInput: it has no device of its own.
        UnknownKnob: one of its GPUs, or every CPU, lacks a requested knob.
    """
    gpus, node = [*uuids_of(job)], has_node(job)
    cpus = [about["uuid"] for about in devices if node and about["driver"].startswith("cpu")]
    if not (own := [*gpus, *cpus]):
        hint = (
            "request whole GPUs, --gres=gpu:1; for CPUs, a partition with OverSubscribe=EXCLUSIVE"
        )
        raise InvalidInput("the job has no GPU of its own, and no node", hint=hint)
    granted = {about["uuid"]: about["granted"] for about in devices if about["uuid"] in own}
    shares = {uuid: {k: v for k, v in wish.items() if k in granted.get(uuid, ())} for uuid in own}
    for knob in sorted(wish):
        without = [uuid for uuid in own if knob not in shares[uuid]]
        part = [uuid for uuid in without if uuid in gpus and knob.startswith("gpu.")]
        if part or len(without) == len(own):
            hint = f"devices of the job: {', '.join(sorted(own))}"
            raise UnknownKnob(f"{', '.join(part or own)}: {knob} is not granted there", hint=hint)
    return {uuid: share for uuid, share in shares.items() if share}


@dataclass
class DeviceLease:
    """A job's lease of one device, with a connection and a thread of its own.

    So a device that hangs delays no other one. `lost` is the latest interruption of the lease.
    """

    job: SlurmJob
    line: ActuatorClient
    uuid: str
    driver: str
    setting: Mapping[str, object]
    refused: TuningError | None = None
    lost: str = ""
    energy: Mapping[str, object] = field(
        default_factory=lambda: {"refused": "its process failed: nothing was read"}
    )

    def begin(self) -> None:
        """Put the setting in force, or keep the error."""
        try:
            self._ask("lease_job", setting=dict(self.setting))
        except TuningError as error:
            self.refused = error

    def hold(self, over: threading.Event) -> None:
        """Renew the lease and count the energy until it is over, then end it in any case."""
        try:
            from agents.host.machine import HostClock  # slow; the Prolog has its answer
            from agents.job.energy import JobEnergy

            counted = JobEnergy(self.uuid, self.driver, self.job.root, HostClock())
            while not over.wait(BEAT_S):
                counted.look()
                self._renew()
            counted.look()
            self.energy = counted.reported()
        finally:
            self.end()

    def end(self) -> None:
        """Restore the device, and note an error."""
        try:
            self._ask("end_job")
        except TuningError as error:
            self.lost = error.message
        self.line.close()

    def _renew(self) -> None:
        """Renew the lease, and note an interruption."""
        try:
            if not self._ask("lease_job", setting=dict(self.setting))["renewed"]:
                self.lost = "the actuator was restarted, or restored it"
        except TuningError as error:
            self.lost = error.message

    def _ask(self, verb: str, **fields: object) -> dict[str, Any]:
        """Return the actuator's answer. Raises TuningError."""
        return self.line.ask(verb, device=self.uuid, job=self.job.key, **fields)


@dataclass
class JobKeeper:
    """Keeps one job's setting on its devices."""

    job: SlurmJob
    wish: Mapping[str, object]
    config: ActuatorConfig
    records: JobRecords
    leases: list[DeviceLease] = field(default_factory=list)

    def keep(self, answer: int) -> None:
        """Take the lease on all devices or on none, write the result to `answer`, and wait for its end."""
        key, ending, over = self.job.key, self.records.listen(self.job.key), threading.Event()
        ended_by, caller, leased = "an error of its process", None, False
        threads = list[threading.Thread]()
        try:
            self._lease()
            leased = bool(os.write(answer, b"leased"))
            threads = self._each(lambda lease: lease.hold(over))
            uuids, node = [lease.uuid for lease in self.leases], has_node(self.job)
            about = {"devices": uuids, "exclusive": node, "pid": os.getpid()}
            self.records.note(key, state="leased", **about)
            ended_by, caller = self._wait(ending)
        except (BrokenPipeError, TuningError) as error:
            ended_by = str(error)
            with suppress(BrokenPipeError):
                leased or os.write(answer, ended_by.encode())
        finally:
            over.set()
            for thread in threads or self._each(DeviceLease.end):
                thread.join()
            if leased:
                lost = {lease.uuid: lease.lost for lease in self.leases if lease.lost}
                energy = {lease.uuid: lease.energy for lease in self.leases}
                ended = {"ended_by": ended_by, "ended_at": utc_now(), "lost": lost}
                self.records.note(key, state="ended", energy=energy, **ended)
            self.records.forget(key, ending)
            if caller is not None:
                caller.close()  # the answer

    def _lease(self) -> None:
        """Lease all devices at once. Raises the first error of the actuator, or of a late device."""
        with_all = ActuatorClient(Path(self.config.socket))
        devices = with_all.ask("capabilities")["devices"]
        with_all.close()
        drivers = {about["uuid"]: about["driver"] for about in devices}
        self.leases = [
            DeviceLease(
                self.job, ActuatorClient(Path(self.config.socket)), uuid, drivers[uuid], share
            )
            for uuid, share in shares_of(self.job, self.wish, devices).items()
        ]
        until = time.monotonic() + BEGIN_S
        for lease, thread in zip(self.leases, self._each(DeviceLease.begin), strict=True):
            thread.join(max(0.0, until - time.monotonic()))
            if thread.is_alive():
                raise ActuationError(f"{lease.uuid}: no lease within {BEGIN_S:g} s")
            if lease.refused:
                raise lease.refused

    def _each(self, work: Callable[[DeviceLease], None]) -> list[threading.Thread]:
        """Return a started thread for each lease."""
        threads = [threading.Thread(target=work, args=(lease,)) for lease in self.leases]
        for thread in threads:
            thread.start()
        return threads

    def _wait(self, ending: socket.socket) -> tuple[str, socket.socket | None]:
        """Return the cause of the lease's end, and the connection of an epilog."""
        began = shown_at = time.monotonic()
        while True:
            if select.select([ending], [], [], BEAT_S)[0]:
                caller, _ = ending.accept()
                caller.settimeout(1.0)
                with suppress(OSError):
                    if cause := caller.recv(64).decode(errors="replace"):
                        return cause, caller
                caller.close()  # a prolog that only checked whether this process lives
            now = time.monotonic()
            shown_at = now if seen(self.job) else shown_at
            if now >= began + self.config.hold_s:
                return "its longest time", None
            if now >= shown_at + self.config.job_absent_s:
                return "the absence of the job, without an epilog", None
