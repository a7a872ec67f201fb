"""Ports on loopback for processes that tests start: reserved until this test process ends.

A port that was only looked up can be handed to another worker before the process that needs it binds it.
"""

from __future__ import annotations

import socket

_RESERVED: list[socket.socket] = []


def reserved_port() -> int:
    """Return a port that stays reserved, and that a server with SO_REUSEADDR can bind at any time.

    The socket here is bound and never listens: connections are refused until the server listens, and
    Linux neither picks the port for others nor refuses it to who sets SO_REUSEADDR (socket(7)).
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    _RESERVED.append(held)
    return int(held.getsockname()[1])
