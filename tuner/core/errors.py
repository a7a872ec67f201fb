"""The other errors of the family of `tuner.errors`, which the root process does not need."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tuner.errors import Conflict, InvalidInput, TuningError, Unauthorised


class ConstraintSyntax(InvalidInput, code="constraint_syntax"):
    """A constraint or an objective does not parse. Write it as the hint shows."""


class TooLarge(InvalidInput, code="too_large"):
    """A request has too many bytes. Send fewer; do not repeat the same request."""


class MetricUnavailable(InvalidInput, code="metric_unavailable"):
    """A study needs a metric that is not measured here. Choose another, or add the meter."""


class IllegalTransition(Conflict, code="illegal_transition"):
    """A trial or a study cannot go from its state to the requested one. Leave it as it is."""


class StaleToken(Conflict, code="stale_token"):
    """A newer attempt owns this trial. Stop it, and request the next assignment."""


class StaleRevision(Conflict, code="stale_revision"):
    """Another writer changed the study since it was read. Read it again, then decide."""


class Unreadable(Conflict, code="unreadable"):
    """A stored study cannot be read. Upgrade the tuner or restore a backup; the others continue."""


class Forbidden(Unauthorised, code="forbidden"):
    """The token is valid, but does not allow this. Use one that does; do not retry with the same."""


class RateLimited(TuningError, code="rate_limited"):
    """Too many requests with this token or from this address. Wait `again_s` seconds, then continue."""

    def __init__(self, message: str, *, hint: str = "", again_s: float = 1.0) -> None:
        """Name the caller that sent too many requests in `message`, and the seconds until the next one."""
        super().__init__(message, hint=hint)
        self.again_s = again_s


class Busy(TuningError, code="busy"):
    """The tuner is overloaded. Wait `again_s` seconds, then send the request again."""

    def __init__(self, message: str, *, hint: str = "", again_s: float = 1.0) -> None:
        """Name the overload in `message`; `again_s` are the seconds until the next attempt."""
        super().__init__(message, hint=hint)
        self.again_s = again_s


class MeasurementError(TuningError, code="measurement"):
    """A meter gave no value or an implausible one. The trial is FAILED; never substitute a number."""


class SettingContested(MeasurementError, code="contested"):
    """Another program repeatedly changes the held setting. End the hold; do not compete with it."""


class LinkError(TuningError, ConnectionError, code="link"):
    """The tuner cannot be reached. Back off, keep the hold, spool the data that must not be lost."""

    again_s = 0.0
    """The seconds that the tuner demands until the next request."""


class ProtocolMismatch(LinkError, code="protocol"):
    """The peer speaks another protocol version. Upgrade the older side; do not retry."""


def first_fault(error: Exception) -> str:
    """Return an error that is not ours in one line: of pydantic's the first, as `place: message`."""
    if callable(errors := getattr(error, "errors", None)):
        first: dict[str, Any] = errors()[0]
        place, text = ".".join(map(str, first["loc"])), str(first["msg"])
        return f"{place}: " * bool(place) + text.removeprefix("Value error, ")
    missing = " is missing" * isinstance(error, KeyError)
    return f"{type(error).__name__}: {' '.join(str(error).split())}{missing}"


@contextmanager
def reraised(kind: type[TuningError], caught: type[TuningError], where: str = "") -> Iterator[None]:
    """Raise a caught error as another kind, with `where` before its message; errors of that kind pass."""
    try:
        yield
    except caught as error:
        if isinstance(error, kind) and not where:
            raise
        raise kind(
            f"{where}: {error.message}" if where else error.message, hint=error.hint
        ) from error
