"""The bus over a database: PostgreSQL notifies other processes, SQLite is polled every second."""

from __future__ import annotations

import fcntl
import json
import logging
import math
import os
import secrets
import struct
import threading
import time
from collections.abc import Callable
from typing import IO

from sqlalchemy import Connection, bindparam, func, select, text

from db.schema import EventRow
from db.sql.database import Database
from tuner.core import Event, Notice, StoreError, Topic

log = logging.getLogger(__name__)

CHANNEL = "jouletune"
TUNER_LOCK = "hashtext('jouletune tuner')"
"""Each running tuner holds it shared; a restore takes it exclusively. SQLite's is a lock on its file."""
LEADER_LOCK = "hashtext('jouletune leader')"
"""The leading tuner on PostgreSQL holds it for the life of its listening connection."""
LEADER_BYTE = 1 << 62
"""The byte of SQLite's file, far beyond its end and SQLite's own locks, that the leading tuner locks."""
LOOK_S = 1.0
"""Period of polling on SQLite, and of PostgreSQL's listener checking whether to end, in seconds."""
PING_S = 10.0
"""Period in seconds at which PostgreSQL's listener notifies itself, to measure the delay."""
PING = "ping"
MOST_IDLE_S = 45
"""Seconds of silence after which the server closes a listening connection and frees its lock."""
RETRY_S = 2.0
MOST_BYTES = 7_000
"""PostgreSQL accepts notifications below 8,000 bytes; a longer one is sent without its devices."""
AT_ONCE = 1_000
Heard = Callable[[Notice], None]
NOTIFY = select(func.pg_notify(bindparam("channel"), bindparam("message")))


