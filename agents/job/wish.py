"""The setting that a job requests in its comment, an untrusted text, and root's limits for jobs."""

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from agents.actuator.grants import Granted, within
from tuner.errors import InvalidInput, NotFound, OutOfRange, UnknownKnob

PREFIX = "jouletune:"
LONGEST = 256
MOST_KNOBS = 8
MOST_CHARACTERS = 1 << 20
"""The longest file of a hold that is read."""
DEVICES = ("gpu.", "cpu.")
PART = re.compile(
    r"([a-z][a-z0-9_]{0,31}(?:\.[a-z0-9_]{1,32}){1,3})=(\d{1,9}(?:\.\d{1,6})?)", re.ASCII
)
PROFILE = re.compile(r"profile=([\w.-]{1,64})", re.ASCII)
FORM = f"write --comment={PREFIX}gpu.power_limit_w=250; several knobs are separated by commas"


def wish_of(comment: str, holds: Path) -> dict[str, Any]:
    """Return the values that a comment requests, by knob; empty if it is not addressed to jouletune.

    `holds` is the folder of this node's agent for `profile=NAME`.

    Raises:
        InvalidInput: it is addressed to jouletune, but not of the form.
        NotFound: the agent has no hold of that name.
    """
    if not comment.startswith(PREFIX):
        return {}
    if len(comment) > LONGEST:
        raise InvalidInput(f"the wish is longer than {LONGEST} characters", hint=FORM)
    wish: dict[str, Any] = {}
    if named := PROFILE.fullmatch(comment.removeprefix(PREFIX)):
        return _profile(named[1], holds)
    for part in comment.removeprefix(PREFIX).split(","):
        match = PART.fullmatch(part)
        if match is None:
            raise InvalidInput(f"{part[:40]!a} is no wish", hint=FORM)
        knob, text = match.groups()
        if knob in wish or len(wish) == MOST_KNOBS:
            raise InvalidInput(
                f"{knob} is one too many", hint=f"name up to {MOST_KNOBS} knobs, once"
            )
        wish[knob] = int(text) if text.isdigit() else float(text)
    return wish


def _profile(study: str, holds: Path) -> dict[str, Any]:
    """Return the device knobs that differ from the baseline in a study's newest hold on this node.

    Its agent's files are another user's: each value must be granted to jobs. Raises NotFound.
    """
    profiles: dict[str, Mapping[str, Any]] = {}
    for path in sorted(holds.glob("*.hold.json")):
        with suppress(OSError, ValueError, TypeError, AttributeError, LookupError, RecursionError):
            with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)) as file:
                hold = json.loads(file.read(MOST_CHARACTERS))
            order = hold["order"]
            rows, baseline = order["plan"]["rows"], order["baseline"]
            tuned = rows[hold["row"]]["setting"].items() - baseline.items()
            if isinstance(order["study"], str):
                profiles[order["study"]] = {k: v for k, v in tuned if k.startswith(DEVICES)}
    if not profiles.get(study):
        names = ", ".join(name for name, setting in profiles.items() if setting) or "none"
        raise NotFound(f"no device's last hold here is of study {study}", hint=f"studies: {names}")
    return {**profiles[study]}


def require_granted(wish: Mapping[str, Any], jobs: Granted) -> None:
    """Raise UnknownKnob or OutOfRange if a request is not within the grants of jobs."""
    for knob, value in wish.items():
        span = jobs.grant.get(knob, ())
        if not span:
            names = ", ".join(jobs.grant) or "none"
            raise UnknownKnob(
                f"{knob} is not granted to jobs", hint=f"knobs in [job.grant]: {names}"
            )
        if not within(value, span):
            hint = f"granted values: {span[0]} to {span[-1]}"
            raise OutOfRange(f"{knob} cannot be {value!r}", hint=hint)
