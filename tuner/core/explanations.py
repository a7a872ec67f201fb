"""What a policy believes, for people: what each knob does, and what was refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from tuner.core.decisions import Past, Prediction
from tuner.core.knobs import Setting, Value

__all__ = ["BelievedSetting", "Explains", "Explanation", "KnobSlice"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BelievedSetting:
    """A setting with what is expected of it, by metric and in its unit.

    `chance` is how likely it is thought to keep every limit; `refused` why it would not be tried,
    empty where it would.
    """

    setting: Setting
    predicted: Mapping[str, Prediction]
    chance: float
    refused: str = ""
    measured: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobSlice:
    """What one knob does while all others stay as they are; `values` and `points` belong together."""

    knob: str
    values: tuple[Value, ...]
    points: tuple[BelievedSetting, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What a policy believes at the moment. `through` is the setting that the slices go through.

    `refused` are the most promising settings that would not be tried, best first; `text` what would be
    done next, or why nothing can be reported.
    """

    text: str
    through: Setting = field(default_factory=dict)
    slices: tuple[KnobSlice, ...] = ()
    refused: tuple[BelievedSetting, ...] = ()


@runtime_checkable
class Explains(Protocol):
    """A policy that can say what it believes."""

    def explain(self, past: Past) -> Explanation:
        """Return what is believed of a study by its trials; pure, as `suggest` is."""
        ...
