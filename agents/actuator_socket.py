"""The actuator's door: a Unix socket, JSON lines, a fixed set of verbs, one thread."""

from __future__ import annotations

import json
import logging
import selectors
import socket
import struct
from collections.abc import Callable, Mapping
from typing import Any

from agents.actuator import Actuator, Peer
from tuner.errors import InvalidInput, TuningError, Unauthorised

log = logging.getLogger(__name__)

LONGEST_LINE = 1 << 16
"""A request is no longer than this, in bytes."""
MOST_PEERS = 32
LONGEST_WAIT_S = 1.0

VERBS: Mapping[str, Mapping[str, tuple[type, ...]]] = {
    "capabilities": {},
    "read": {"device": (str,)},
    "acquire": {"device": (str,), "lease_s": (int, float)},
    "apply": {"device": (str,), "setting": (dict,)},
    "renew": {"device": (str,), "lease_s": (int, float)},
    "hold": {
        "device": (str,),
        "setting": (dict,),
        "study": (str,),
        "revision": (int,),
        "valid_for_s": (int, float),
    },
    "release": {"device": (str,)},
}
"""Verb to its fields, all of them demanded, and their types."""

Allowed = Callable[[int, int], bool]
"""Tells whether a user id and a group id may connect."""


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
        """Wait for requests, answer them, and do what is due."""
        wait = min(LONGEST_WAIT_S, max(0.0, self._actuator.due_in_s()))
        for key, _ in self._selector.select(wait):
            line = key.fileobj
            assert isinstance(line, socket.socket)
            try:
                if line is self._listener:
                    self._let_in(line.accept()[0])
                else:
                    self._hear(line)
            except OSError as error:
                log.info("event=connection_broken why=%r", str(error))
                self._let_go(line)
        self._actuator.tick()

    def _let_in(self, line: socket.socket) -> None:
        credentials = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid, uid, gid = struct.unpack("3i", credentials)
        line.setblocking(False)
        self._count += 1
        peer = Peer(self._count, f"process {pid} of user {uid}")
        if not self._allowed(uid, gid) or len(self._peers) >= MOST_PEERS:
            log.warning("event=refused peer=%r", peer.who)
            what = (
                "may not use the actuator" if len(self._peers) < MOST_PEERS else "is one too many"
            )
            error = Unauthorised(f"{peer.who} {what}", hint="see users and group in actuator.toml")
            with line:
                line.send(_refusal(error))
            return
        self._peers[line] = (peer, bytearray())
        self._selector.register(line, selectors.EVENT_READ)

    def _hear(self, line: socket.socket) -> None:
        peer, heard = self._peers[line]
        chunk = line.recv(LONGEST_LINE)
        heard += chunk
        while b"\n" in heard:
            request, _, rest = bytes(heard).partition(b"\n")
            heard[:] = rest
            answer = self._answer(peer, request)
            if line.send(answer) < len(answer):
                raise OSError(f"{peer.who} does not read its answers")
        if len(heard) >= LONGEST_LINE:
            line.send(_refusal(InvalidInput(f"a request is at most {LONGEST_LINE} bytes")))
        if not chunk or len(heard) >= LONGEST_LINE:
            self._let_go(line)

    def _let_go(self, line: socket.socket) -> None:
        peer, _ = self._peers.pop(line, (None, None))
        if peer is not None:
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
    fields = VERBS[verb]
    if table.keys() != fields.keys():
        raise InvalidInput(f"{verb} takes {', '.join(fields) or 'no fields'}")
    for name, kinds in fields.items():
        if not isinstance(table[name], kinds) or isinstance(table[name], bool):
            raise InvalidInput(f"{verb}: {name} cannot be {table[name]!r}")
    for knob, value in table.get("setting", {}).items():
        if not isinstance(value, bool | int | float | str | None):
            raise InvalidInput(f"{verb}: {knob} cannot be {value!r}")
    return verb, table


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number")


def _refusal(error: TuningError) -> bytes:
    said = {"ok": False, "code": error.code, "message": error.message, "hint": error.hint}
    return json.dumps(said).encode() + b"\n"
