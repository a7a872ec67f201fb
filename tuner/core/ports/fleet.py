"""Ports for devices, the order to stop the fleet, tuner replicas and power budgets."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from tuner.core.budget_groups import BudgetGroup, MemberRecord
from tuner.core.devices import Applied, Device, FleetStop, TunerReplica
from tuner.core.ports.rows import StoredRows

__all__ = ["Budgets", "Devices", "Replicas", "Stops"]


class Devices(Protocol):
    """Devices as last registered, and the settings applied to them."""

    def put(self, device: Device) -> None:
        """Store a device, replacing its former description."""

    def get(self, device: str) -> Device:
        """Return a device. Raises NotFound, Unreadable."""

    def agent(self, device: str) -> str:
        """Return the agent that registered a device. Raises NotFound."""

    def list(self) -> StoredRows[Device]:
        """Return all devices by id."""

    def apply(self, applied: Applied) -> None:
        """Record a device's setting if it differs from the last record, and notify other processes."""

    def standing(self) -> StoredRows[Applied]:
        """Return the last recorded setting of each device that has a record."""

    def applied(self, device: str, since: datetime, last: int) -> Sequence[Applied]:
        """Return the settings applied to a device since a time and the one before them, oldest first.

        At most the `last` latest.
        """

    def refuse(self, device: str, why: str) -> None:
        """Record why a device takes no orders; empty: it takes them. Do nothing if it is unknown."""

    def refusals(self, devices: Collection[str] | None = None) -> Mapping[str, str]:
        """Return the reasons of the devices that take no orders, by id: of these devices, or of all."""

    def heard_at(self) -> Mapping[str, datetime]:
        """Return the stored time of each device's last message, by id."""

    def seen(self, at: Mapping[str, datetime]) -> None:
        """Record the times of devices' last messages; ignore unknown devices."""

    def forget(self, device: str) -> None:
        """Remove a device and the record of its settings; keep its studies and its lease's token.

        Raises:
            NotFound: the device is unknown.
            DeviceBusy: an active study has it.
        """


class Stops(Protocol):
    """The order to stop the whole fleet; at most one is in force."""

    def current(self) -> FleetStop | None:
        """Return the order in force, if any."""

    def order(self, stop: FleetStop) -> FleetStop:
        """Put an order in force and return it; if another is in force already, return that one."""

    def report(self, device: str, *, back: bool) -> None:
        """Record whether a device is at its original setting; do nothing while no order is in force."""

    def lift(self) -> bool:
        """End the order and return whether one was in force."""


class Replicas(Protocol):
    """The tuner processes that work on one database, by their own reports."""

    def tell(self, replica: TunerReplica) -> None:
        """Store a tuner's report about itself in place of its former one."""

    def list(self) -> StoredRows[TunerReplica]:
        """Return all tuners by id, also those without a recent report."""

    def prune(self, before: datetime) -> int:
        """Delete tuners without a report since a time and return their number."""


class Budgets(Protocol):
    """Groups of devices that share watts, and their members. Another writer's change is not overwritten."""

    def group(self, name: str) -> BudgetGroup:
        """Return a group. Raises NotFound, Unreadable."""

    def groups(self) -> StoredRows[BudgetGroup]:
        """Return all groups by name."""

    def put_group(self, group: BudgetGroup) -> BudgetGroup:
        """Store a group in place of its revision (0: as a new group); return it with the next revision.

        Raises:
            StaleRevision: the stored revision is another, or the name of a new group is taken.
        """

    def forget_group(self, name: str) -> None:
        """Remove a group; do nothing if it does not exist."""

    def member(self, device: str) -> MemberRecord | None:
        """Return a device's membership, None if it has none. Raises Unreadable."""

    def members(self) -> StoredRows[MemberRecord]:
        """Return all memberships by device, including released ones."""

    def put_member(self, member: MemberRecord) -> MemberRecord:
        """Store a membership in place of its revision (0: as a new one); return it with the next revision.

        Raises:
            StaleRevision: the stored revision is another, or the device of a new one has a membership.
        """
