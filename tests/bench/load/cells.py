"""A judged cell, in the form in which the bench writes it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmRow:
    """The result of one arm in a cell.

    `saving` is the share of the default's energy; `captured` the share of the difference between the best
    single setting and the per-load oracle, None if that difference is noise; `above` the share of windows
    with a p99 above its limit, also of those with a spike; `worst` the largest p99 over its limit.
    """

    arm: str
    watts: float
    saving: float
    captured: float | None
    captured_stderr: float | None
    above: float
    above_in_spikes: float
    worst: float
    keeps: bool
    unanswered: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A rival against ours, paired by seed: its extra energy, as a share of the best single setting's."""

    rival: str
    difference: float
    difference_stderr: float
    keeps_as_often: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRow:
    """One row of the followed plan: its clock, below a boundary of the load."""

    below: float
    clock_mhz: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CellRow:
    """A server under a trace at one slack; times in milliseconds.

    `possible` is the saving of the per-load oracle over the best single setting, as a share of the latter's
    energy.
    """

    server: str
    trace: str
    share: int
    slack: float
    ttft_p99_ms: float
    tpot_p99_ms: float
    seeds: int
    windows: int
    single_mhz: float
    possible: float
    possible_stderr: float
    plan: tuple[PlanRow, ...]
    trials: int
    hours: float
    note: str
    arms: tuple[ArmRow, ...]
    pairs: tuple[Pair, ...]
