"""Messages of a service to systemd. Standard library only: the root process loads it, too."""

import os
import socket
from contextlib import suppress


def notify(state: str) -> None:
    """Send a state of this service to systemd: `READY=1`, `WATCHDOG=1`, `STATUS=…`.

    Without $NOTIFY_SOCKET nothing is sent; a message that cannot be sent is dropped. Source: sd_notify(3).
    """
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path:
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.sendto(state.encode(), f"\0{path[1:]}" if path.startswith("@") else path)