class Bus:
    """Notify the subscribers of this process and of others on the same database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._subscribers: tuple[Heard, ...] = ()
        self._sender = secrets.token_hex(8)
        self._ended = threading.Event()
        self._listener: threading.Thread | None = None
        self._own: set[int] = set()
        self._file: IO[bytes] | None = None
        self._notifies = database.engine.dialect.name == "postgresql"
        self._leads, self._may_lead = not self._notifies, False
        self._lag_s: float | None = None

    def publish(self, notice: Notice) -> None:
        """Notify every subscriber; other processes only if the database answers."""
        self._publish(notice)
        if not self._notifies:
            return
        try:
            with self._database.act() as connection:
                self._notify(connection, notice)
        except StoreError as error:
            log.warning(
                "event=notice_late study=%s: other tuners are notified late: %s",
                notice.study or "this",
                error,
            )

    def announce(self, connection: Connection, notice: Notice) -> None:
        """Notify other processes when the connection's transaction is committed."""
        if self._notifies:
            self._notify(connection, notice)

    def _notify(self, connection: Connection, notice: Notice) -> None:
        """Send a notice by PostgreSQL's NOTIFY, without devices if it is too long."""
        message = json.dumps([self._sender, notice.topic, notice.study, notice.devices])
        if len(message) > MOST_BYTES:
            message = json.dumps([self._sender, notice.topic, notice.study, []])
        connection.execute(NOTIFY, {"channel": CHANNEL, "message": message})

    def stored(self, event: Event) -> None:
        """Notify this process of an event that it has stored; others see its row or its announcement."""
        if self._listener is not None and not self._notifies:
            self._own.add(event.id)
        self._publish(Notice.of(event))

    def subscribe(self, listener: Heard) -> Callable[[], None]:
        """Call `listener` with every notice, from any thread; return the function that ends this."""
        with self._lock:
            self._subscribers = (*self._subscribers, listener)

        def end() -> None:
            with self._lock:
                self._subscribers = tuple(s for s in self._subscribers if s is not listener)

        return end

    def _publish(self, notice: Notice) -> None:
        """Notify every subscriber of this process; log one that fails."""
        for listener in self._subscribers:
            try:
                listener(notice)
            except Exception:  # the data is stored: a failing subscriber is no error of the writer
                log.exception("event=subscriber_failed")

    def listen(self, *, lead: bool = False) -> None:
        """Receive the notices of other processes until `close`; a tuner may also `lead`."""
        if self._listener is None and self._database.shared:
            self._may_lead = lead
            if not self._notifies:
                self._file = self._database.share_file(write=lead)
                self._leads = lead and _takes_file(self._file)
            work = self._listen if self._notifies else self._look
            self._listener = threading.Thread(target=work, name="bus", daemon=True)
            self._listener.start()

    def leads(self) -> bool:
        """Return whether this process does the work of a single leader; True if nobody else can."""
        return self._leads

    def lag_s(self) -> float | None:
        """Return the delay of the last notice to itself in seconds; None if no connection listens."""
        return self._lag_s

    def close(self) -> None:
        """Stop listening."""
        self._ended.set()
        if self._listener is not None:
            self._listener.join(2.0 * LOOK_S)

    def release(self) -> None:
        """Release the lock on SQLite's file; call it after the last connection is closed."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _listen(self) -> None:
        """Wait for PostgreSQL's notifications; reconnect after an error, until `close`."""
        while not self._ended.is_set():
            try:
                self._listen_once()
            except Exception as error:  # noqa: BLE001  psycopg's are not wrapped here
                log.warning(
                    "event=bus_deaf replicas of this database get no notifications: %s", error
                )
                self._ended.wait(RETRY_S)
            finally:
                self._leads, self._lag_s = False, None

    def _listen_once(self) -> None:
        """Listen on one connection; publish every topic first, since notices may have been missed."""
        with self._database.spoken(), self._database.engine.connect() as connection:
            connection = connection.execution_options(isolation_level="AUTOCOMMIT")
            driver = connection.connection.driver_connection
            assert driver is not None
            connection.detach()  # its locks end with it, so it must not return to the pool
            _set_keepalives(connection)
            connection.execute(text(f"SELECT pg_advisory_lock_shared({TUNER_LOCK})"))
            connection.execute(text(f"LISTEN {CHANNEL}"))
            self._all_may_be_new()
            pinged_s = -math.inf
            while not self._ended.is_set():
                self._leads = self._leads or (self._may_lead and _takes_lead(connection))
                if (
                    time.monotonic() - pinged_s >= PING_S
                ):  # the write also fails if the server is gone
                    pinged_s = time.monotonic()
                    self._ping(connection, pinged_s)
                for notification in driver.notifies(timeout=LOOK_S):
                    self._take(notification.payload)

    def _ping(self, connection: Connection, now_s: float) -> None:
        """Notify this process of the present time."""
        message = json.dumps([self._sender, PING, str(now_s), []])
        connection.execute(NOTIFY, {"channel": CHANNEL, "message": message})

    def _take(self, message: str) -> None:
        """Publish a notice of another process; measure the delay of a ping of this one.

        Other programs may use the channel, too: what they send is left out.
        """
        try:
            sender, topic, study, devices = json.loads(message)
            if (sender, topic) == (self._sender, PING):
                self._lag_s = time.monotonic() - float(study)
            notice = Notice(Topic(topic), study, tuple(devices))
        except (ValueError, TypeError, RecursionError):  # newer tuners may send other topics
            return
        if sender != self._sender:
            self._publish(notice)

    def _look(self) -> None:
        """Poll SQLite's events for those of other processes: every change of a study is logged there."""
        last: int | None = None
        while not self._ended.wait(LOOK_S):
            assert self._file is not None
            self._leads = self._leads or (self._may_lead and _takes_file(self._file))
            try:
                last = self._look_once(last)
            except Exception as error:  # noqa: BLE001  it looks again
                log.warning("event=bus_blind changes by other replicas are not seen: %s", error)

    def _look_once(self, last: int | None) -> int:
        """Publish other processes' events with an id above `last`; return the greatest id read."""
        with self._database.read() as connection:
            newest = connection.scalar(select(func.max(EventRow.id))) or 0
            if last is None or newest <= last:
                return newest
            rows = connection.execute(
                select(EventRow.id, EventRow.study, EventRow.device)
                .where(EventRow.id > last)
                .order_by(EventRow.id)
                .limit(AT_ONCE)
            ).all()
        for event, study, device in rows:
            if event not in self._own:
                notice = study, (device,) * bool(device and not study)
                self._publish(Notice(Topic.EVENTS, *notice))
                self._publish(Notice(Topic.ORDERS, *notice))
        last = rows[-1].id
        self._own = {event for event in self._own if event > last}
        return last

    def _all_may_be_new(self) -> None:
        """Publish a notice of every topic, so that subscribers read everything again."""
        for topic in Topic:
            self._publish(Notice(topic))


def _takes_lead(connection: Connection) -> bool:
    """Return whether this process now leads; it does until the connection ends, for any reason."""
    query = text(f"SELECT pg_try_advisory_lock({LEADER_LOCK})")
    return bool(connection.execute(query).scalar())


def _takes_file(file: IO[bytes]) -> bool:
    """Return whether this process now leads on SQLite; it does until the file is closed.

    The lock is the open file's (F_OFD_SETLK): SQLite has the process's locks, a restore takes flock's.
    Where a file system has no such locks, every tuner leads: only one may use the file there.
    """
    lock = struct.pack("hhqqi0q", fcntl.F_WRLCK, os.SEEK_SET, LEADER_BYTE, 1, 0)
    try:
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, lock)
    except (BlockingIOError, PermissionError):
        return False
    except OSError:
        return True
    return True


def _set_keepalives(connection: Connection) -> None:
    """Have the server detect a lost client within a minute: by default it takes two hours."""
    settings = {
        "tcp_keepalives_idle": "10",
        "tcp_keepalives_interval": "5",
        "tcp_keepalives_count": "3",
        "tcp_user_timeout": "15000",
        "idle_session_timeout": f"{MOST_IDLE_S}s",  # since PostgreSQL 14
    }
    for name, value in settings.items():
        connection.execute(
            text("SELECT set_config(name, :value, false) FROM pg_settings WHERE name = :name"),
            {"name": name, "value": value},
        )
