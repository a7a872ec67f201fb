"""The condition for a knob's effect, written after its values: `prefetch=2,4,8 if workers > 0`."""

from __future__ import annotations

import re

from tuner.core import Condition

IF = re.compile(r"\sif(?:\s|$)")


def parted(text: str) -> tuple[str, Condition | None]:
    """Return the text of a knob's values, and its condition (None if it has none).

    Raises:
        InvalidInput: the condition cannot be read.
    """
    values, *conditions = IF.split(text, maxsplit=1)
    return values, Condition.parse(conditions[0]) if conditions else None
