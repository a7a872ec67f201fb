"""The actuator's door: a Unix socket, JSON lines, a fixed set of verbs, one thread."""

from __future__ import annotations

import json
import logging
import selectors
import socket
import struct
from collections.abc import Callable, Mapping
from typing import Any

from agents.actuator import Actuator
from agents.slots import Peer
from tuner.errors import InvalidInput, TuningError, Unauthorised

log = logging.getLogger(__name__)

LONGEST_LINE = 1 << 16
"""A request is no longer than this, in bytes."""
MOST_PEERS = 32
TICK_S = 0.2
"""What has a time ends at most so much late, the driver's own time apart."""
SO_PEERGROUPS = 59

VERBS: Mapping[str, str] = {
    "capabilities": "",
    "read": "device",
    "acquire": "device lease_s",
    "apply": "device setting",
    "renew": "device lease_s",
    "hold": "device setting study revision valid_for_s",
    "release": "device",
}
"""Verb to its fields, all of them demanded."""
KINDS: Mapping[str, Any] = {"setting": dict, "device": str, "study": str, "revision": int}
"""What a field must be; any other a number."""

Allowed = Callable[[int, set[int]], bool]
"""Tells whether a user of this id, in groups of these, may connect."""


class Door:
    """Lets allowed peers in, one line in and one line out each, and minds the actuator's time."""

    def __init__(self, listener: socket.socket, actuator: Actuator, allowed: Allowed) -> None:
        self._actuator = actuator
        self._allowed = allowed
        self._peers: dict[socket.socket, tuple[Peer, bytearray]] = {}
        self._count = 0
        self._selector = selectors.DefaultSelector()
        self._listener = listener
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)

    def step(self) -> None:
        """Wait a little for requests, end what is over, then answer: a late renewal is too late."""
        ready = self._selector.select(TICK_S)
        self._actuator.tick()
        for key, _ in ready:
            line: Any = key.fileobj
            try:
                if line is self._listener:
                    self._let_in(line.accept()[0])
                else:
                    self._hear(line)
            except OSError as error:
                log.info("event=connection_broken why=%r", str(error))
                self._let_go(line)

    def _let_in(self, line: socket.socket) -> None:
        ids = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid, uid, gid = struct.unpack("3i", ids)
        groups = line.getsockopt(socket.SOL_SOCKET, SO_PEERGROUPS, 1024)
        line.setblocking(False)
        self._count += 1
        peer = Peer(self._count, f"process {pid} of user {uid}")
        if len(self._peers) < MOST_PEERS and self._allowed(
            uid, {gid, *(g for (g,) in struct.iter_unpack("i", groups))}
        ):
            self._peers[line] = (peer, bytearray())
            self._selector.register(line, selectors.EVENT_READ)
            return
        log.warning("event=refused peer=%r peers=%d", peer.who, len(self._peers))
        hint = f"join its group; it serves at most {MOST_PEERS} at a time"
        with line:
            line.send(_refusal(Unauthorised(f"{peer.who} may not use the actuator", hint=hint)))

    def _hear(self, line: socket.socket) -> None:
        peer, heard = self._peers[line]
        chunk = line.recv(LONGEST_LINE)
        *requests, rest = bytes(heard + chunk).split(b"\n")
        heard[:] = rest
        for request in requests:
            answer = self._answer(peer, request)
            if line.send(answer) < len(answer):
                raise OSError(f"{peer.who} does not read its answers")
        if len(heard) >= LONGEST_LINE:
            line.send(_refusal(InvalidInput(f"a request is at most {LONGEST_LINE} bytes")))
        if not chunk or len(heard) >= LONGEST_LINE:
            self._let_go(line)

    def _let_go(self, line: socket.socket) -> None:
        if line in self._peers:
            peer, _ = self._peers.pop(line)
            self._selector.unregister(line)
            line.close()
            self._actuator.gone(peer)

    def _answer(self, peer: Peer, request: bytes) -> bytes:
        try:
            verb, fields = parse(request)
            told = getattr(self._actuator, verb)(peer, **fields)
        except TuningError as error:
            return _refusal(error)
        return json.dumps({"ok": True, **told}).encode() + b"\n"


def parse(request: bytes) -> tuple[str, dict[str, Any]]:
    """Return a request's verb and its fields.

    Raises:
        InvalidInput: it is not a JSON object, or not exactly what the verb demands.
    """
    try:
        table = json.loads(request, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"the request is not JSON: {error}") from None
    verb = table.pop("verb", None) if isinstance(table, dict) else None
    if not isinstance(verb, str) or verb not in VERBS:
        raise InvalidInput("the request names no verb", hint=f"verbs are {', '.join(VERBS)}")
    if table.keys() != set(VERBS[verb].split()):
        raise InvalidInput(f"{verb} takes: {VERBS[verb] or 'nothing'}")
    for name, value in table.items():
        if not isinstance(value, KINDS.get(name, (int, float))) or isinstance(value, bool):
            raise InvalidInput(f"{verb}: {name} cannot be {value!r}")
    if any(isinstance(value, dict | list) for value in table.get("setting", {}).values()):
        raise InvalidInput(f"{verb}: a knob's value is a plain one")
    return verb, table


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number")


def _refusal(error: TuningError) -> bytes:
    said = {"ok": False, "code": error.code, "message": error.message, "hint": error.hint}
    return json.dumps(said).encode() + b"\n"
