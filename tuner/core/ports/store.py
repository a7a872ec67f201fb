"""The port of the store, which gathers the other ports, and the bus of its notices."""

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
    """Notifies all processes that use one store of possible changes. Safe from many threads."""

    def publish(self, notice: Notice) -> None:
        """Notify every subscriber: at once in this process, soon in others. Never raises."""

    def subscribe(self, listener: Callable[[Notice], None]) -> Callable[[], None]:
        """Call `listener` with every notice, from any thread; return a function that ends this."""

    def listen(self) -> None:
        """Receive notices of other processes, too, until the store is closed. May be called again."""

    def leads(self) -> bool:
        """Return whether this process is the leader of those that listen: it does their common tasks."""

    def lag_s(self) -> float | None:
        """Return the seconds that the last notice took to arrive; None if other processes are not heard."""


class Store(Protocol):
    """All stored data behind one URL. Every method raises StoreError if the database does not answer."""

    @property
    def studies(self) -> Studies:
        """Studies and their revisions."""

    @property
    def trials(self) -> Trials:
        """Trials, reports and status history."""

    @property
    def leases(self) -> Leases:
        """Leases, under which agents run trials."""

    @property
    def devices(self) -> Devices:
        """Devices and their applied settings."""

    @property
    def observations(self) -> Observations:
        """Windows of holds."""

    @property
    def events(self) -> Events:
        """The operator's log."""

    @property
    def tokens(self) -> Tokens:
        """Access tokens."""

    @property
    def deliveries(self) -> Deliveries:
        """Deliveries of notifications."""

    @property
    def audit(self) -> Audit:
        """The audit log."""

    @property
    def stops(self) -> Stops:
        """The order to stop everything."""

    @property
    def budgets(self) -> Budgets:
        """Groups that share watts."""

    @property
    def replicas(self) -> Replicas:
        """The tuner processes at work."""

    @property
    def bus(self) -> Bus:
        """Notices of changes."""

    def ping(self) -> None:
        """Check that the store answers. Raises StoreError."""

    def check_writable(self) -> None:
        """Check that the store can be written to, by a write. Raises StoreError: gives the reason."""

    def close(self) -> None:
        """Close all connections."""
