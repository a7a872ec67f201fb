"""Requests to the root process, parsed strictly, and the sender's credentials from the kernel."""

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
"""The longest request, in bytes."""
IDS = struct.Struct("3i")
SO_PEERGROUPS, MOST_GROUPS = 59, 65536
"""The socket option, and the kernel's NGROUPS_MAX."""

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
    "lease_job": {**ONE, "job": str, "setting": dict},
    "end_job": {**ONE, "job": str},
    "cap": {**ONE, "group": str, "revision": int, "steps": list},
}
"""The fields of each verb and their types. All are required except `trial`."""
STEP = {"in_s": NUMBER, "cap_w": NUMBER, "at_most": dict}
"""The required fields of a step of `cap`: the seconds until it begins, its watts, and a maximum by knob."""


def parse(request: bytes) -> tuple[str, dict[str, Any]]:
    """Return a request's verb and its fields.

    Raises:
        InvalidInput: the request is not a JSON object, or its fields are not exactly those of the verb.
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
    """Return the process, user and group of the peer as they were when it connected."""
    return IDS.unpack(line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, IDS.size))


def groups(line: socket.socket) -> set[int]:
    """Return all groups of the peer's process; Python's own call returns at most 256.

    Raises:
        OSError: the kernel does not report them.
    """
    group_ids, size = (ctypes.c_int * MOST_GROUPS)(), ctypes.c_uint(4 * MOST_GROUPS)
    libc, option = ctypes.CDLL(None, use_errno=True), (socket.SOL_SOCKET, SO_PEERGROUPS)
    if libc.getsockopt(line.fileno(), *option, group_ids, ctypes.byref(size)):
        raise OSError(ctypes.get_errno(), "cannot read the groups of a process")
    return {credentials(line)[2], *group_ids[: size.value // 4]}


def to_line(answer: Mapping[str, Any]) -> bytes:
    """Return an answer as one line of JSON."""
    return json.dumps(answer).encode() + b"\n"
