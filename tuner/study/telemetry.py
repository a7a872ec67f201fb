"""What the loop reports about its own work, for metrics."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.core import Applied, Limit, Measurement, Outcome, Study


class Telemetry:
    """Hears what happens, after it has been stored; this one keeps nothing.

    Nothing here raises. Called from many threads.
    """

    def noted(self, kind: str) -> None:
        """Hear that an event of a kind was written."""

    def measured(self, study: Study, device: str, window: Measurement) -> None:
        """Hear what one window of a device showed, in a trial or while holding."""

    def held(self, study: Study, device: str, window: Measurement, limits: Sequence[Limit]) -> None:
        """Hear what a window of a hold showed; `limits` are those that it is held by."""

    def ended(self, outcome: Outcome) -> None:
        """Hear how a trial ended."""

    def applied(self, applied: Applied) -> None:
        """Hear that a device is set otherwise than when it was last heard of."""

    def suggested(self, policy: str, seconds: float) -> None:
        """Hear how long a study's next step while tuning took to decide."""
