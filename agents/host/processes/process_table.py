"""The kernel's data on this host's processes: parents, start times, control groups and listeners.

Sources: proc(5) for /proc/PID/stat, /proc/PID/cgroup and /proc/net/tcp; cgroups(7); systemd's naming of
services and scopes (systemd.io, "Control Group APIs and Delegation").
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

LISTENING = "0A"
"""TCP_LISTEN in /proc/net/tcp."""
MANAGER = re.compile(r"user@\d+\.service")
"""The control group of a user's systemd instance; the user's units are below it."""
CONTAINER = re.compile(r"([^/:]+:[^/:]+:)?[0-9a-f]{64}|job_\d+")
"""The control group of a container (runc's `slice:prefix:name` where two cgroup drivers are mixed:
kubernetes issue 106514), or of a job of Slurm, which has one for each step and task below it."""
RUNTIMES = ("docker", "libpod", "lxc", "jobid")
"""The parent of a container's or a PBS job's control group, unless systemd created the group."""
HIERARCHIES = ("name=systemd", "memory", "pids", "devices", "")
"""The hierarchies in which container runtimes place a process: those of cgroup v1 by name, and v2 ("")."""
LOGIN = re.compile(r"session-[^/]*\.scope|init\.scope")
"""The control groups of the programs that a person starts manually; they identify no service."""


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """The kernel's data on one process; `started` and `used` are in clock ticks.

    `used` is CPU time and includes the children for which the process has waited.
    """

    parent: int
    group: int
    started: int
    used: int

    @classmethod
    def parse(cls, text: str) -> ProcessStat:
        """Return the data in the text of /proc/PID/stat."""
        fields = text.rpartition(")")[2].split()
        # The name is followed by state, ppid, pgrp, …. In the numbering of proc(5), utime, stime, cutime
        # and cstime are fields 14 to 17, and starttime is field 22.
        used = sum(map(int, fields[11:15]))
        return cls(int(fields[1]), int(fields[2]), int(fields[19]), used)


class ProcessTable:
    """Reads /proc and /sys/fs/cgroup below a root, anew on every call."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._proc, self._groups = root / "proc", root / "sys/fs/cgroup"

    def stat(self, pid: int) -> ProcessStat | None:
        """Return the data on a process; None if it is not visible here."""
        try:
            return ProcessStat.parse((self._proc / str(pid) / "stat").read_text(errors="replace"))
        except (OSError, ValueError, IndexError):
            return None

    def program(self, pid: int) -> str:
        """Return the first 15 characters of a process's program name; empty if it is not visible here."""
        try:
            return (self._proc / str(pid) / "comm").read_text(errors="replace").strip()
        except OSError:
            return ""

    def shows(self, pid: int) -> bool:
        """Return whether a process is visible here."""
        return (self._proc / str(pid)).is_dir()

    def line(self, pid: int) -> Iterator[int]:
        """Yield a process and its ancestors, without init."""
        visited: set[int] = set()
        while pid > 1 and pid not in visited:
            yield pid
            visited.add(pid)
            stat = self.stat(pid)
            pid = 0 if stat is None else stat.parent

    def started_s(self, pid: int) -> float | None:
        """Return a process's start time in seconds since 1970; None if it is not visible here."""
        stat, match = self.stat(pid), None
        with suppress(OSError):
            match = re.search(r"^btime (\d+)$", (self._proc / "stat").read_text(), re.MULTILINE)
        if stat is None or match is None:
            return None
        return int(match[1]) + stat.started / os.sysconf("SC_CLK_TCK")

    def service(self, pid: int) -> str:
        """Return the control group of a process's service or container.

        Empty if the process is not visible here, or if its group is that of a login or of the whole
        machine, which identifies no service.
        """
        return next(filter(None, map(service_of, self.groups(pid))), "")

    def groups(self, pid: int) -> list[str]:
        """Return a process's control groups, those of systemd and cgroup v1 before that of v2.

        Empty if the process is not visible here. On a host with both versions, a container may have a
        separate group only in v1 (`name=systemd` beside `0::`).
        """
        try:
            text = (self._proc / str(pid) / "cgroup").read_text()
        except OSError:
            return []
        paths = dict(re.findall(r"^\d+:([^:]*):(.*)$", text, re.MULTILINE))
        return [paths[name] for name in HIERARCHIES if name in paths]

    def members(self, service: str) -> Iterator[int]:
        """Yield the process ids of a service or container."""
        for entry in self._proc.iterdir():
            if entry.name.isdigit() and self.service(int(entry.name)) == service:
                yield int(entry.name)

    def group_ids(self, service: str) -> frozenset[int]:
        """Return the kernel's ids of a service's control group and all groups below it (cgroup v2)."""
        ids: set[int] = set()
        for base in (self._groups, self._groups / "unified"):
            for folder, _, _ in os.walk(base / service.lstrip("/")):
                with suppress(OSError):
                    ids.add(Path(folder).stat().st_ino)
        return frozenset(ids)

    def owners(self, port: int) -> frozenset[int]:
        """Return the processes that listen on a TCP port, without init.

        Processes whose open files the agent may not read are left out.
        """
        sockets = {f"socket:[{inode}]" for inode in self._listening(port)}
        pids: set[int] = set()
        for entry in self._proc.iterdir() if sockets else ():
            if entry.name.isdigit() and int(entry.name) > 1:
                with suppress(OSError):  # another user's process, or it has ended
                    files = (entry / "fd").iterdir()
                    if any(str(file.readlink()) in sockets for file in files):
                        pids.add(int(entry.name))
        return frozenset(pids)

    def _listening(self, port: int) -> Iterator[str]:
        """Yield the inodes of the sockets that listen on a TCP port."""
        for name in ("tcp", "tcp6"):
            with suppress(OSError):
                for line in (self._proc / "net" / name).read_text().splitlines()[1:]:
                    words = line.split()
                    if words[3] == LISTENING and int(words[1].rpartition(":")[2], 16) == port:
                        yield words[9]


def service_of(path: str) -> str:
    """Return the part of a control group's path that names a service or container; empty if there is none.

    The part ends with the innermost unit or container. The units of logins and of user managers do not
    count, nor does the root outside a namespace (`/../..`). A path without slices, services and scopes
    (`/kubepods/…`) is returned whole.
    """
    parts = [part for part in path.split("/") if part]
    for number in range(len(parts), 0, -1):
        part, above = parts[number - 1], parts[number - 2] if number > 1 else ""
        unit = part.endswith((".service", ".scope")) and not MANAGER.fullmatch(part)
        if (unit and not LOGIN.fullmatch(part)) or above in RUNTIMES or CONTAINER.fullmatch(part):
            return "/" + "/".join(parts[:number])
    inside = {*parts} - {".."} and not any(
        p.endswith((".slice", ".service", ".scope")) for p in parts
    )
    return "/" + "/".join(parts) if inside else ""
