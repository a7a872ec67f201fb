"""Who may ask the tuner for what: tokens made, exchanged, recognised and revoked."""

from __future__ import annotations

import hmac
import re
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta

from tuner.core import (
    AccessRole,
    AccessToken,
    AuditEntry,
    Caller,
    Device,
    Event,
    Forbidden,
    InvalidInput,
    NotFound,
    Notice,
    Now,
    Store,
    Topic,
    Unauthorised,
    digest_of,
)
from tuner.service.budgets.declare import end_events
from tuner.service.hashing import hashed, matches
from tuner.verbs.table import TokenVerbs
from tuner.wire import Enrolled, Enrolment, NewToken, TokenDraft, TokenView

ENROL_FOR = timedelta(hours=24)
"""How long a token made with `--enrol` waits for its agent."""
TRUSTED_S = 30.0
"""How long a person's token is believed without a look, where no news of it came."""
AGENT_TRUSTED_S = 300.0
"""How long an agent's token, and a device's owner: agents ask once a minute, and news ends it at once."""
ADMIN = Caller("admin", AccessRole.ADMIN)
ENDED = ("revoked", "expired")
NAME = re.compile(r"[A-Za-z0-9._@+-]{1,100}")


@dataclass
class Access(TokenVerbs):
    """The tokens of a store, and what they allow. A refused wish changes nothing.

    What was looked up is remembered until the bus reports about a change, for a while at most.
    """

    store: Store
    now: Now
    monotonic: Callable[[], float] = time.monotonic
    _cached: dict[str, tuple[AccessToken, float]] = field(default_factory=dict)
    _owners: dict[str, tuple[str, float]] = field(default_factory=dict)
    _changes: int = 0
    _right: dict[str, tuple[str, str]] = field(default_factory=dict)
    """What is stored of a person's token, and the digest of the one that matched it, by name."""

    def remember(self) -> Access:
        """Begin to remember what is looked up, for as long as nothing changes; return this."""
        self.store.bus.subscribe(self._on_notice)
        return self

    def _on_notice(self, notice: Notice) -> None:
        """Forget what may have changed: a token's event names no study, a forgotten device no other."""
        if notice.study or notice.topic is Topic.DEVICES:
            return
        self._changes += 1
        if not notice.devices:
            self._cached.clear()
            self._owners.clear()
        for device in notice.devices:
            self._owners.pop(device, None)

    def caller(self, token: str) -> Caller:
        """Return whose token it is.

        Raises:
            Unauthorised: it is unknown or no longer valid.
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
        """Return whose token it is where that is remembered and it still counts."""
        cached, until = self._cached.get(digest_of(token), (None, 0.0))
        if cached is None or self.monotonic() >= until or self._state(cached) in ENDED:
            return None
        return Caller(cached.name, cached.role)

    def stored(self, name: str) -> str:
        """Return the stored data of a valid token; a text that matches no token where there is none."""
        record = self._named(name)
        return record.digest if record is not None and self._state(record) not in ENDED else "\0"

    def person(self, name: str) -> Caller:
        """Return whom a token of that name makes its owner. Raises Unauthorised."""
        record = self._named(name)
        if record is None or self._state(record) in ENDED:
            raise Unauthorised(f"the token {name} has expired or was revoked", hint="sign in again")
        return Caller(record.name, record.role)

    def _named(self, name: str) -> AccessToken | None:
        """Return the token of that name, from memory where it is remembered."""
        key, changes = f"name:{name}", self._changes
        cached, until = self._cached.get(key, (None, 0.0))
        if cached is not None and self.monotonic() < until:
            return cached
        record = self.store.tokens.named(name)
        if record is not None and changes == self._changes:
            self._cached[key] = record, self.monotonic() + TRUSTED_S
        return record

    def _record(self, token: str) -> AccessToken | None:
        digest, changes = digest_of(token), self._changes
        record = self.store.tokens.of(digest) or self._persons(token)
        if record is not None and changes == self._changes:
            lasts = AGENT_TRUSTED_S if record.role is AccessRole.AGENT else TRUSTED_S
            self._cached[digest] = record, self.monotonic() + lasts
        return record

    def _persons(self, token: str) -> AccessToken | None:
        """Return the token of a person: it begins with the name it is stored by."""
        name, dot, _ = token.rpartition(".")
        record = self.store.tokens.named(name) if dot and NAME.fullmatch(name) else None
        if record is None:
            return None
        digest = digest_of(token)
        stored, right = self._right.get(name, ("", ""))
        if stored == record.digest:  # no guess costs another computation
            return record if hmac.compare_digest(digest, right) else None
        if not matches(record.digest, token):
            return None
        self._right[name] = record.digest, digest
        return record

    def enrol(self, caller: Caller, message: Enrolment) -> Enrolled:
        """Give an agent a token of its own, by the digest it sends. Once more is no other.

        Raises:
            InvalidInput: the name does not fit.
            Conflict: there is an agent of that name; only the admin's token may replace its token.
            Unauthorised: the enrolment token is used up.
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
        """Return a device as its agent registers it: from now on it is that agent's.

        Raises:
            Forbidden: it is another agent's.
        """
        if caller.role is AccessRole.ADMIN:
            return device
        self._owners.pop(device.id, None)
        with suppress(NotFound):
            self.require_own(caller, device.id)
        return replace(device, agent=caller.name)

    def require_own(self, caller: Caller, device: str) -> None:
        """Return quietly where the caller may speak for a device.

        Raises:
            NotFound: it is not registered.
            Forbidden: it is another agent's.
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
        changes = self._changes
        cached, until = self._owners.get(device, ("", 0.0))
        if cached and self.monotonic() < until:
            return cached
        owner = self.store.devices.agent(device)
        if changes == self._changes:
            self._owners[device] = owner, self.monotonic() + AGENT_TRUSTED_S
        return owner

    def create(self, draft: TokenDraft) -> NewToken:
        """Make a token and return it, for the only time.

        Raises:
            InvalidInput: the name does not fit.
            Conflict: it is taken.
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
        return NewToken(**self._view(token).model_dump(), token=secret)

    def tokens(self) -> Sequence[TokenView]:
        """Return all tokens by name; the admin's is not among them."""
        return [self._view(token) for token in self.store.tokens.list()]

    def revoke(self, name: str) -> None:
        """End a token from its next request on, and its events of the grid. Raises NotFound."""
        self.store.tokens.revoke(name, self.now())
        ended = end_events(self.store.budgets, name)
        events = f"; its events of the grid end: {', '.join(ended)}" if ended else ""
        self._note("token", f"token {name} revoked{events}")

    def audit(self, last: int | None = None, who: str | None = None) -> Sequence[AuditEntry]:
        """Return the (last) changes and refusals, oldest first, of one token where asked."""
        return self.store.audit.list(last, who)

    def _state(self, token: AccessToken) -> str:
        if token.revoked_at is not None:
            return "revoked"
        if token.expires_at is not None and token.expires_at <= self.now():
            return "expired"
        return "valid" if token.used_at is None else "used"

    def _view(self, token: AccessToken) -> TokenView:
        return TokenView(
            name=token.name,
            role=token.role,
            state=self._state(token),
            created_at=token.created_at,
            expires_at=token.expires_at,
        )

    def _note(self, kind: str, text: str) -> None:
        self.store.events.add(Event(at=self.now(), kind=kind, text=text))


def no_token(how: str = "missing") -> Unauthorised:
    """Return the refusal of a request without a token that counts."""
    return Unauthorised(
        f"the bearer token is {how}",
        hint="give --token-file FILE, or set JOULETUNE_TOKEN_FILE (HTTP: Authorization: Bearer TOKEN)",
    )


def _check_name(name: str) -> None:
    if not NAME.fullmatch(name):
        raise InvalidInput(
            f"not a valid token name: {name!r}",
            hint="use up to 100 letters, digits, '.', '_', '@', '+' and '-'",
        )
