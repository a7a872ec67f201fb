"""The processes of a service: their CPU time, their start, and signals to them.

Source: proc(5) for /proc/PID/stat and /proc/PID/comm; pidfd_open(2) for a signal that reaches no other
program.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path

from agents.host.processes import commands
from agents.host.processes.ownership import WorkloadIdentity
from agents.host.processes.process_table import ProcessStat, ProcessTable
from tuner.core import ActuationError, DeviceLost

RELOADS = {"HUP": signal.SIGHUP, "USR1": signal.SIGUSR1, "USR2": signal.SIGUSR2}
"""The signals with which services reload their configuration; no others are sent."""
LOOKS = 10
"""The most repeated reads of a process tree that changes while it is read."""


class ProcessTree:
    """A service whose first process, with the name `program`, writes its process id to a file."""

    def __init__(self, pid_file: Path, program: str) -> None:
        self._pid_file, self._program, self._table = pid_file, program, ProcessTable()

    def cpu_s(self) -> float | None:
        """Return the CPU seconds of the process tree; processes that left it (daemons) do not count."""
        root = self._root()
        before, tree = self._tree(root), self._tree(root)
        for _ in range(LOOKS):
            # A child that ends during a read is counted twice or not at all. If two reads have the same
            # processes, the second one is complete.
            if before.keys() == tree.keys():
                break
            before, tree = tree, self._tree(root)
        return sum(one.used for one in tree.values()) / os.sysconf("SC_CLK_TCK")

    def started(self) -> str:
        """Return the first process's id and its start in clock ticks since boot, as `PID:TICKS`."""
        root = self._root()
        stat = self._table.stat(root)
        if stat is None:
            raise DeviceLost(f"{self._words} has ended")
        return f"{root}:{stat.started}"

    def signal(self, name: str) -> None:
        """Send a signal to the first process.

        The process is pinned by a pidfd before its name is checked, so that the signal cannot reach
        another process that gets the same id.
        """
        number = self._number()
        try:
            held = os.pidfd_open(number)
        except OSError as error:
            raise DeviceLost(f"{self._words} is not running: {error.strerror}") from None
        try:
            self._demand(number)
            signal.pidfd_send_signal(held, RELOADS[name])
        except OSError as error:
            raise ActuationError(
                f"cannot send SIG{name} to {self._words}: {error.strerror}",
                hint="run the agent as the service's user, or name its unit in [process]",
            ) from None
        finally:
            os.close(held)

    def identity(self) -> WorkloadIdentity:
        """Return the first process's id, read anew on each call, as the service's identity."""
        return WorkloadIdentity(processes=lambda: (self._root(),))

    @property
    def _words(self) -> str:
        """The program and its file, for messages."""
        return f"{self._program} of {self._pid_file}"

    def _root(self) -> int:
        """Return the id of the first process. Raises DeviceLost: the service does not run."""
        number = self._number()
        self._demand(number)
        return number

    def _number(self) -> int:
        """Return the process id in the file. Raises DeviceLost: the file has none."""
        try:
            return int(self._pid_file.read_text(encoding="ascii").split()[0])
        except (OSError, ValueError, IndexError) as error:
            reason = getattr(error, "strerror", None) or "it has no number"
            raise DeviceLost(
                f"{self._pid_file} names no process: {reason}", hint=f"start {self._program}"
            ) from None

    def _demand(self, number: int) -> None:
        """Raise DeviceLost if the process id is another program's, as after a crash that left the file."""
        comm = self._table.program(number)
        if comm != self._program[:15]:  # the kernel keeps 15 characters
            program = f"it is {comm}" if comm else "no such process"
            raise DeviceLost(
                f"{self._words} is not running: PID {number} does not belong to this service ({program})"
            )

    def _tree(self, root: int) -> Mapping[tuple[int, int], ProcessStat]:
        """Return the first process and its descendants, by process id and start in clock ticks."""
        processes = self._table.stats()
        if root not in processes:
            raise DeviceLost(f"{self._words} has ended")
        tree, grown = {root}, {root}
        while grown:
            grown = {number for number, one in processes.items() if one.parent in grown} - tree
            tree |= grown
        return {(number, processes[number].started): processes[number] for number in tree}


class PortProcess(ProcessTree):
    """A service whose first process listens at a TCP port of this host, found anew on each read."""

    def __init__(self, port: int, root: Path = Path("/")) -> None:
        self._port, self._table = port, ProcessTable(root)

    def signal(self, name: str) -> None:
        """Raise ActuationError: whatever listens at a port need not be the service."""
        hint = "name the service's unit, or its pid_file, in [process]"
        raise ActuationError(f"no SIG{name} is sent to a process found by its port", hint=hint)

    @property
    def _words(self) -> str:
        """The process, for messages."""
        return f"the process at port {self._port}"

    def _root(self) -> int:
        """Return the id of the first process. Raises DeviceLost: none listens there."""
        owners = sorted(self._table.owners(self._port))
        if not owners:
            hint = "start the service, and run the agent as its user or as root"
            raise DeviceLost(f"no process of ours listens at port {self._port}", hint=hint)
        return owners[0]


class UnitProcess:
    """A service that systemd runs as a unit."""

    def __init__(self, unit: str) -> None:
        self._unit = unit

    def cpu_s(self) -> float | None:
        """Return the unit's CPU seconds since its start; None if systemd does not account for them."""
        usage_ns = self._shown("CPUUsageNSec")["CPUUsageNSec"]
        return (
            int(usage_ns) / 1e9 if usage_ns.isdigit() and int(usage_ns) < commands.NOT_SET else None
        )

    def started(self) -> str:
        """Return systemd's id of this start of the unit (InvocationID)."""
        return self._shown("InvocationID")["InvocationID"]

    def signal(self, name: str) -> None:
        """Send a signal to the unit's main process through systemd."""
        commands.systemctl("kill", "--kill-whom=main", f"--signal=SIG{name}", self._unit)

    def identity(self) -> WorkloadIdentity:
        """Return the unit, and with it its control group, as the service's identity."""
        return WorkloadIdentity(unit=self._unit)

    def _shown(self, name: str) -> Mapping[str, str]:
        """Return a property of the unit, by its name. Raises DeviceLost: the unit is not active."""
        properties = commands.unit_properties(self._unit, name, "ActiveState")
        if properties["ActiveState"] not in ("active", "reloading"):
            raise DeviceLost(
                f"the unit {self._unit} is {properties['ActiveState'] or 'unknown'}",
                hint="start it",
            )
        return properties


ServiceProcess = ProcessTree | UnitProcess
"""The processes of one service. Their methods raise DeviceLost if the service does not run.

`cpu_s` includes ended child processes, and is None if unknown; `started` identifies the current start:
it differs after each restart. `signal` sends one of `RELOADS` to the first process, and raises
ActuationError if it cannot.
"""
