"""What passes through the loop, for whoever counts it."""

from __future__ import annotations

from typing import Protocol

from tuner.core import Measurement, Study, TrialState


class LoopMeter(Protocol):
    """Counts what passes through the loop; called once for each, from any thread."""

    def suggested(self, seconds: float) -> None:
        """Note how long a study's next step took to find."""
        ...

    def reported(
        self, study: Study, device: str, state: TrialState | None, window: Measurement | None
    ) -> None:
        """Note what a device told: how its part in a trial ended; or, without a state, a held window."""
        ...


class UnmeteredLoop:
    """Counts nothing."""

    def suggested(self, seconds: float) -> None:
        """Note nothing."""

    def reported(
        self, study: Study, device: str, state: TrialState | None, window: Measurement | None
    ) -> None:
        """Note nothing."""
