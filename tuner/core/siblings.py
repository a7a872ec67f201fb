"""What finished studies leave behind: a posterior over their space, and its use by another study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tuner.compat import StrEnum
from tuner.core.devices import Device
from tuner.core.knobs import Role, Setting, Space

__all__ = [
    "LEAST_HOLDERS",
    "NO_MEMORY",
    "POSTERIOR_VERSION",
    "Closeness",
    "SiblingMemory",
    "Posterior",
    "PosteriorKnob",
    "Sibling",
    "SiblingRef",
    "Transfer",
    "Worth",
    "matched",
    "varied",
    "versions_of",
]

POSTERIOR_VERSION = 1
"""Posteriors of another version are built again from their trials."""


class Closeness(StrEnum):
    """What two studies have in common by what their devices declare, closest first."""

    BOARD_AND_WORKLOAD = "same board and workload"
    BOARD = "same board"
    WORKLOAD = "same workload"
    KIND = "same kind"


@dataclass(frozen=True, slots=True)
class PosteriorKnob:
    """A knob of a posterior; `named` where its values are names or switches, without an order."""

    name: str
    role: Role
    named: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Posterior:
    """What a finished study believes of its space, relative to its own baseline.

    `points` has one row per selected setting, the baseline first: for each knob the logarithm of its
    value over the default, or its name as text. `means` (`metrics x points`) are the expected
    logarithms of each metric over its baseline; `directions` (`n x metrics x points`) are the
    largest joint deviations from them. `baseline` is what its windows showed there, in each metric's
    unit. `held` is the held setting, empty where no single setting is held, `aim` the objective and
    the constraints that it is held for, and `settings` how many settings were measured. `worth` is
    the probability that the first windows gave to siblings of each closeness against the cold model,
    at even odds.
    """

    study: str
    revision: int
    version: int = POSTERIOR_VERSION
    board: str
    kind: str
    workload: str
    versions: str
    knobs: tuple[PosteriorKnob, ...]
    points: tuple[tuple[float | str, ...], ...]
    metrics: tuple[str, ...]
    means: tuple[tuple[float, ...], ...]
    directions: tuple[tuple[tuple[float, ...], ...], ...]
    baseline: Mapping[str, float]
    held: Setting
    aim: str
    settings: int
    worth: Mapping[Closeness, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SiblingRef:
    """One posterior that a study uses: whose it is, which version of it, and how close."""

    study: str
    digest: str
    closeness: Closeness


@dataclass(frozen=True, slots=True)
class Worth:
    """The mean worth of siblings of one closeness over the `studies` of a database."""

    mean: float
    studies: int


LEAST_HOLDERS = 3
"""The least number of like studies that must agree on a plan that is verified before a search."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """The siblings that a study uses, chosen once its baseline is measured.

    `trust` is the probability that it starts with for those of each closeness. `plan` is the setting
    that `holders` like studies agree on and that is verified before a search; empty for none.
    """

    siblings: tuple[SiblingRef, ...] = ()
    trust: Mapping[Closeness, float] = field(default_factory=dict, hash=False)
    plan: Setting = field(default_factory=dict, hash=False)
    holders: int = 0


@dataclass(frozen=True, slots=True)
class Sibling:
    """A posterior of another study, and how close that study is."""

    posterior: Posterior = field(hash=False)
    closeness: Closeness


@dataclass(frozen=True, slots=True)
class SiblingMemory:
    """The siblings that a decision may read, and the initial trust in each closeness.

    `id` is a digest of all of it: memories of one id are the same wherever a decision is made.
    """

    id: str = ""
    siblings: tuple[Sibling, ...] = field(default=(), compare=False)
    trust: Mapping[Closeness, float] = field(default_factory=dict, compare=False)


def varied(space: Space) -> tuple[PosteriorKnob, ...]:
    """Return the knobs of a space that have more than one value, as a posterior has them."""
    return tuple(
        PosteriorKnob(k.name, k.role, any(isinstance(v, bool | str) for v in k.values))
        for k in space.knobs
        if len(k.values) > 1
    )


def matched(
    knobs: Sequence[PosteriorKnob], required: Sequence[PosteriorKnob]
) -> tuple[int, ...] | None:
    """Return the place of the knob that matches each required one, None where one has no match.

    A knob matches one of its name and role, else the only one of its role.
    """
    places: list[int] = []
    for knob in required:
        same = [i for i, other in enumerate(knobs) if other == knob]
        alike = [i for i, k in enumerate(knobs) if (k.role, k.named) == (knob.role, knob.named)]
        if not same and knob.role is not Role.UNKNOWN and len(alike) == 1:
            same = alike
        if not same or same[0] in places:
            return None
        places.append(same[0])
    return tuple(places)


def versions_of(device: Device) -> str:
    """Return the versions that a plan of one device is valid for on another."""
    return f"driver {device.driver}, workload {device.workload_version}"


NO_MEMORY = SiblingMemory()
"""The memory of a study without siblings."""
