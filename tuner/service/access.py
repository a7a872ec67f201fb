"""Tokens and the callers that they identify: created, enrolled, checked and revoked."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

import db
from tuner.core import (
    AccessRole,
    AccessToken,
    AuditEntry,
    Caller,
    Conflict,
    Device,
    Event,
    Forbidden,
    InvalidInput,
    NotFound,
    Notice,
    Now,
    Topic,
    Unauthorised,
    digest_of,
)
from tuner.rows import EachRow
from tuner.service.budgets.operations import end_events
from tuner.verbs.table import TokenVerbs
from tuner.wire import Enrolled, Enrolment, NewToken, TokenDraft, TokenView

# Argon2id with the second choice of RFC 9106 §4, scaled to OWASP's least (19 MiB, two passes, one lane). A
# token has 256 random bits and cannot be guessed; a flood of wrong tokens must use up neither memory (one
# hash at a time) nor CPU: the salt begins with four bytes of the token's SHA-256, so that all but one in
# 2³² wrong tokens are refused without an Argon2 computation.
PREFIX = "$argon2"
_HASHER = PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)
_ONE_AT_A_TIME = threading.Lock()
TAG_BYTES, SALT_BYTES = 4, 16
ENROL_FOR = timedelta(hours=24)
"""The time within which an agent must use a token made with `--enrol`."""
TRUSTED_S = 30.0
"""Seconds for which a person's token is trusted without reading the store, unless a notice arrives."""
AGENT_TRUSTED_S = 300.0
"""The same for an agent's token and for a device's owner.

Agents send a request once a minute, and a notice of a change ends the trust at once.
"""
MOST_DEVICES = 256
"""The most devices of one agent: a host with 8 GPUs of 7 slices each has 56, and a unit on each 112."""
ADMIN = Caller("admin", AccessRole.ADMIN)
ENDED = ("revoked", "expired")
NAME = re.compile(r"[A-Za-z0-9._@+-]{1,100}")


def hashed(token: str) -> str:
    """Return the Argon2id hash by which a token is stored."""
    with _ONE_AT_A_TIME:
        return _HASHER.hash(token, salt=_tag(token) + secrets.token_bytes(SALT_BYTES))


def matches(stored: str, token: str) -> bool:
    """Return whether a stored hash belongs to a token."""
    if not stored.startswith(PREFIX) or not _may_match(stored, token):
        return False
    try:
        with _ONE_AT_A_TIME:
            return _HASHER.verify(stored, token)
    except (VerificationError, InvalidHashError):
        return False


def _tag(token: str) -> bytes:
    """Return the bytes of a token's SHA-256 with which its salt begins."""
    return hashlib.sha256(token.encode()).digest()[:TAG_BYTES]


def _may_match(stored: str, token: str) -> bool:
    """Return whether the salt allows the token; the salt of an older release has no tag and allows all."""
    try:
        coded = stored.split("$")[4]
        salt = base64.b64decode(coded + "=" * (-len(coded) % 4), validate=True)
    except (IndexError, binascii.Error):
        return False
    return len(salt) != TAG_BYTES + SALT_BYTES or salt[:TAG_BYTES] == _tag(token)


