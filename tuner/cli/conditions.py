"""When a knob has an effect, as it is written behind its values: `prefetch=2,4,8 if workers > 0`."""

from __future__ import annotations

import re

from tuner.core import Condition

IF = re.compile(r"\sif(?:\s|$)")


def parted(text: str) -> tuple[str, Condition | None]:
    """Return what is written of a knob's values, and its condition, None without one.

    Raises:
        InvalidInput: the condition cannot be read.
    """
    values, *conditions = IF.split(text, maxsplit=1)
    return values, Condition.parse(conditions[0]) if conditions else None
