"""The actuator: every device's slot, and the Unix socket at which agents ask for them in JSON lines."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import struct
from collections.abc import Iterable, Mapping
from typing import Any

from agents.grants import NUMBER, ActuatorConfig, checked
from agents.hand import refusal
from agents.originals import Originals
from agents.slots import Peer, Slot
from tuner.errors import InvalidInput, NotFound, TuningError, Unauthorised

log = logging.getLogger(__name__)

LONGEST_LINE = 1 << 16
"""A request is no longer than this, in bytes."""
MOST_PEERS = 32
SO_PEERGROUPS = 59

ONE = {"device": str}
LEASE = {**ONE, "lease_s": NUMBER}
VERBS: Mapping[str, Mapping[str, Any]] = {
    "capabilities": {},
    "read": ONE,
    "acquire": LEASE,
    "apply": {**ONE, "setting": dict},
    "renew": LEASE,
    "hold": {**ONE, "setting": dict, "study": str, "revision": int, "valid_for_s": NUMBER},
    "release": ONE,
    "restore": ONE,
}
"""Verb to its fields, all of them demanded, and of what kind each is."""


class Actuator:
    """All devices behind one door. One that hangs, hangs nobody who asks for another."""

    def __init__(
        self, config: ActuatorConfig, slots: Iterable[Slot], originals: Originals, gid: int
    ) -> None:
        self.slots = {slot.uuid: slot for slot in slots}
        self._config = config
        self._originals = originals
        self.gid = gid
        self._count = 0
        self._inside = 0

    async def replay(self) -> dict[str, str]:
        """Put every device back to what its journal says; return what did not go back, and why."""
        await asyncio.gather(*(slot.replay() for slot in self.slots.values()))
        left = {u: s.paused or s.trouble for u, s in self.slots.items() if s.paused or s.trouble}
        for name in self._originals.others(self.slots):
            log.error("event=device_missing journal=%s", name)
            left[name] = "its device is not there"
        return left

    def grant(self) -> None:
        """Grant what the configuration says; before this, nothing is.

        Raises:
            ConfigError: a grant does not fit its device.
        """
        for uuid, slot in self.slots.items():
            slot.allowed = slot.terms.values(uuid, slot.about["ranges"], slot.about["knobs"])

    def status(self) -> str:
        """Return in one line how the devices are."""
        return ", ".join(f"{u}: {s.paused or s.trouble or s.level}" for u, s in self.slots.items())

    async def close(self) -> None:
        """Put every device back, whoever has it."""
        await asyncio.gather(*(slot.close() for slot in self.slots.values()))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection, one line in and one line out; at its end its trial is over."""
        peer, groups = self._known(writer.get_extra_info("socket"))
        self._inside += 1
        try:
            if self._inside > MOST_PEERS or not self._welcome(peer, groups):
                log.warning("event=refused peer=%s peers=%d", peer, self._inside)
                hint = f"join its group; it serves at most {MOST_PEERS} at a time"
                raise Unauthorised(f"{peer} may not use the actuator", hint=hint)
            while True:
                writer.write(await self._answered(peer, await reader.readuntil()))
                await writer.drain()
        except asyncio.LimitOverrunError:
            writer.write(_line(refusal(InvalidInput(f"a request is at most {LONGEST_LINE} bytes"))))
        except TuningError as error:
            writer.write(_line(refusal(error)))
        except (EOFError, OSError, asyncio.CancelledError) as error:
            log.info("event=connection_ended peer=%s why=%r", peer, str(error))
        finally:
            self._inside -= 1
            writer.close()
            await asyncio.gather(*(slot.gone(peer) for slot in self.slots.values()))

    def _known(self, line: socket.socket) -> tuple[Peer, set[int]]:
        """Return who is at the other end, and in what groups, as the kernel knows it."""
        ids = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid, uid, gid = struct.unpack("3i", ids)
        groups = line.getsockopt(socket.SOL_SOCKET, SO_PEERGROUPS, 1024)
        self._count += 1
        return Peer(self._count, pid, uid), {gid, *(g for (g,) in struct.iter_unpack("i", groups))}

    def _welcome(self, peer: Peer, groups: set[int]) -> bool:
        return peer.uid in (0, os.geteuid()) or self.gid in groups

    async def _answered(self, peer: Peer, request: bytes) -> bytes:
        try:
            return _line({"ok": True, **await self.ask(peer, *parse(request))})
        except TuningError as error:
            return _line(refusal(error))

    async def ask(self, peer: Peer, verb: str, fields: dict[str, Any]) -> dict[str, Any]:
        """Do what a peer asks. Raises TuningError where it cannot be, or may not."""
        if verb == "capabilities":
            return {
                "protocol": 2,
                "lease_s": self._config.lease_s,
                "agent_grace_s": self._config.agent_grace_s,
                "devices": [
                    {**s.about, "granted": s.allowed, "original": s.terms.original}
                    for s in self.slots.values()
                ],
            }
        device = fields.pop("device")
        if device not in self.slots:
            hint = f"there are {', '.join(self.slots) or 'none'}"
            raise NotFound(f"there is no device {device!r}", hint=hint)
        return await self.slots[device].ask(peer, verb, fields)


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
    checked(verb, table, VERBS[verb], InvalidInput)
    if table.keys() != VERBS[verb].keys():
        raise InvalidInput(f"{verb} takes: {', '.join(VERBS[verb]) or 'nothing'}")
    if any(isinstance(value, dict | list) for value in table.get("setting", {}).values()):
        raise InvalidInput(f"{verb}: a knob's value is a plain one")
    return verb, table


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number")


def _line(answer: Mapping[str, Any]) -> bytes:
    return json.dumps(answer).encode() + b"\n"
