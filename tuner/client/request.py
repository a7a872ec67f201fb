"""The arguments of `tune`. Generated from `tuner.wire.StudyDraft`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

from tuner.core import Exploration, Terms


class StudyRequest(TypedDict, total=False):
    """The fields of a request for a study; an absent one has the default of a draft."""

    name: str
    policy: str
    seed: int
    terms: Terms
    objective: str
    second_objective: str
    constraints: Sequence[str] | None
    exploration: Exploration
    choices: Mapping[str, Sequence[bool | int | float | str]]
    conditions: Mapping[str, str]
