"""The interface between a strategy and the tuner of its rounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from tuner.core import Context, Origin, Setting, Space


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundOutcome:
    """The result of a round.

    `metrics` are by name (`energy_j`, `energy_<class>_j`, `round_s`, `accuracy`, …). `origin` is MEASURED
    if the clients measured their joules, ESTIMATED if the joules are modelled. `context` is the state at
    the start of the round, and `seconds` is its wall time. `failed` is the reason of a failure; empty on
    success.
    """

    metrics: Mapping[str, float]
    origin: Origin
    context: Context
    seconds: float
    failed: str = ""


class RoundTuner(Protocol):
    """Chooses the setting of each round of a federation."""

    @property
    def space(self) -> Space:
        """The knobs of a round."""
        ...

    @property
    def ended(self) -> str:
        """The reason why the training is over, as of the last `begin`; empty while it continues."""
        ...

    def begin(self, context: Context) -> Setting:
        """Return the setting of the next round; that of the latest round if the tuner does not answer."""
        ...

    def end(self, outcome: RoundOutcome) -> None:
        """Report a round; a report that cannot be sent now is stored and sent later."""
        ...

    def close(self) -> None:
        """Send the stored reports, and release all resources."""
        ...
