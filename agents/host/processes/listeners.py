"""The control groups of the sockets that listen on a TCP port.

The kernel reports them to any user (`ss --cgroup`), while an unprivileged agent cannot read the open
files of other users' processes. Source: sock_diag(7); linux/inet_diag.h (INET_DIAG_CGROUP_ID, since
Linux 5.8).
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

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
