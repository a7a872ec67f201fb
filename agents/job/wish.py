"""The setting that a job requests in its comment, an untrusted text, and root's limits for jobs."""

import re
from collections.abc import Mapping

from agents.actuator.grants import Granted, within
from tuner.errors import InvalidInput, OutOfRange, UnknownKnob

PREFIX = "jouletune:"
LONGEST = 256
MOST_KNOBS = 8
PART = re.compile(
    r"([a-z][a-z0-9_]{0,31}(?:\.[a-z0-9_]{1,32}){1,3})=(\d{1,9}(?:\.\d{1,6})?)", re.ASCII
)
FORM = f"write --comment={PREFIX}gpu.power_limit_w=250; several knobs are separated by commas"


def wish_of(comment: str) -> dict[str, float]:
    """Return the values that a comment requests, by knob; empty if it is not addressed to jouletune.

    Raises:
        InvalidInput: it is addressed to jouletune, but not of the form.
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


def require_granted(wish: Mapping[str, float], jobs: Granted) -> None:
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
            raise OutOfRange(f"{knob} cannot be {value:g}", hint=hint)
