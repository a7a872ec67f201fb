"""What operators ask of the tuner."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from tuner.core import REPEATED, AccessRole, Exploration, Ordinal, Terms, Value
from tuner.wire.message import Message

__all__ = [
    "Change",
    "ConstraintChange",
    "Decision",
    "ExplorationChange",
    "FleetDraft",
    "StudyDraft",
    "TOKEN_DAYS",
    "TokenDraft",
]

MOST_LINES = 5_000
"""The most lines of a fleet file: 5,000 are read within a second."""
TOKEN_DAYS = 90
"""How long a person's token lasts, unless the admin says so."""


class StudyDraft(Message):
    """A study an operator asks for. Constraints and objective are text, as one types them.

    `choices` cuts knobs down to some of their values; `conditions` says when a knob has an effect, as
    text like `workers > 0`. `objective` is a metric, with `minimize ` or
    `maximize ` before it where it is not known which way it is better. What is left open the tuner
    chooses by the first device: without an objective the first of energy, CPU time and latency that it
    measures, without `constraints` (None) a limit of its latency; an empty list says that none is wanted.
    `group` is the group of a fleet file that declares the study.
    """

    model_config = ConfigDict(ser_json_inf_nan="strings", frozen=True, extra="forbid")

    devices: tuple[str, ...]
    objective: str = ""
    second_objective: str = ""
    constraints: tuple[str, ...] | None = None
    policy: str = "polythrottle"
    seed: int = 0
    terms: Terms = Terms()
    exploration: Exploration = Exploration()
    group: str = ""
    choices: dict[str, tuple[Value, ...]] = Field(default_factory=dict)
    conditions: dict[str, str] = Field(default_factory=dict)
    who: str = "operator"


class Change(Message):
    """An operator's change of a study: who, and why."""

    who: str = "operator"
    why: str = ""


class ConstraintChange(Change):
    """All constraints a study has from now on, as text."""

    constraints: tuple[str, ...]


class ExplorationChange(Change):
    """When and how much a study may explore from now on."""

    exploration: Exploration


class FleetDraft(Change):
    """A fleet file, line by line, and the name it has where it was read.

    With `prune` studies that a file declared before, and this one does not, are stopped. `expects` is
    the fingerprint of the changes that were seen; empty: whatever they are now.
    """

    lines: Annotated[tuple[str, ...], REPEATED] = Field(max_length=MOST_LINES)
    name: str = "fleet.toml"
    prune: bool = False
    expects: str = ""


class Decision(Change):
    """An operator's yes or no to what a study proposes.

    `revision` is the study's that was seen, None for whatever it proposes now. `trial` is one whose
    setting is to be held in place of what is proposed; it must be proven to keep all limits.
    """

    revision: Ordinal | None = None
    trial: Ordinal | None = None


class TokenDraft(Message):
    """A token the admin asks for. Only one that enrols an agent may be left without a name.

    `days` is how long a person's lasts; 0 is until it is revoked. One that enrols lasts a day.
    """

    name: str = ""
    role: Literal[
        AccessRole.VIEWER,
        AccessRole.OPERATOR,
        AccessRole.ADMIN,
        AccessRole.GRID,
        AccessRole.ENROL,
    ]
    days: int = Field(default=TOKEN_DAYS, ge=0, le=3650)
