"""A job's wish in its comment, which is any user's text, and what root lets a job have of it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from tuner.errors import ConfigError, InvalidInput, OutOfRange, UnknownKnob
from tuner.toml import NUMBER, checked, parsed

PREFIX = "jouletune:"
LONGEST = 256
MOST_KNOBS = 8
PART = re.compile(
    r"([a-z][a-z0-9_]{0,31}(?:\.[a-z0-9_]{1,32}){1,3})=(\d{1,9}(?:\.\d{1,6})?)", re.ASCII
)
FORM = f"write --comment={PREFIX}gpu.power_limit_w=250; several knobs are separated by commas"
SPAN = {"min": NUMBER, "max": NUMBER}
TIMES = dict.fromkeys(("longest_s", "absent_s"), NUMBER)
JOB = {"grant": dict, **TIMES}


@dataclass(frozen=True, slots=True)
class JobGrants:
    """The `[job]` table of actuator.toml: each knob's least and greatest value, and times in seconds.

    A lease ends after `longest_s`, and where nothing of the job was seen for `absent_s`.
    """

    spans: Mapping[str, tuple[float, float]]
    longest_s: float = 7 * 86400.0
    absent_s: float = 600.0


def wish_of(comment: str) -> dict[str, float]:
    """Return the values that a comment asks for by knob; none where it is not addressed to us.

    Raises:
        InvalidInput: it is, and is not exactly of the form.
    """
    if not comment.startswith(PREFIX):
        return {}
    if len(comment) > LONGEST:
        raise InvalidInput(f"the wish is longer than {LONGEST} characters", hint=FORM)
    wish: dict[str, float] = {}
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


def job_grants(config: Path) -> tuple[JobGrants, str]:
    """Return what `[job]` grants, and the actuator's socket where the file names one.

    Raises:
        ConfigError: the file or its table is wrong.
    """
    whole = parsed(config)[1]
    table = checked(f"{config}: job", whole.get("job", {}), JOB)
    spans: dict[str, tuple[float, float]] = {}
    for knob, given in table.pop("grant", {}).items():
        span = checked(f"{config}: job, {knob}", given, SPAN)
        if span.keys() != SPAN.keys() or not span["min"] <= span["max"]:
            hint = "give min and max with min <= max"
            raise ConfigError(f"{config}: job, {knob} cannot be {span!r}", hint=hint)
        spans[knob] = (span["min"], span["max"])
    for key in TIMES.keys() & table.keys():
        if not 0 < table[key] < inf:
            hint = "give seconds above 0"
            raise ConfigError(f"{config}: job: {key} cannot be {table[key]!r}", hint=hint)
    socket: Any = whole.get("socket", "")
    return JobGrants(spans, **table), str(socket)


def require_granted(wish: Mapping[str, float], grants: JobGrants) -> None:
    """Raise UnknownKnob or OutOfRange where a wish is not within what jobs are granted."""
    for knob, value in wish.items():
        if knob not in grants.spans:
            names = ", ".join(grants.spans) or "none"
            raise UnknownKnob(
                f"{knob} is not granted to jobs", hint=f"knobs in [job.grant]: {names}"
            )
        least, most = grants.spans[knob]
        if not least <= value <= most:
            hint = f"granted values: {least:g} to {most:g}"
            raise OutOfRange(f"{knob} cannot be {value:g}", hint=hint)