@dataclass
class Access(TokenVerbs):
    """The tokens of a store, and the callers that they identify. A refused request changes nothing.

    Records read from the store are cached until the bus reports a change, for `TRUSTED_S` or
    `AGENT_TRUSTED_S` at most.
    """

    store: db.Store
    now: Now
    monotonic: Callable[[], float] = time.monotonic
    _cached: dict[str, tuple[AccessToken, float]] = field(default_factory=dict)
    _owners: dict[str, tuple[str, float]] = field(default_factory=dict)
    _changes: int = 0
    _rows: EachRow = field(init=False)
    _right: dict[str, tuple[str, str]] = field(default_factory=dict)
    """By name, the stored hash of a person's token, and the SHA-256 of the token that matched it."""

    def __post_init__(self) -> None:
        self._rows = EachRow("the list of tokens", lambda text, _: self._note("row failed", text))

    def remember(self) -> Access:
        """Use the cache from now on: subscribe to the notices that empty it, and return this object."""
        self.store.bus.subscribe(self._on_notice)
        return self

    def _on_notice(self, notice: Notice) -> None:
        """Drop the cached records that a notice may concern.

        The event of a token names no study and no device; the notice of a forgotten device names that one.
        """
        if notice.study or notice.topic is Topic.DEVICES:
            return
        self._changes += 1
        if not notice.devices:
            self._cached.clear()
            self._owners.clear()
        for device in notice.devices:
            self._owners.pop(device, None)

    def caller(self, token: str) -> Caller:
        """Return the caller that a token identifies.

        Raises:
            Unauthorised: the token is missing, unknown, revoked or expired.
        """
        if not token:
            raise no_token()
        record = self._record(token)
        if record is None:
            raise no_token("wrong")
        state = self._state(record)
        if state in ENDED:
            raise Unauthorised(
                f"the token {record.name} is {state}",
                hint="create a new one with `jouletune token create`",
            )
        return Caller(record.name, record.role)

    def remembered(self, token: str) -> Caller | None:
        """Return the caller of a cached, valid token; None if it must be read from the store."""
        cached, until = self._cached.get(digest_of(token), (None, 0.0))
        if cached is None or self.monotonic() >= until or self._state(cached) in ENDED:
            return None
        return Caller(cached.name, cached.role)

    def stored(self, name: str) -> str:
        """Return the stored hash of a valid token; if none has this name, a text that matches no token."""
        record = self._valid(name)
        return "\0" if record is None else record.digest

    def person(self, name: str) -> Caller:
        """Return the owner of the token of that name as a caller. Raises Unauthorised."""
        record = self._valid(name)
        if record is None:
            raise Unauthorised(f"the token {name} has expired or was revoked", hint="sign in again")
        return Caller(record.name, record.role)

    def _valid(self, name: str) -> AccessToken | None:
        """Return the valid token of that name, from the cache while it is trusted; None without one."""
        key, changes = f"name:{name}", self._changes
        record, until = self._cached.get(key, (None, 0.0))
        if record is None or self.monotonic() >= until:
            record = self.store.tokens.named(name)
            if record is not None and changes == self._changes:
                self._cached[key] = record, self.monotonic() + TRUSTED_S
        return None if record is None or self._state(record) in ENDED else record

    def _record(self, token: str) -> AccessToken | None:
        """Return the stored record of a token, and cache it; None if the token is unknown."""
        digest, changes = digest_of(token), self._changes
        record = self.store.tokens.of(digest) or self._persons(token)
        if record is not None and changes == self._changes:
            lasts = AGENT_TRUSTED_S if record.role is AccessRole.AGENT else TRUSTED_S
            self._cached[digest] = record, self.monotonic() + lasts
        return record

    def _persons(self, token: str) -> AccessToken | None:
        """Return the record named by a token up to its last dot; None if the token does not match it."""
        name, dot, _ = token.rpartition(".")
        record = self.store.tokens.named(name) if dot and NAME.fullmatch(name) else None
        if record is None:
            return None
        digest = digest_of(token)
        stored, right = self._right.get(name, ("", ""))
        if stored == record.digest:  # a wrong token then costs no Argon2 computation
            return record if hmac.compare_digest(digest, right) else None
        if not matches(record.digest, token):
            return None
        self._right[name] = record.digest, digest
        return record

    def enrol(self, caller: Caller, message: Enrolment) -> Enrolled:
        """Give an agent its own token, by the digest that it sends. A repetition changes nothing.

        Raises:
            InvalidInput: the name is not valid.
            Conflict: an agent of that name exists; only the admin's token may replace its token.
            Unauthorised: the enrolment token was used already.
        """
        _check_name(message.agent)
        token = AccessToken(
            name=message.agent, role=AccessRole.AGENT, digest=message.digest, created_at=self.now()
        )
        if caller.role is AccessRole.ADMIN:
            changed = self.store.tokens.rotate(token)
        else:
            changed = self.store.tokens.add(token, using=caller.name)
        if changed:
            self._note("enrolled", f"{message.agent} with the token {caller.name}")
        return Enrolled(agent=message.agent)

    def claimed(self, caller: Caller, device: Device) -> Device:
        """Return a device as its agent registers it: from now on it belongs to that agent.

        For the admin's token the device is returned unchanged.

        Raises:
            Forbidden: it belongs to another agent.
            Conflict: the agent has too many devices.
        """
        if caller.role is AccessRole.ADMIN:
            return device
        self._owners.pop(device.id, None)
        try:
            self.require_own(caller, device.id)
        except NotFound:
            if self.store.devices.count(caller.name) >= MOST_DEVICES:
                raise Conflict(
                    f"the agent {caller.name} has {MOST_DEVICES} devices",
                    hint="remove those that are gone with `jouletune device forget`",
                ) from None
        return replace(device, agent=caller.name)

    def require_own(self, caller: Caller, device: str) -> None:
        """Refuse a caller that may not report for a device; the admin's token may report for all.

        Raises:
            NotFound: the device is not registered.
            Forbidden: it belongs to another agent.
        """
        if caller.role is AccessRole.ADMIN:
            return
        owner = self._owner(device)
        if owner != caller.name:
            raise Forbidden(
                f"the device {device} belongs to the agent {owner}, not to {caller.name}",
                hint="give one of the two hosts another `name` in its agent.toml; or, where one "
                "replaces the other, enrol it with the agent name that registered the device",
            )

    def _owner(self, device: str) -> str:
        """Return the agent that owns a device, from the cache if it is still trusted. Raises NotFound."""
        changes = self._changes
        cached, until = self._owners.get(device, ("", 0.0))
        if cached and self.monotonic() < until:
            return cached
        owner = self.store.devices.agent(device)
        if changes == self._changes:
            self._owners[device] = owner, self.monotonic() + AGENT_TRUSTED_S
        return owner

    def create(self, draft: TokenDraft) -> NewToken:
        """Create a token. Only this answer contains it: the store keeps a hash.

        Raises:
            InvalidInput: the name is missing or not valid.
            Conflict: the name is taken.
        """
        enrol = draft.role is AccessRole.ENROL
        name = draft.name or (f"enrol-{secrets.token_hex(3)}" if enrol else "")
        if not name:
            hint = "give a name, or --enrol for the token of a new agent"
            raise InvalidInput(f"a token for the role {draft.role} needs a name", hint=hint)
        _check_name(name)
        secret = secrets.token_urlsafe(32)
        if not enrol:
            secret = f"{name}.{secret}"
        lasts = ENROL_FOR if enrol else timedelta(days=draft.days)
        token = AccessToken(
            name=name,
            role=draft.role,
            digest=digest_of(secret) if enrol else hashed(secret),
            created_at=self.now(),
            expires_at=self.now() + lasts if lasts else None,
        )
        self.store.tokens.add(token)
        self._note("token", f"{token.role} token {name} created")
        return NewToken.of(token, state=self._state(token), token=secret)

    def tokens(self) -> Sequence[TokenView]:
        """Return all tokens by name, without the admin's."""
        tokens = self.store.tokens.list()
        self._rows.unread(tokens, lambda *_: None)
        return [TokenView.of(token, state=self._state(token)) for token in tokens]

    def revoke(self, name: str) -> None:
        """Revoke a token from its next request on, and end its events of the grid. Raises NotFound."""
        self.store.tokens.revoke(name, self.now())
        ended = end_events(self.store.budgets, name)
        events = f"; its events of the grid end: {', '.join(ended)}" if ended else ""
        self._note("token", f"token {name} revoked{events}")

    def audit(self, last: int | None = None, who: str | None = None) -> Sequence[AuditEntry]:
        """Return the (last) changes and refusals, oldest first; with `who`, those of that token."""
        return self.store.audit.list(last, who)

    def _state(self, token: AccessToken) -> str:
        """Return the state of a token: valid, used, revoked or expired."""
        if token.revoked_at is not None:
            return "revoked"
        if token.expires_at is not None and token.expires_at <= self.now():
            return "expired"
        return "valid" if token.used_at is None else "used"

    def _note(self, kind: str, text: str) -> None:
        """Add an event to the log."""
        self.store.events.add(Event(at=self.now(), kind=kind, text=text))


def no_token(how: str = "missing") -> Unauthorised:
    """Return the error for a request without a valid token."""
    return Unauthorised(
        f"the bearer token is {how}",
        hint="give --token-file FILE, or set JOULETUNE_TOKEN_FILE (HTTP: Authorization: Bearer TOKEN)",
    )


def _check_name(name: str) -> None:
    """Raise InvalidInput if a token's name is not valid."""
    if not NAME.fullmatch(name):
        raise InvalidInput(
            f"not a valid token name: {name!r}",
            hint="use up to 100 letters, digits, '.', '_', '@', '+' and '-'",
        )
