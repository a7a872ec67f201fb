"""Reads and writes the texts of the kernel's files under /sys and /proc.

Sources: drivers/cpufreq/cpufreq.c (show): a policy without an online CPU answers EBUSY; intel_pstate.c
(store_no_turbo: EPERM if the BIOS has disabled turbo) and intel_rapl_common.c (EACCES if it has locked the
limits).
"""

import errno
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tuner.errors import ActuationError, KnobRefused

STEP_KHZ, MOST_DIGITS, MOST_RUNGS = 100_000, 18, 1000
"""A number with more digits, or a range with more steps, is ignored."""
AWAY = {errno.EBUSY, errno.ENOENT, errno.ENODEV}
"""The errors of a read while the CPU or the device behind a file is offline."""
NEVER = {errno.EPERM, errno.EACCES, errno.EROFS, errno.ENODATA, errno.EOPNOTSUPP}
"""The errors of a write that the file answers to every value."""
REFUSED = "check its minimum, a lock by the BIOS, and the drop-in of the actuator's unit"
EXCLUDED = (
    "its CPU went offline, or another knob excludes it: the governor performance fixes cpu.epp"
)


class Away(ActuationError, code="actuation"):
    """A file's CPU or device is offline; it may come back with its former value."""


def content(file: Path, kind: type = str) -> Any:  # noqa: ANN401 - of that kind
    """Return a file's content, without the NUL of a device tree. Raises ActuationError, Away."""
    try:
        return kind(file.read_text().strip("\0\n "))
    except (OSError, ValueError) as error:
        away = getattr(error, "errno", 0) in AWAY
        raise (Away if away else ActuationError)(f"cannot read {file}: {error}") from error


def put(file: Path, text: str) -> None:
    """Write a file. Raises ActuationError; KnobRefused, without a name, if it takes no value."""
    try:
        file.write_text(text)
    except OSError as error:
        hint = EXCLUDED if error.errno == errno.EBUSY else REFUSED
        kind = KnobRefused if error.errno in NEVER else ActuationError
        raise kind(f"{file} rejects {text}: {error.strerror}", hint=hint) from error


def words(*files: Path) -> set[str]:
    """Return the words in files; empty if one of them cannot be read."""
    with suppress(ActuationError):
        return {word for file in files for word in content(file).split()}
    return set()


def numbers(*files: Path) -> list[int]:
    """Return the whole numbers in files, ascending; empty if one of them cannot be read."""
    numerals = (word for word in words(*files) if word.isdecimal() and len(word) <= MOST_DIGITS)
    return sorted({int(word) for word in numerals})


def scaled(number: int, unit: int) -> int | float:
    """Return a number in a greater unit: an integer if exact or too long to be measured, else a float."""
    return number / unit if number % unit and number < 10**MOST_DIGITS else number // unit


def span(ends: Sequence[int], step: int = STEP_KHZ) -> list[int]:
    """Return the ladder between the first and the last of these numbers; empty if it has too many steps."""
    short = ends and ends[-1] - ends[0] <= MOST_RUNGS * step
    return [*range(ends[0], ends[-1], step), ends[-1]] if short else []
