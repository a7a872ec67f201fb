"""The store: a port for each thing kept, and word of what is new."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tuner.core.devices import Notice
from tuner.core.ports.access import Audit, Tokens
from tuner.core.ports.fleet import Budgets, Devices, Replicas, Stops
from tuner.core.ports.log import Deliveries, Events, Observations
from tuner.core.ports.studies import Studies
from tuner.core.ports.trials import Leases, Trials

__all__ = ["Bus", "Store"]


class Bus(Protocol):
    """Tells everybody at work on one store that there may be something new. Safe from many threads."""

    def publish(self, notice: Notice) -> None:
        """Tell every subscriber, in this process at once, in others soon; never raises."""

    def subscribe(self, listener: Callable[[Notice], None]) -> Callable[[], None]:
        """Have `heard` called with every notice, from any thread; return what ends that."""

    def listen(self) -> None:
        """Hear other processes, too, until the store is closed. Once more is no other."""

    def leads(self) -> bool:
        """Return whether this process does what one alone of those that listen does for all."""

    def lag_s(self) -> float | None:
        """Return how long a notice lately took to be heard; None where other processes are not heard."""


class Store(Protocol):
    """All of the memory behind one URL. Raises StoreError where the database does not answer."""

    @property
    def studies(self) -> Studies:
        """Studies and their revisions."""

    @property
    def trials(self) -> Trials:
        """Trials, reports and status history."""

    @property
    def leases(self) -> Leases:
        """Who may run what now."""

    @property
    def devices(self) -> Devices:
        """Devices and what is applied."""

    @property
    def observations(self) -> Observations:
        """Windows of holds."""

    @property
    def events(self) -> Events:
        """The operator's log."""

    @property
    def tokens(self) -> Tokens:
        """Who may ask."""

    @property
    def deliveries(self) -> Deliveries:
        """Deliveries of notifications."""

    @property
    def audit(self) -> Audit:
        """Who changed what."""

    @property
    def stops(self) -> Stops:
        """The order to stop everything."""

    @property
    def budgets(self) -> Budgets:
        """Groups that share watts."""

    @property
    def replicas(self) -> Replicas:
        """Which tuners are at work."""

    @property
    def bus(self) -> Bus:
        """What is new."""

    def ping(self) -> None:
        """Return quietly when the store answers. Raises StoreError."""

    def check_writable(self) -> None:
        """Return quietly once the store has kept something new. Raises StoreError: says why not."""

    def close(self) -> None:
        """Release connections."""
