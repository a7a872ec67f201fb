"""Builders of a tuner's orders to an agent."""

from __future__ import annotations

from tuner.core import Phase, Plan, Setting
from tuner.wire import Assignment, HoldOrder


def assignment(at: Setting, baseline: Setting, /, **changes: object) -> Assignment:
    """Return the order of a first trial at a setting, of 10 s."""
    fields: dict[str, object] = {
        "study": "s1",
        "revision": 1,
        "trial": 1,
        "attempt": 1,
        "token": 1,
        "nonce": "n1",
        "lease_s": 30.0,
        "phase": Phase.TUNING,
        "setting": at,
        "baseline": baseline,
        "metrics": ("energy_j",),
        "window_s": 10.0,
        "max_window_s": 10.0,
    }
    return Assignment(**{**fields, **changes})  # type: ignore[arg-type]


def hold_order(plan: Plan, baseline: Setting, /, **changes: object) -> HoldOrder:
    """Return the order to hold a plan for an hour, without limits."""
    fields: dict[str, object] = {
        "study": "s1",
        "revision": 1,
        "plan": plan,
        "baseline": baseline,
        "limits": ((),) * len(plan.rows),
        "metrics": ("energy_j",),
        "valid_for_s": 3600.0,
        "observe_s": 60.0,
        "window_s": 10.0,
    }
    return HoldOrder(**{**fields, **changes})  # type: ignore[arg-type]
