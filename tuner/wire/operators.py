"""Requests of operators to the tuner."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from tuner.core import REPEATED, AccessRole, Exploration, Ordinal, Value, Written
from tuner.wire.message import Message

MOST_LINES = 5_000
"""The most lines of a fleet file; 5,000 lines are read within a second."""
TOKEN_DAYS = 90
"""The default lifetime of a person's token, in days."""


class StudyDraft(Message, Written):  # type: ignore[misc] # pydantic freezes it
    """A request for a study. Constraints and objective are text, as typed on the command line.

    `choices` restricts knobs to some of their values; `conditions` states when a knob has an effect, as
    text like `workers > 0`. `objective` is a metric, preceded by `minimize ` or `maximize ` if its better
    direction is unknown. The tuner fills the gaps from the first device: without an objective it takes
    the first of energy, CPU time and latency that the device measures; without `constraints` (None) it
    limits the latency; an empty list sets no limit. `group` is the group of a fleet file that declares
    the study.
    """

    model_config = ConfigDict(ser_json_inf_nan="strings", frozen=True, extra="forbid")

    devices: tuple[str, ...]
    exploration: Exploration = Exploration()
    group: str = ""
    choices: dict[str, tuple[Value, ...]] = Field(default_factory=dict)
    conditions: dict[str, str] = Field(default_factory=dict)
    who: str = "operator"


class Change(Message):
    """An operator's change of a study, with its author and reason."""

    who: str = "operator"
    why: str = ""


class ConstraintChange(Change):
    """All constraints that a study has from now on, as text."""

    constraints: tuple[str, ...]


class ExplorationChange(Change):
    """When and how much a study may explore from now on."""

    exploration: Exploration


class FleetDraft(Change):
    """A fleet file, line by line, and its name on the operator's machine.

    With `prune`, studies that an earlier file declared and this file does not are stopped. `expects` is
    the fingerprint of the changes that the operator has seen; empty: apply the changes unchecked.
    """

    lines: Annotated[tuple[str, ...], REPEATED] = Field(max_length=MOST_LINES)
    name: str = "fleet.toml"
    prune: bool = False
    expects: str = ""


class Decision(Change):
    """An operator's approval or rejection of a study's proposal.

    `revision` is the revision of the study that the operator has seen; None: the present proposal.
    `trial` selects the setting of that trial in place of the proposal; it must be proven to keep all
    limits.
    """

    revision: Ordinal | None = None
    trial: Ordinal | None = None


class TokenDraft(Message):
    """A request of the admin for a token. Only a token that enrols an agent may be left without a name.

    `days` is the lifetime of a person's token; 0: until it is revoked. An enrolment token lasts one day.
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
