"""What `jouletune doctor` looked at."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at: whether it is there, what was seen, and what to do where it is not."""

    about: str
    there: bool
    seen: str
    hint: str = ""
