"""Explanations of a policy for people: the predicted effect of each knob, and the refused settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from tuner.core.decisions import Past, Prediction
from tuner.core.knobs import Setting, Value

__all__ = ["BelievedSetting", "Explains", "Explanation", "KnobSlice"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BelievedSetting:
    """A setting with its prediction, by metric and in the metric's unit.

    `chance` is the predicted probability that it keeps every limit. `refused` is why the policy would not
    try it; empty if it would.
    """

    setting: Setting
    predicted: Mapping[str, Prediction]
    chance: float
    refused: str = ""
    measured: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobSlice:
    """The predicted effect of one knob with all others fixed: `points` has the setting of each value."""

    knob: str
    values: tuple[Value, ...]
    points: tuple[BelievedSetting, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The present predictions of a policy. `through` is the setting that all slices contain.

    `refused` are the settings with the best predictions that the policy would not try, best first. `text`
    is the policy's next step, or the reason why it cannot explain anything yet. `query` is the prediction
    for the setting of the question; None without one, or if the model does not cover it.
    """

    text: str
    through: Setting = field(default_factory=dict)
    slices: tuple[KnobSlice, ...] = ()
    refused: tuple[BelievedSetting, ...] = ()
    query: BelievedSetting | None = None


@runtime_checkable
class Explains(Protocol):
    """A policy that can explain its predictions."""

    def explain(self, past: Past, query: Setting | None = None) -> Explanation:
        """Return the policy's explanation of a study, and of one setting; pure, like `suggest`."""
        ...
