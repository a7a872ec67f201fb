"""Hooks for metrics of the loop's own work."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.core import Applied, Device, Limit, Measurement, Outcome, Study


class Telemetry:
    """Receive events after they are stored; this one keeps nothing.

    No method raises. Called from many threads.
    """

    def noted(self, kind: str) -> None:
        """Note that an event of a kind was written."""

    def measured(self, of: Study | Device, device: str, window: Measurement) -> None:
        """Note a window of a device, in a trial, while holding or while it is only observed."""

    def observed(self, device: Device, window: Measurement) -> None:
        """Note a window of a device that is only observed."""

    def held(self, study: Study, device: str, window: Measurement, limits: Sequence[Limit]) -> None:
        """Note a window of a hold; `limits` are those under which it is held."""

    def ended(self, outcome: Outcome) -> None:
        """Note how a trial ended."""

    def applied(self, applied: Applied) -> None:
        """Note that a device's setting differs from its last reported one."""

    def suggested(self, policy: str, seconds: float) -> None:
        """Note how many seconds the next step of a study while tuning took to decide."""
