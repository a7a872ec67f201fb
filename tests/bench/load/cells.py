"""A judged cell, as the bench writes it down."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmRow:
    """What one arm came to in a cell.

    `saving` is the share of the default's energy; `captured` the share of the way from the best single
    setting to the per-load oracle, None where that way is noise; `above` the share of windows with a p99
    above its limit, of those with a spike in them, too; `worst` the largest p99 over its limit.
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
    """A rival beside ours, seed by seed: how much more energy it took, as a share of the best single's."""

    rival: str
    difference: float
    difference_stderr: float
    keeps_as_often: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRow:
    """One row of the plan that was followed: below so much of the load, this clock."""

    below: float
    clock_mhz: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CellRow:
    """A server under a trace at one slack; times in milliseconds.

    `possible` is by how much less energy the per-load oracle takes than the best single setting, as a
    share of the latter's.
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
