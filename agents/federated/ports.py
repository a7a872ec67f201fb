"""The interface between a strategy and the tuner of its rounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from tuner.core import Context, Origin, Setting, Space


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundOutcome:
    """What a round showed.

    `metrics` are by name (`energy_j`, `energy_<class>_j`, `round_s`, `accuracy`, …); `origin` is MEASURED
    where the clients reported their own joules, ESTIMATED where they are modelled. `context` is the state
    that the round began from, `seconds` its wall time; `failed` why it came to nothing.
    """

    metrics: Mapping[str, float]
    origin: Origin
    context: Context
    seconds: float
    failed: str = ""


class RoundTuner(Protocol):
    """Decides a federation's rounds, one after the other."""

    @property
    def space(self) -> Space:
        """The knobs of a round."""
        ...

    @property
    def ended(self) -> str:
        """Why the training is over, as of the last `begin`; empty while it continues."""
        ...

    def begin(self, context: Context) -> Setting:
        """Return the coming round's setting; where the tuner is away, the latest one's."""
        ...

    def end(self, outcome: RoundOutcome) -> None:
        """Report a round; what cannot be sent now is kept, and sent later."""
        ...

    def close(self) -> None:
        """Send what is left, and let go."""
        ...
