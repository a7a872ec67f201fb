"""The result of one check of `jouletune doctor`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """A check: its subject, whether it passed, the observed state, and the next step if it failed.

    `there` is None where this host has no such thing.
    """

    about: str
    there: bool | None
    seen: str
    hint: str = ""
