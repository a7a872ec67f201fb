"""Devices, tuners and the order to stop, as they are kept."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from tuner.core.budget_groups import BudgetGroup, MemberRecord
from tuner.core.devices import Applied, Device, FleetStop, TunerReplica

__all__ = ["Budgets", "Devices", "Replicas", "Stops"]


class Devices(Protocol):
    """Devices as last registered, and what was applied to them."""

    def put(self, device: Device) -> None:
        """Store a device, replacing its former description."""

    def get(self, device: str) -> Device:
        """Return a device. Raises NotFound."""

    def agent(self, device: str) -> str:
        """Return the agent that registered a device. Raises NotFound."""

    def list(self) -> Sequence[Device]:
        """Return all devices by id."""

    def apply(self, applied: Applied) -> None:
        """Note what a device is set to, where that differs from the last note; tell other processes."""

    def standing(self) -> Mapping[str, Applied]:
        """Return what each device is set to, by its id; without devices that have no data."""

    def applied(self, device: str, since: datetime, last: int) -> Sequence[Applied]:
        """Return what was applied to a device since a time, and the setting before it, oldest first.

        Of more than `last`, the latest.
        """

    def refuse(self, device: str, why: str) -> None:
        """Note why a device takes no orders; empty: it takes them. Quietly nothing where it is unknown."""

    def refusals(self, devices: Collection[str] | None = None) -> Mapping[str, str]:
        """Return why (these) devices take no orders, by id; without those that do and unknown ones."""

    def heard_at(self) -> Mapping[str, datetime]:
        """Return when each device was last heard of, by its id, as it was stored."""

    def seen(self, at: Mapping[str, datetime]) -> None:
        """Note when devices were last heard of; unknown ones are left out."""

    def forget(self, device: str) -> None:
        """Remove a device and what was applied to it; its studies and its lease's token stay.

        Raises:
            NotFound: there is no such device.
            DeviceBusy: an active study has it.
        """


class Stops(Protocol):
    """The one order to stop the whole fleet, while there is one."""

    def current(self) -> FleetStop | None:
        """Return the order in force, None where there is none."""

    def order(self, stop: FleetStop) -> FleetStop:
        """Put an order in force and return it; where there is one already, that one."""

    def report(self, device: str, *, back: bool) -> None:
        """Note whether a device is at its original setting; nothing where no order is in force."""

    def lift(self) -> bool:
        """End the order and return whether there was one."""


class Replicas(Protocol):
    """The tuners at work on one database, each by its own word."""

    def tell(self, replica: TunerReplica) -> None:
        """Keep what a tuner reports about itself, instead of its former report."""

    def list(self) -> Sequence[TunerReplica]:
        """Return all by id, also those without a recent report."""

    def prune(self, before: datetime) -> int:
        """Delete those without a report since a time and return how many."""


class Budgets(Protocol):
    """Groups that share watts, and their members. What another has changed since is not overwritten."""

    def group(self, name: str) -> BudgetGroup:
        """Return a group. Raises NotFound."""

    def groups(self) -> Sequence[BudgetGroup]:
        """Return all groups by name."""

    def put_group(self, group: BudgetGroup) -> BudgetGroup:
        """Store a group in place of the one of its name and revision; return it with the next one.

        Raises:
            StaleRevision: another has changed it since, or it is not new.
        """

    def forget_group(self, name: str) -> None:
        """Remove a group; quietly nothing where there is none."""

    def member(self, device: str) -> MemberRecord | None:
        """Return a device's membership, None where it has none."""

    def members(self) -> Sequence[MemberRecord]:
        """Return all memberships by device, also released ones."""

    def put_member(self, member: MemberRecord) -> MemberRecord:
        """Store a membership in place of the one of its device and revision; return it with the next one.

        Raises:
            StaleRevision: another has changed it since, or it is not new.
        """
