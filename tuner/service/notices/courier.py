"""Delivery of events to one destination: each once, in order, across failures and restarts.

The stored events are the outbox, and the destination's position in them is stored, too. If the tuner dies
between a delivery and storing the position, it sends that event again, with the same id.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta

import db
from tuner.core import (
    Delivery,
    Event,
    NotFound,
    Notice,
    Now,
    Topic,
    TuningError,
    Unreadable,
)
from tuner.rows import in_words
from tuner.service.notices.notifications import Notification, Sender, about

log = logging.getLogger(__name__)

FIRST_S, MOST_S = 5.0, 900.0
"""The wait after the first failure, doubled after each further one, and its maximum, in seconds."""
GIVE_UP, LEAST_TRIES = timedelta(days=7), 20
"""An event of this age is given up after this number of failures in a row, which take over an hour.

Otherwise a dead receiver would keep the log from being pruned; by the age alone, a clock that is ahead
would drop every event.
"""
PAGE = 100
AGAIN_S = 5.0


class Courier:
    """Delivers the events of its subjects to one destination."""

    def __init__(
        self,
        store: db.Store,
        name: str,
        subjects: frozenset[str],
        sender: Sender,
        *,
        now: Now,
        rng: random.Random,
        tuner: str,
        base_url: str = "",
    ) -> None:
        self._store, self._name, self._subjects, self._sender = store, name, subjects, sender
        self._now, self._rng, self._tuner, self._base_url = now, rng, tuner, base_url
        self._new = threading.Event()
        self._ended = threading.Event()

    def begin(self) -> Callable[[], None]:
        """Start to deliver in a thread; return the function that ends it."""
        self.take_up()
        unsubscribe = self._store.bus.subscribe(self._on_notice)
        thread = threading.Thread(target=self._run, name=f"to {self._name}", daemon=True)
        thread.start()

        def end() -> None:
            unsubscribe()
            self._ended.set()
            self._new.set()

        return end

    def _on_notice(self, notice: Notice) -> None:
        """Wake the courier if the notice is about events."""
        if notice.topic is Topic.EVENTS:
            self._new.set()

    def _run(self) -> None:
        """Deliver until the end, while this tuner leads; wait for new events or for the next attempt."""
        while not self._ended.is_set():
            self._new.clear()
            if not self._store.bus.leads():  # another tuner of this database delivers
                self._ended.wait(AGAIN_S)
                continue
            try:
                again_s = self.deliver()
            except Exception as error:  # the next events must be sent
                log.warning(
                    "event=nothing_sent destination=%s: %s",
                    self._name,
                    in_words(error),
                    exc_info=not isinstance(error, TuningError),
                )
                again_s = AGAIN_S
            if again_s is None:
                self._new.wait()
            else:
                self._ended.wait(again_s)

    def take_up(self) -> None:
        """Register a new destination; its first event is the next one."""
        if self._store.deliveries.get(self._name) is None:
            newest = self._store.events.newest()
            self._store.deliveries.put(Delivery(destination=self._name, event=newest))

    def deliver(self) -> float | None:
        """Send the events that are due; return the seconds until the next attempt, None after the last."""
        state = self._store.deliveries.get(self._name)
        if state is None:
            self.take_up()
            return 0.0
        wait_s = 0.0 if state.next_at is None else (state.next_at - self._now()).total_seconds()
        if 0.0 < wait_s <= MOST_S:  # longer only if the clock was set since then
            return wait_s
        page = self._store.events.after(state.event, PAGE)
        for event in page:
            if self._ended.is_set():
                return None
            again_s = self._one(event)
            if again_s is not None:
                return again_s
        self._skip(page)
        return 0.0 if len(page) == PAGE else None

    def _skip(self, page: Sequence[Event]) -> None:
        """Store that the rest of a page is not for this destination."""
        state = self._store.deliveries.get(self._name)
        if page and state is not None and state.event < page[-1].id:
            self._store.deliveries.put(replace(state, event=page[-1].id))

    def _one(self, event: Event) -> float | None:
        """Send an event if its subject is wanted; return the seconds to wait if it was not accepted."""
        meaning = about(event)
        if meaning is None or meaning.subject not in self._subjects:
            return None
        state = self._store.deliveries.get(self._name) or Delivery(self._name, event.id - 1)
        try:
            self._sender.send(
                Notification(
                    event=event,
                    about=meaning,
                    tuner=self._tuner,
                    devices=self._devices(event),
                    base_url=self._base_url,
                )
            )
        except Exception as error:  # noqa: BLE001  a library's error must not end all deliveries
            return self._failed(state, event, in_words(error))
        self._store.deliveries.put(Delivery(self._name, event.id, given_up=state.given_up))
        return None

    def _devices(self, event: Event) -> tuple[str, ...]:
        """Return the event's device, else those of its study; none if it is deleted or unreadable."""
        if event.device or not event.study:
            return (event.device,) if event.device else ()
        try:
            return self._store.studies.get(event.study).devices
        except (NotFound, Unreadable):
            return ()

    def _failed(self, state: Delivery, event: Event, why: str) -> float | None:
        """Store a failed attempt and return the seconds to wait; give up an event older than `GIVE_UP`."""
        if self._now() - event.at >= GIVE_UP and state.attempts >= LEAST_TRIES:
            log.error("event=given_up destination=%s number=%d: %s", self._name, event.id, why)
            given_up = state.given_up + 1
            self._store.deliveries.put(replace(state, event=event.id, given_up=given_up))
            return None
        if not state.attempts:
            log.warning(
                "event=not_delivered destination=%s number=%d: %s", self._name, event.id, why
            )
        wait_s = min(MOST_S, FIRST_S * 2.0 ** min(state.attempts, 20)) * self._rng.uniform(0.5, 1.0)
        self._store.deliveries.put(
            replace(
                state,
                attempts=state.attempts + 1,
                next_at=self._now() + timedelta(seconds=wait_s),
                why=why,
            )
        )
        return wait_s
