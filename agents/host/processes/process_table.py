"""The kernel's data on this host's processes: parents, start times, control groups and listeners.

Sources: proc(5) for /proc/PID/stat, /proc/PID/cgroup and /proc/net/tcp; cgroups(7); systemd's naming of
services and scopes (systemd.io, "Control Group APIs and Delegation"). The kernel reports the control
groups of listening sockets to any user (`ss --cgroup`), while an unprivileged agent cannot read the open
files of other users' processes: sock_diag(7); linux/inet_diag.h (INET_DIAG_CGROUP_ID, since Linux 5.8).
"""

from __future__ import annotations

import os
import re
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

LISTENING = "0A"
"""TCP_LISTEN in /proc/net/tcp."""
MANAGER = re.compile(r"user@\d+\.service")
"""The control group of a user's systemd instance; the user's units are below it."""
CONTAINER = re.compile(
    r"(docker|libpod|lxc(\.payload)?|jobid|htcondor|(.+_)?slurmstepd\.scope)/.+"
    r"|.*/(([^/:]+:[^/:]+:)?[0-9a-f]{64}|job_\d+|lxc\.payload\..+)"
)
"""The control group of a container or a job, after its parent. runc names it `slice:prefix:name` where two
cgroup drivers are mixed (kubernetes issue 106514), LXC since 3.1 `lxc.payload` (draios/sysdig issue 1344),
Slurm 26.05 by another id of the job (slurm-job-exporter issue 66)."""
HIERARCHIES = ("name=systemd", "memory", "pids", "devices", "")
"""The hierarchies in which container runtimes place a process: those of cgroup v1 by name, and v2 ("")."""
LOGIN = re.compile(r"session-[^/]*\.scope|init\.scope")
"""The control groups of the programs that a person starts manually; they identify no service."""

SOCK_DIAG, BY_FAMILY, DUMP = 4, 20, 0x301
"""NETLINK_SOCK_DIAG; SOCK_DIAG_BY_FAMILY; NLM_F_REQUEST | NLM_F_ROOT | NLM_F_MATCH."""
LISTEN = 1 << 10
"""The state TCP_LISTEN, as a bit mask."""
CGROUP_ID, DONE, ERROR = 21, 3, 2
HEADER, REQUEST, SOCKET = struct.Struct("=IHHII"), struct.Struct("=BBBxI48x"), 72
"""nlmsghdr; inet_diag_req_v2 for no particular socket; the size of inet_diag_msg in bytes."""
ANSWER_S, CHUNK = 2.0, 1 << 16


def listening_groups(port: int) -> frozenset[int]:
    """Return the ids of the control groups that listen on a port; empty if the kernel reports none."""
    groups: set[int] = set()
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, SOCK_DIAG) as line:
                line.settimeout(ANSWER_S)
                body = REQUEST.pack(family, socket.IPPROTO_TCP, 0, LISTEN)
                line.send(HEADER.pack(HEADER.size + len(body), BY_FAMILY, DUMP, 1, 0) + body)
                for message in _messages(line):
                    if int.from_bytes(message[4:6], "big") == port:
                        groups |= set(_group_ids(message[SOCKET:]))
        except (OSError, struct.error):  # the kernel lacks the family, or the unit may not use it
            continue
    return frozenset(groups)


def _messages(line: socket.socket) -> Iterator[bytes]:
    """Yield the netlink messages of a dump, without their headers, until its end."""
    while True:
        chunk = line.recv(CHUNK)
        while len(chunk) >= HEADER.size:
            length, kind, _, _, _ = HEADER.unpack_from(chunk)
            if kind in (DONE, ERROR) or length < HEADER.size:
                return
            yield chunk[HEADER.size : length]
            chunk = chunk[length + (-length % 4) :]


def _group_ids(attributes: bytes) -> Iterator[int]:
    """Yield the control group ids among the attributes of a message."""
    while len(attributes) >= 4:
        length, kind = struct.unpack_from("=HH", attributes)
        if length < 4:
            return
        if kind == CGROUP_ID and length >= 12:
            yield struct.unpack_from("=Q", attributes, 4)[0]
        attributes = attributes[length + (-length % 4) :]


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

    def stats(self) -> dict[int, ProcessStat]:
        """Return the data on every process that is visible here, by process id."""
        return {pid: stat for pid in self._pids() if (stat := self.stat(pid)) is not None}

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
        """Return the process ids of a service or container."""
        return (pid for pid in self._pids() if self.service(pid) == service)

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
        for pid in self._pids() if sockets else ():
            if pid > 1:
                with suppress(OSError):  # another user's process, or it has ended
                    files = (self._proc / str(pid) / "fd").iterdir()
                    if any(str(file.readlink()) in sockets for file in files):
                        pids.add(pid)
        return frozenset(pids)

    def _pids(self) -> Iterator[int]:
        return (int(entry.name) for entry in self._proc.iterdir() if entry.name.isdigit())

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
        if (unit and not LOGIN.fullmatch(part)) or CONTAINER.fullmatch(f"{above}/{part}"):
            return "/" + "/".join(parts[:number])
    inside = {*parts} - {".."} and not any(
        p.endswith((".slice", ".service", ".scope")) for p in parts
    )
    return "/" + "/".join(parts) if inside else ""
