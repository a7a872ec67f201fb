"""Holds the confirmed setting on the host, independently of the tuner."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import InitVar, dataclass
from datetime import datetime
from pathlib import Path

from agents.holding.hold import Hold
from agents.holding.hold_file import HoldFile
from agents.holding.journal import Journal
from agents.host.machine import Host
from agents.target.target import SideSettings, Target
from tuner.core import (
    POWER_PROFILES,
    ActuationError,
    Applied,
    Clock,
    Level,
    Limit,
    Measurement,
    Now,
    StoreError,
    TuningError,
    Verdict,
    judge,
    render_setting,
    setting_key,
)
from tuner.wire import HoldOrder

log = logging.getLogger(__name__)

BROKEN_WINDOWS = 3
"""A hold ends after this many consecutive windows that break the SLO."""
RENEW_SHARE = 0.01
"""The tuner's renewal is written to disk once this share of a hold's time has passed."""


@dataclass(eq=False)
class Holder:
    """Keep one device at its hold.

    `attached` is the journal's record for opening the device again. A hold is written to disk
    before the device is changed. It ends in memory and on the device even if the disk refuses; the
    write is then repeated later. A hold without a journal entry has ended, because restoring
    removes the entry. The plan runner follows the hold from another thread; changes are serialised.
    """

    device: str
    target: Target
    folder: InitVar[Path]
    journal: Journal
    attached: Mapping[str, str]
    host: Host
    clock: Clock
    now: Now

    def __post_init__(self, folder: Path) -> None:
        self._file = HoldFile(self.device, folder, self.journal)
        self._hold: Hold | None = None
        with suppress(StoreError):
            self.load()
        self._lock = threading.RLock()
        self.is_aside = False
        """Whether a trial or a window has the device."""
        self.is_lent = False
        """Whether a trial has the device."""
        self._parked: SideSettings = {}
        self._handed = False
        self.incarnation = ""
        """Identifier of the workload start to which the hold was last applied; empty if unknown."""
        self._void = ""

    def load(self) -> None:
        """Load the hold from the disk; ignore a damaged one, because its terms are unknown.

        Raises:
            StoreError: it cannot be read now; try again.
        """
        self._hold = self._file.load() or self._hold

    @property
    def current(self) -> Hold | None:
        """The hold in force, or None."""
        return self._hold if self._hold is not None and not self._hold.ended else None

    def applied(self) -> Applied:
        """Return the setting in force, with the hold if there is one; a parked device counts as held.

        The tuner judges a held setting by its trials; no study has chosen the parked one.

        Raises:
            ActuationError: the setting in force cannot be read.
        """
        hold = self.current
        level = Level.ORIGINAL if hold is None else Level.HOLD
        name, revision = ("", 0) if hold is None else (hold.order.study, hold.order.revision)
        before, setting = self._parked, dict(self.target.read())
        for held in (*before.values(), *self._parked.values()):  # either may change meanwhile
            setting.update(held)
        who, at = {"device": self.device, "study": name}, self.now()
        return Applied(**who, setting=setting, level=level, at=at, revision=revision)

    @property
    def unreported(self) -> Hold | None:
        """A hold that has ended without a report to the tuner, or None."""
        hold = self._hold
        return hold if hold is not None and hold.ended and not hold.told else None

    def mark_reported(self, reported: bool = True) -> None:
        """Note that the report of the end is on its way, or must be sent again."""
        with self._lock:
            if self._hold is not None and self._hold.ended:
                self._become(self._hold.model_copy(update={"told": reported}))

    def refuses(self, order: HoldOrder) -> str:
        """Return why an assignment is refused: the same hold has ended here. Empty if it is not."""
        hold = self._hold
        return hold.ended if hold is not None and hold.ended and hold.is_of(order) else ""

    def persist(self) -> None:
        """Repeat the writes that the disk has refused so far."""
        with self._lock:
            if self._file.behind:
                self._become(self._hold)

    def take(self, order: HoldOrder) -> None:
        """Put an order in force, or renew the one in force.

        Raises:
            ActuationError: it could not be put in force; end it.
            StoreError: it could not be written; nothing was changed.
        """
        with self._lock:
            self._take(order)

    def _take(self, order: HoldOrder) -> None:
        """Renew the hold if the order is the same; else apply the order's setting and hold it."""
        now, monotonic = self.now(), self.clock.monotonic()
        hold = self.current
        if hold is not None and hold.order == order:
            elapsed_s = order.valid_for_s - hold.left_s(self.host, now, monotonic)
            if elapsed_s > RENEW_SHARE * order.valid_for_s:
                renewed = self._granted(order, now, monotonic, hold.row, hold.broken)
                kept = {"power_profiles": hold.power_profiles, "accepted": hold.accepted}
                self._become(renewed.model_copy(update=kept))
                self.unpark()
                self._confirm()
            return
        same_plan = hold is not None and hold.order.plan == order.plan
        row = hold.row if hold is not None and same_plan else order.plan.row({})
        log.info(
            "event=hold device=%s study=%s revision=%d setting=%r",
            self.device,
            order.study,
            order.revision,
            render_setting(order.plan.rows[row].setting),
        )
        self._journal_first()
        granted = self._granted(order, now, monotonic, row, {})
        self._file.write(granted)
        self._hold = granted
        self.enforce()

    def enforce(self) -> None:
        """Apply the held setting if it is not in force: at start, and after a trial.

        Raises:
            ActuationError: it could not be applied; end the hold.
        """
        with self._lock:
            hold = self.current
            if hold is None:
                return
            self._journal_first()
            # Read before applying: a restart in between then shows as a restart.
            incarnation = self._started()
            self._handed = self.target.apply(hold.setting, hold.order.plan)
            self.incarnation, self._parked = incarnation, {}
            self._confirm()

    @contextmanager
    def set_aside(self, *, lend: bool = False) -> Iterator[None]:
        """Leave the device to a trial or a window: within the block the hold's plan is not followed.

        While lent to a trial, the hold is not re-applied even to a restarted workload.
        """
        with self._lock:
            if not lend:  # a trial applies its own setting
                self.unpark()
            self.is_aside, self.is_lent = True, lend
        try:
            yield
        finally:
            self.is_aside = self.is_lent = False

    @property
    def handed(self) -> bool:
        """Whether the workload follows the hold's plan itself."""
        return self._handed and self.current is not None

    def check_handed(self) -> None:
        """Read the plan that the workload follows, note its row, and send the plan again if it is lost.

        Raises:
            ActuationError: the workload does not report it, or refuses it; try again.
        """
        with self._lock:
            hold = self.current
            if hold is None or not self._handed or self.is_aside:
                return
            if not self.target.follows(hold.order.plan):
                log.warning("event=plan_lost device=%s", self.device)
                self.enforce()
                return
            accepted = dict(self.target.look(hold.accepted))
            now, row = self.target.read(), hold.row
            if setting_key(now) != setting_key(self.target.caps.clipped(hold.setting)):
                other = hold.order.plan.row_of(now)
                row = row if other is None else other
            if row != hold.row:
                log.info("event=plan_row device=%s row=%d", self.device, row)
            if (row, accepted) != (hold.row, hold.accepted):
                self._become(hold.model_copy(update={"row": row, "accepted": accepted}))

    def take_up(self, incarnation: str) -> bool:
        """Apply the held setting to a restarted workload; return whether it was restarted.

        Raises:
            ActuationError: it could not be applied; try again.
        """
        with self._lock:
            if self.is_lent or self.current is None or incarnation == self.incarnation:
                return False
            self.enforce()
            return True

    def follow(self, hold: Hold, row: int) -> bool:
        """Change the row of `hold`; return False if it is not in force or the device is lent.

        Raises:
            ActuationError: the row could not be put in force; the former row stays held.
        """
        with self._lock:
            if self.is_aside or self.current is not hold:
                return False
            log.info(
                "event=plan_row device=%s row=%d setting=%r",
                self.device,
                row,
                render_setting(hold.order.plan.rows[row].setting),
            )
            self._become(hold.model_copy(update={"row": row}))
            try:
                self.enforce()
            except TuningError:
                self._become(hold)
                raise
            return True

    def park(self, settings: SideSettings) -> None:
        """Apply other settings to the hold's devices as a trial, which ends with this agent; see `unpark`.

        Raises:
            ActuationError: they are not in force; call `unpark`.
            Conflict: a batch job has a device; nothing was changed.
        """
        with self._lock:
            hold = self.current
            if hold is not None and not self.is_aside:
                self.target.refuse_beside_a_job()
                held = self.target.caps.clipped(hold.setting)
                self._parked = {key: {k: held[k] for k in one} for key, one in settings.items()}
                self._put(settings)

    @property
    def parked(self) -> bool:
        """Whether devices have another setting than the held one, until `unpark`."""
        return bool(self._parked)

    def unpark(self) -> bool:
        """Apply the held setting to parked devices; return whether there were any.

        A device lent to a trial keeps that one's setting. A batch job has ended the parking of its device;
        the hold waits below it.

        Raises:
            ActuationError: a device does not show it; try again.
        """
        with self._lock:
            if self.is_lent or not self._parked:
                return False
            leased = self.target.jobs
            try:
                self._put({k: one for k, one in self._parked.items() if k not in leased})
            finally:
                self._confirm()
            self._parked = {}
            return True

    def _put(self, settings: SideSettings) -> None:
        """Apply settings of sides. Raises ActuationError with all failures."""
        if failures := self.target.restore(settings):
            raise ActuationError("; ".join(failures))

    def void(self, why: str) -> None:
        """Mark the hold, from another thread, as one that must end; `lapsed` then returns the reason."""
        self._void = why

    def lapsed(self) -> str:
        """Return why the hold in force must end now, other than by its windows; empty while it is valid."""
        hold = self.current
        if hold is None:
            return ""
        driver, version = self.target.driver, self.target.runs.version
        if hold.driver != driver:
            return f"the driver changed from {hold.driver} to {driver}"
        if hold.workload_version != version:
            return f"the workload changed from {hold.workload_version} to {version}"
        if self._void:
            return self._void
        entry = self.journal.get(self.device)
        if entry is None:
            return "the device had already been restored"
        was = entry.attached.get("spec", "")
        if was and was not in self.attached.values():
            return f"{self.device} is now another device; before: {was}"
        if hold.left_s(self.host, self.now(), self.clock.monotonic()) <= 0.0:
            return f"the tuner was unreachable for {hold.order.valid_for_s:g} s, the longest time of a hold"
        return ""

    def observed(self, measurement: Measurement) -> str:
        """Record one window; return why the hold must end, or an empty text."""
        with self._lock:
            hold = self.current
            if hold is None:
                return ""
            broke = judge(measurement.estimates, hold.limits) is Verdict.INFEASIBLE
            count = hold.broken.get(hold.row, 0) + 1 if broke else 0
            broken = {**hold.broken, hold.row: count}
            profiles = measurement.sources.get(POWER_PROFILES, "")
            first = hold.power_profiles or profiles
            if (broken, first) != (hold.broken, hold.power_profiles):
                update = {"broken": broken, "power_profiles": first}
                self._become(hold.model_copy(update=update))
            if profiles and profiles != first:
                return f"the power profiles changed from {first} to {profiles}"
            if count >= BROKEN_WINDOWS:
                return f"{_worst(hold.limits, measurement)} in {count} windows in a row"
            return ""

    def end(self, why: str) -> None:
        """End the hold, restore the device to its original setting, then write that to disk.

        Raises:
            ActuationError: part of the device was not restored; the hold has ended all the same.
        """
        with self._lock:
            hold = self.current
            if hold is not None:
                log.warning(
                    "event=hold_ended device=%s study=%s why=%r",
                    self.device,
                    hold.order.study,
                    why,
                )
                self._hold = hold.model_copy(update={"ended": why})
            self._restore()

    def drop(self) -> None:
        """Restore the device and forget the hold in force, so that the tuner may order it again.

        Raises:
            ActuationError: part of the device was not restored; the hold is gone all the same.
        """
        with self._lock:
            if self.current is not None:
                self._hold = None
            self._restore()

    def _restore(self) -> None:
        """Restore the device from the journal, and store the hold, also if restoring fails."""
        self._void, self._handed, self._parked = "", False, {}
        try:
            self.journal.restore(self.device, self.target)
        finally:
            self._become(self._hold)

    def _confirm(self) -> None:
        """Confirm the hold and its duration to the actuator. Raises ActuationError."""
        hold = self.current
        if hold is not None:
            left_s = hold.left_s(self.host, self.now(), self.clock.monotonic())
            self.target.hold(hold.setting, hold.order.study, hold.order.revision, left_s)

    def _started(self) -> str:
        """Return the workload's incarnation, a text that changes with each restart."""
        restartable = self.target.restartable
        return "" if restartable is None else restartable.incarnation()

    def _journal_first(self) -> None:
        self.journal.record(self.device, self.target, Level.HOLD, self.host.boot, self.attached)

    def _granted(
        self, order: HoldOrder, now: datetime, monotonic: float, row: int, broken: dict[int, int]
    ) -> Hold:
        """Return a hold of the order that is valid from `now` on."""
        return Hold(
            order=order,
            granted_at=now,
            granted_s=monotonic,
            boot=self.host.boot,
            driver=self.target.driver,
            workload_version=self.target.runs.version,
            row=row,
            broken=broken,
        )

    def _become(self, hold: Hold | None) -> None:
        """Adopt a state, and write it to disk as soon as the disk allows."""
        self._hold = hold
        self._file.keep(hold)


def context_of(measurement: Measurement) -> Mapping[str, float]:
    """Return the mean of each metric measured in a window."""
    return {name: estimate.mean for name, estimate in measurement.estimates.items()}


def _worst(limits: tuple[Limit, ...], measurement: Measurement) -> str:
    """Return the sentence of the first limit that the measurement breaks."""
    for limit in limits:
        estimate = measurement.estimates.get(limit.metric)
        if estimate is not None and limit.verdict(estimate) is Verdict.INFEASIBLE:
            return (
                f"{limit.metric} was {estimate.mean:.4g}, the limit is {limit.op} {limit.value:.4g}"
            )
    return "a limit was broken"
