"""Requests to the root process, parsed strictly, and their sender as the kernel reports it."""

import ctypes
import json
import socket
import struct
from collections.abc import Mapping
from math import isfinite
from typing import Any

from tuner.errors import InvalidInput
from tuner.toml import NUMBER, checked

LONGEST_S = 1e9
LONGEST_LINE = 1 << 16
"""A request is no longer than this, in bytes."""
IDS = struct.Struct("3i")
SO_PEERGROUPS, MOST_GROUPS = 59, 65536
"""The socket option, and NGROUPS_MAX of the kernel."""

ONE = {"device": str}
LEASE = {**ONE, "lease_s": NUMBER}
VERBS: Mapping[str, Mapping[str, Any]] = {
    **{verb: {} for verb in ("capabilities", "restore_all", "stay", "lift")},
    **dict.fromkeys(("read", "release", "restore", "leave_budget"), ONE),
    "acquire": {**LEASE, "trial": str},
    "renew": LEASE,
    "apply": {**ONE, "setting": dict},
    "leave": {**ONE, "knob": str, "why": str},
    "hold": {**ONE, "setting": dict, "valid_for_s": NUMBER},
    "cap": {**ONE, "group": str, "revision": int, "steps": list},
}
"""Verb to its fields, all of them demanded but `trial`, and of what kind each is."""
STEP = {"in_s": NUMBER, "cap_w": NUMBER, "at_most": dict}
"""The fields of a step of `cap`, all of them demanded: from when on which knobs are at most at what."""


def parse(request: bytes) -> tuple[str, dict[str, Any]]:
    """Return a request's verb and its fields.

    Raises:
        InvalidInput: it is not a JSON object, or not exactly what the verb demands.
    """
    try:
        table = json.loads(request, parse_constant=_finite, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"the request is not JSON: {error}") from None
    verb = table.pop("verb", None) if isinstance(table, dict) else None
    if not isinstance(verb, str) or verb not in VERBS:
        raise InvalidInput("the request has no verb", hint=f"verbs are {', '.join(VERBS)}")
    checked(verb, table, VERBS[verb], InvalidInput)
    if VERBS[verb].keys() - table.keys() - {"trial"}:
        raise InvalidInput(f"parameters of {verb}: {', '.join(VERBS[verb]) or 'nothing'}")
    if any(isinstance(value, bool | dict | list) for value in table.get("setting", {}).values()):
        raise InvalidInput(f"{verb}: a knob's value is a number or a text")
    for step in table.get("steps", ()):
        most = checked(f"{verb}: step", step, STEP, InvalidInput).get("at_most", {})
        checked(f"{verb}: at_most", most, dict.fromkeys(most, NUMBER), InvalidInput)
        if step.keys() != STEP.keys() or not 0 <= step["in_s"] <= LONGEST_S:
            raise InvalidInput(f"{verb}: a step has {', '.join(STEP)}; in_s is 0 to {LONGEST_S:g}")
    return verb, table


def _finite(text: str) -> float:
    """Return a number; refuses NaN, Infinity and 1e999."""
    if not isfinite(value := float(text)):
        raise ValueError(f"{text} is not a finite number")
    return value


def credentials(line: socket.socket) -> tuple[int, int, int]:
    """Return the process, the user and the group at the other end, as they were when it connected."""
    return IDS.unpack(line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, IDS.size))


def groups(line: socket.socket) -> set[int]:
    """Return all groups that the process at the other end is in; Python's own call gives 256 at most.

    Raises:
        OSError: the kernel does not tell.
    """
    group_ids, size = (ctypes.c_int * MOST_GROUPS)(), ctypes.c_uint(4 * MOST_GROUPS)
    libc, option = ctypes.CDLL(None, use_errno=True), (socket.SOL_SOCKET, SO_PEERGROUPS)
    if libc.getsockopt(line.fileno(), *option, group_ids, ctypes.byref(size)):
        raise OSError(ctypes.get_errno(), "cannot read the groups of a process")
    return {credentials(line)[2], *group_ids[: size.value // 4]}


def to_line(answer: Mapping[str, Any]) -> bytes:
    """Return an answer as it is sent."""
    return json.dumps(answer).encode() + b"\n"
