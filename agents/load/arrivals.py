"""Traces of recorded arrivals: a CSV file with a column `arrival_s`, in seconds."""

from __future__ import annotations

import csv
import itertools
import math
from pathlib import Path

from tuner.core import InvalidInput

COLUMN = "arrival_s"
LEAST, MOST = 2, 1_000_000
"""The bounds of a trace's length: a gap needs two arrivals, and a million arrivals fill hours."""


def read_arrivals(path: Path) -> tuple[float, ...]:
    """Return the times of a trace's arrivals in seconds after the first one.

    Other columns are ignored.

    Raises:
        InvalidInput: the file or the column is missing, there are too few or too many rows, or a time
            is not a finite number or is earlier than the one before it.
    """
    hint = f"write a CSV file with a column {COLUMN}, seconds that never decrease"
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = itertools.islice(csv.DictReader(file), MOST + 1)
            moments = [float(row[COLUMN]) for row in rows]
    except KeyError:
        raise InvalidInput(f"the trace {path} has no column {COLUMN}", hint=hint) from None
    except OSError as error:
        raise InvalidInput(f"cannot read the trace {path}: {error.strerror}", hint=hint) from None
    except (ValueError, TypeError, csv.Error) as error:
        raise InvalidInput(f"the trace {path} cannot be read: {error}", hint=hint) from None
    if not LEAST <= len(moments) <= MOST:
        count = f"over {MOST}" if len(moments) > MOST else str(len(moments))
        raise InvalidInput(f"the trace {path} has {count} arrivals", hint=f"{LEAST} to {MOST}")
    for line, (before, now) in enumerate(itertools.pairwise(moments), 3):
        if not (math.isfinite(now) and math.isfinite(before) and now >= before):
            raise InvalidInput(
                f"the trace {path}, line {line}: {now:g} comes after {before:g}", hint=hint
            )
    if moments[-1] <= moments[0]:
        raise InvalidInput(
            f"the trace {path} has no duration: all arrivals are at {moments[0]:g} s",
            hint="give arrivals at two or more different times",
        )
    return tuple(moment - moments[0] for moment in moments)
