"""Tracks each device's agent: its identity, its last contact, and whether it takes orders."""

from __future__ import annotations

import math
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime

import db
from tuner.core import Conflict, Context, Device, FleetStop, Now, Study
from tuner.wire import LONGEST_POLL_S, ONLY_OBSERVED, Poll, StudyView

MOST_MET = 8
"""Number of remembered starts of a device's agents."""
MOST_AGAIN_S = 60.0
"""Longest delay in s imposed on agents when too many poll; they do not support a longer one."""
KEEP_S = 30.0
"""Interval in s at which contacts are stored, for readers of the database and the tuner's next start."""


class Presence:
    """Track the contacts of devices; thread-safe.

    Silence is counted on this process's own clock, which is never set. Contacts before this
    process, or with another one, are read from the database: of several tuners on one database each
    gets some of a device's requests. A stored time counts from when this process first read it.
    """

    def __init__(
        self,
        devices: db.Devices,
        now: Now,
        monotonic: Callable[[], float],
        lease_s: float,
        releases: Callable[[], Mapping[str, FleetStop]],
    ) -> None:
        self._devices, self._releases = devices, releases
        self._lease_s = lease_s
        self._now = now
        self._monotonic = monotonic
        self._agents: defaultdict[str, list[str]] = defaultdict(list)
        self._last_heard: dict[str, tuple[float, datetime]] = {}
        self._due: dict[str, float] = {}
        self._held_window_s: dict[str, float] = {}
        self._expected: dict[str, float] = {}
        self._stored_before: dict[str, datetime] = {}
        self._stored: dict[str, datetime] = {}
        self._read: dict[str, tuple[datetime, float]] = {}
        self._away: set[str] = set()
        self._unstored: set[str] = set()
        self._unable: dict[str, str] = {}
        self._released: Mapping[str, FleetStop] = {}
        self._outdated: set[str] | None = None
        """The devices whose refusals another process may have stored since the last read; None: all."""
        self._loads: dict[str, tuple[Context, datetime]] = {}
        self._protocols: dict[str, int] = {}
        self._sent_away_s = -math.inf
        self._lock = threading.Lock()

    def meet(self, device: str, poll: Poll) -> str:
        """Register the agent that polls for a device; return a change of whether it takes orders.

        An agent that polls again after another one followed it never ended: without a refusal, two
        agents would take every trial from each other until it fails.

        Raises:
            Conflict: a second agent serves the device, and this one is the first of the two.
        """
        met, agent = self._agents[device], poll.agent
        if agent in met[:-1]:
            raise Conflict(
                f"{device} is used by two agents: {met[-1]} replaced {agent}",
                hint="stop one agent and restart the other, or set another `name` in one agent.toml",
            )
        if agent not in met:
            met.append(agent)
            del met[:-MOST_MET]
        self.note_contact(device)
        self._read_again()
        before = self._unable.get(device, "")
        if poll.unable != before:
            self._devices.refuse(device, poll.unable)
            self._unable[device] = poll.unable
        self._loads[device] = poll.context, self._now()
        self._protocols[device] = poll.protocol
        if poll.unable == before:
            return ""
        if poll.unable == ONLY_OBSERVED and before:
            return "the device is measured again"
        return poll.unable or "the device accepts assignments again"

    def load(self, device: str) -> tuple[Context, datetime] | None:
        """Return the load that a device's agent last reported, and the time; None if it reported none."""
        return self._loads.get(device)

    def released(self, device: str) -> FleetStop | None:
        """Return the order to release a device; None if there is none."""
        self._read_again()
        return self._released.get(device)

    def refusal(self, device: str) -> str:
        """Return why a device takes no order, by an operator or its agent; empty if it does."""
        if (order := self.released(device)) is not None:
            return str(order)
        return self._unable.get(device, "")

    def blocked(self, device: Device, owned: bool) -> str:
        """Return why a device takes no order; empty if it does, or if it is measured and in no study."""
        why = self.refusal(device.id)
        return "" if why == ONLY_OBSERVED and not owned else why

    def _read_again(self) -> None:
        """Read what other processes have stored about devices since the last call."""
        with self._lock:
            outdated, self._outdated = self._outdated, set()
        if outdated is None:
            self._unable = dict(self._devices.refusals())
        elif outdated:
            stored = self._devices.refusals(outdated)
            self._unable.update({name: stored.get(name, "") for name in outdated})
        if outdated is None or outdated:
            self._released = self._releases()

    def stored_elsewhere(self, devices: Collection[str]) -> None:
        """Mark stored data of devices as outdated by other processes; of all if none is named."""
        with self._lock:
            if not devices:
                self._outdated = None
            elif self._outdated is not None:
                self._outdated.update(devices)

    def stored_here(self, device: str) -> None:
        """Mark stored data of a device as current: this process has just written it."""
        with self._lock:
            if self._outdated is not None:
                self._outdated.discard(device)

    def unable(self, devices: Sequence[str]) -> str:
        """Return why one of these devices takes no order; empty if all do."""
        return next((f"{d}: {why}" for d in devices if (why := self.refusal(d))), "")

    def note_contact(self, device: str, wait_s: float = 0.0) -> None:
        """Note that a device's agent has just reported, and waits up to `wait_s` for an answer."""
        with self._lock:
            self._last_heard[device] = self._monotonic(), self._now()
            self._due[device] = self._monotonic() + wait_s
            self._unstored.add(device)

    def note_hold(self, device: str, window_s: float) -> None:
        """Note how long a device measures without contact while it holds; 0 if it does not hold."""
        self._held_window_s[device] = window_s

    def sent_away(self) -> None:
        """Note that some agent was instructed to return later: any may be silent for that long."""
        self._sent_away_s = self._monotonic()

    @property
    def contacted(self) -> int:
        """Number of devices that contacted this process."""
        return len(self._due)

    def protocols(self) -> dict[int, int]:
        """Return the number of devices per protocol version, among those in contact with this process."""
        with self._lock:
            now = self._monotonic()
            here = [d for d, due in self._due.items() if now - due <= self._lease_s]
        return dict(Counter(self._protocols[d] for d in here if d in self._protocols))

    def last_seen(self, device: Device) -> datetime:
        """Return the wall time of a device's last contact."""
        last = self._last_heard.get(device.id)
        if last is None or self._is_elsewhere(device.id, device.seen_at):
            return device.seen_at
        return last[1]

    def online(self, device: Device, owner: Study | StudyView | None) -> bool:
        """Return whether a device made contact within a lease; `owner` is the study that has it.

        While a held window is measured, an agent makes no contact.
        """
        window_s = owner.terms.window_s if owner is not None else 0.0
        silence_s = self._lease_s + max(window_s, self._held_window_s.get(device.id, 0.0))
        due = self._due.get(device.id)
        if due is not None and self._monotonic() - due <= silence_s:
            return True
        if due is not None and not self._is_elsewhere(device.id, device.seen_at):
            return False
        return self._is_recent(device.id, device.seen_at, silence_s)

    def _is_elsewhere(self, device: str, stored: datetime) -> bool:
        """Return whether another process had the latest contact with a device, by the stored time."""
        last, before = self._last_heard.get(device), self._stored_before.get(device)
        previous = before if last is None else last[1]
        return stored != self._stored.get(device) and (previous is None or stored > previous)

    def _is_recent(self, device: str, stored: datetime, silence_s: float) -> bool:
        """Return whether a device's stored contact, as it is updated now and then, shows it online."""
        longest_s, now_s = silence_s + KEEP_S + LONGEST_POLL_S, self._monotonic()
        if self._read.get(device, (None, 0.0))[0] != stored:
            # A stored time that is old by the wall clock, too, shows no new contact.
            old_s = max(0.0, (self._now() - stored).total_seconds())
            self._read[device] = stored, now_s - old_s
        return now_s - self._read[device][1] <= longest_s

    def expect(self, devices: Iterable[str], away: Iterable[str]) -> None:
        """Expect devices known before this process started, or led; `away` were offline then."""
        until = self._monotonic() + LONGEST_POLL_S
        self._expected = dict.fromkeys(devices, until)
        with self._lock:
            self._due = {device: max(due, until) for device, due in self._due.items()}
        self._stored_before = dict(self._devices.heard_at())
        self._away = set(away)

    def turned(
        self, windows_s: Callable[[Collection[str]], Mapping[str, float]]
    ) -> list[tuple[str, bool]]:
        """Return the devices that went offline, and those that came back, since the last call.

        Also devices that only contact other processes. `windows_s` returns how long devices measure
        without contact, for those in a study.
        """
        changes: list[tuple[str, bool]] = []
        silent: list[str] = []
        lately = self._monotonic() - self._sent_away_s <= 2.0 * MOST_AGAIN_S
        lease_s = self._lease_s + (2.0 * MOST_AGAIN_S if lately else 0.0)
        stored = self._devices.heard_at()
        with self._lock:
            due = {**self._expected, **self._due}

        def is_online(device: str, silence_s: float) -> bool:
            if device in due and self._monotonic() - due[device] <= silence_s:
                return True
            at = stored.get(device)
            elsewhere = at is not None and self._is_elsewhere(device, at)
            return elsewhere and at is not None and self._is_recent(device, at, silence_s)

        for device in due.keys() | stored.keys():
            away = device in self._away
            if is_online(device, lease_s):
                at = stored.get(device)
                contacted = device in self._due or (
                    at is not None and self._is_elsewhere(device, at)
                )
                if away and contacted:
                    self._away.discard(device)
                    changes.append((device, True))
            elif not away:
                silent.append(device)
        window_s = windows_s(silent) if silent else {}
        for device in silent:
            longest_s = max(window_s.get(device, 0.0), self._held_window_s.get(device, 0.0))
            if not is_online(device, lease_s + longest_s):
                self._away.add(device)
                changes.append((device, False))
        return changes

    def keep(self) -> None:
        """Store the contacts since the last call, in one transaction."""
        with self._lock:
            fresh = {name: self._last_heard[name][1] for name in self._unstored}
            self._unstored.clear()
            self._stored.update(fresh)
        self._devices.seen(fresh)

    def forget(self, device: str) -> None:
        """Forget a device."""
        with self._lock:
            self._last_heard.pop(device, None)
            self._due.pop(device, None)
            self._held_window_s.pop(device, None)
            self._stored.pop(device, None)
            self._read.pop(device, None)
            self._expected.pop(device, None)
            self._loads.pop(device, None)
            self._protocols.pop(device, None)
            self._away.discard(device)
            self._unstored.discard(device)
            self._agents.pop(device, None)
            self._unable.pop(device, None)
