"""What a service tells systemd. Standard library only: the root process loads it, too."""

import os
import socket
from contextlib import suppress


def notify(state: str) -> None:
    """Tell systemd how we are (`READY=1`, `WATCHDOG=1`, `STATUS=…`), where it wants to know.

    Source: sd_notify(3). Without $NOTIFY_SOCKET nothing is sent; what cannot be sent is dropped.
    """
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path:
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.sendto(state.encode(), f"\0{path[1:]}" if path.startswith("@") else path)
