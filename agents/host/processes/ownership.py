"""Attribute the processes on a device to the workload or to others, anew each time, as services restart.

Our definition: all processes of a service or container are one user, and so are a process and its
descendants. Other processes are foreign only if a process of the workload is identified beside them.
Otherwise their owner is unknown: a front end may own the port of an engine in another service, and NVML
may list the processes of another PID namespace (NVIDIA/nvidia-docker, issue 1483; Syllo/nvtop, issue
149).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from agents.host.processes.process_table import ProcessTable, listening_groups
from tuner.core import TuningError

SERVERS = ("nvidia-cuda-mps",)
"""Programs that compute for their clients: the server of MPS belongs to no workload."""
SAME_START_S = 2.0
"""The largest accepted difference between a process's start and the start time that it reports."""
SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadIdentity:
    """The features that identify a workload's processes; empty ones are not used.

    `unit` is the name of a systemd unit and `port` the workload's TCP port on this host. `processes`
    returns process ids; `started_s` returns the start time in seconds since 1970, from the metric
    `process_start_time_seconds`. Both raise TuningError if the workload does not answer.
    """

    unit: str = ""
    processes: Callable[[], Collection[int]] | None = None
    port: int = 0
    started_s: Callable[[], float | None] | None = None


@dataclass(frozen=True, slots=True)
class Attribution:
    """The owners of the processes on a device, by process id.

    `unknown` is the reason why owners could not be determined; empty if they were.
    """

    ours: frozenset[int] = frozenset()
    foreign: frozenset[int] = frozenset()
    unknown: str = ""


@dataclass
class ProcessOwners:
    """Distinguishes the processes of the workload and of this agent from others."""

    table: ProcessTable
    workload: WorkloadIdentity = field(default_factory=WorkloadIdentity)
    agent: int = field(default_factory=os.getpid)
    listening: Callable[[int], frozenset[int]] = listening_groups

    @classmethod
    def below(cls, root: Path) -> ProcessOwners:
        """Return the owners for the processes in the /proc below a root."""
        return cls(ProcessTable(root))

    def attribute(self, pids: Collection[int]) -> Attribution:
        """Return the current owners of these processes."""
        servers = {pid for pid in pids if self.table.program(pid).startswith(SERVERS)}
        pids = set(pids) - servers
        if servers and not pids:
            return Attribution(
                unknown=f"{_numbers(servers)} of MPS computes for clients not listed"
            )
        look = _Look(self)
        hidden = {pid for pid in pids if not self.table.shows(pid)}
        visible = pids - hidden
        ours = frozenset(pid for pid in visible if look.is_ours(pid))
        if not ours:  # the start time is weaker evidence, used only without any other
            ours = frozenset(pid for pid in visible if look.started_with(pid))
        others = frozenset(visible - ours)
        if ours and others:
            return Attribution(ours, others)
        if hidden:
            return Attribution(
                ours, unknown=f"/proc does not show {_numbers(hidden)}, which NVML lists"
            )
        if others:
            return Attribution(
                ours, unknown=f"{_numbers(others)} cannot be distinguished from the workload"
            )
        return Attribution(ours)


class _Look:
    """The workload's data at one moment; each item is read only when needed."""

    def __init__(self, owners: ProcessOwners) -> None:
        self._workload, self._table = owners.workload, owners.table
        self._agent, self._listening = owners.agent, owners.listening

    def is_ours(self, pid: int) -> bool:
        """Return whether a process belongs to the agent, or by unit, process id or port to the workload."""
        line = set(self._table.line(pid))
        if self._agent in line or line & self._workload_pids:
            return True
        service = self._table.service(pid)
        if self._workload.unit and self._workload.unit in service.split("/"):
            return True
        if not service or service == self._own_service:
            return self._in_workload_job(pid)
        if service in {self._table.service(one) for one in self._workload_pids}:
            return True
        return bool(self._port_groups & self._table.group_ids(service))

    def started_with(self, pid: int) -> bool:
        """Return whether a process, an ancestor or another of its service started with the workload."""
        if self._started_s is None:
            return False
        service = self._table.service(pid)
        service = "" if service == self._own_service else service
        alike = [*self._table.line(pid), *(self._table.members(service) if service else ())]
        times = [self._table.started_s(one) for one in alike]
        return any(t is not None and abs(t - self._started_s) <= SAME_START_S for t in times)

    def _in_workload_job(self, pid: int) -> bool:
        """Return whether a process is in a process group (shell job) of the workload, not the agent's."""
        stats = [self._table.stat(one) for one in (pid, self._agent)]
        job, own = (None if stat is None else stat.group for stat in stats)
        members = [self._table.stat(one) for one in self._workload_pids]
        jobs = {stat.group for stat in members if stat is not None}
        return job is not None and job != own and job in jobs

    @cached_property
    def _own_service(self) -> str:
        """The control group of the agent's service."""
        return self._table.service(self._agent)

    @cached_property
    def _workload_pids(self) -> frozenset[int]:
        """The process ids that the workload reports, and the processes that listen on its port."""
        given = self._workload.processes
        numbers: frozenset[int] = frozenset()
        if given is not None:
            try:
                numbers = frozenset(given())
            except TuningError:  # the workload is restarting
                numbers = frozenset()
        port = self._workload.port
        owners = self._table.owners(port) if port else frozenset()
        return frozenset(numbers | owners) - {self._agent}

    @cached_property
    def _port_groups(self) -> frozenset[int]:
        """The ids of the control groups that listen on the workload's port."""
        return self._listening(self._workload.port) if self._workload.port else frozenset()

    @cached_property
    def _started_s(self) -> float | None:
        """The workload's start in seconds since 1970; None if it does not report one."""
        try:
            return self._workload.started_s() if self._workload.started_s is not None else None
        except TuningError:
            return None


def _numbers(pids: Collection[int]) -> str:
    """Return a phrase that lists at most `SHOWN` process ids, for a message."""
    shown = sorted(pids)[:SHOWN]
    more = f" and {len(pids) - SHOWN} more" if len(pids) > SHOWN else ""
    return f"process{'es' if len(pids) > 1 else ''} {', '.join(map(str, shown))}{more}"
