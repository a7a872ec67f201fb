"""Every route of a tuner that an operator asks: what is sent, and what its answer is read as.

Sends nothing itself: `tuner.client.blocking` and `tuner.client.asynchronous` do, each in its way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Generic, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, TypeAdapter, ValidationError

from db.history import HistoryQuestion, HistoryRow
from tuner.core import (
    AuditEntry,
    ConfigError,
    Event,
    InvalidInput,
    LinkError,
    TuningError,
    error_of,
)
from tuner.wire import (
    Change,
    ConstraintChange,
    DeviceView,
    ExplanationView,
    FleetView,
    NewToken,
    Problem,
    ReplicaView,
    RevisionView,
    SettingView,
    StopView,
    StudyDraft,
    StudyReport,
    StudyView,
    TokenDraft,
    TokenView,
    TrialView,
)

TIMEOUT_S = 30.0

T = TypeVar("T")

_NOTHING = TypeAdapter(None)
_STUDY = TypeAdapter(StudyView)
_REPORT = TypeAdapter(StudyReport)
_SETTING = TypeAdapter(SettingView)
_STUDIES = TypeAdapter(list[StudyView])
_REVISIONS = TypeAdapter(list[RevisionView])
_TRIALS = TypeAdapter(list[TrialView])
_SETTINGS = TypeAdapter(list[SettingView])
_DEVICES = TypeAdapter(list[DeviceView])
_REPLICAS = TypeAdapter(list[ReplicaView])
_EXPLANATION = TypeAdapter(ExplanationView)
_FLEET = TypeAdapter(FleetView)
_STOP = TypeAdapter(StopView)
_EVENTS = TypeAdapter(list[Event])
_ROWS = TypeAdapter(list[HistoryRow])
_TOKEN = TypeAdapter(NewToken)
_TOKENS = TypeAdapter(list[TokenView])
_AUDIT = TypeAdapter(list[AuditEntry])


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request, and what its answer is."""

    kind: TypeAdapter[T]
    method: str
    path: str
    message: BaseModel | None = None
    query: Mapping[str, str] = field(default_factory=dict)

    @property
    def repeatable(self) -> bool:
        """Whether it may be sent again after a connection broke: it changes nothing."""
        return self.method == "GET"

    def request(self, http: httpx.Client | httpx.AsyncClient) -> httpx.Request:
        """Return what is to be sent."""
        return http.build_request(
            self.method,
            self.path,
            content=self.message.model_dump_json() if self.message is not None else None,
            headers={"Content-Type": "application/json"} if self.message is not None else {},
            params=dict(self.query) or None,
        )

    def read(self, url: str, answer: httpx.Response) -> T:
        """Return what a tuner answered, or raise what it refused with.

        Raises:
            LinkError: it is no answer of a tuner's; else the error of the family that it stands for.
        """
        if not answer.is_success:
            raise refusal(url, answer)
        try:
            return self.kind.validate_json(answer.content or b"null")
        except ValidationError:
            raise LinkError(
                f"{url}{self.path} answered something else than a tuner does",
                hint="check the URL, or bring both sides to the same release",
            ) from None


def create(draft: StudyDraft) -> Call[StudyView]:
    """Create a study."""
    return Call(_STUDY, "POST", "/v1/studies", draft)


def studies() -> Call[list[StudyView]]:
    """List all studies, oldest first."""
    return Call(_STUDIES, "GET", "/v1/studies")


def study(name: str) -> Call[StudyView]:
    """Show one study."""
    return Call(_STUDY, "GET", _path(name))


def change(name: str, verb: str, told: Change) -> Call[StudyView]:
    """Pause, resume, stop, approve or reject a study."""
    return Call(_STUDY, "POST", _path(name, verb), told)


def delete(name: str, told: Change) -> Call[None]:
    """Remove a stopped study with everything it measured."""
    return Call(_NOTHING, "DELETE", _path(name), query={"who": told.who})


def set_constraints(name: str, told: ConstraintChange) -> Call[StudyView]:
    """Replace all constraints of a study."""
    return Call(_STUDY, "PUT", _path(name, "constraints"), told)


def revisions(name: str) -> Call[list[RevisionView]]:
    """Tell who changed a study, when and why."""
    return Call(_REVISIONS, "GET", _path(name, "revisions"))


def trials(name: str) -> Call[list[TrialView]]:
    """List the trials of a study."""
    return Call(_TRIALS, "GET", _path(name, "trials"))


def best(name: str) -> Call[SettingView]:
    """Show what is held, or the best feasible setting."""
    return Call(_SETTING, "GET", _path(name, "best"))


def pareto(name: str) -> Call[list[SettingView]]:
    """List the settings that no other beats in every metric asked for."""
    return Call(_SETTINGS, "GET", _path(name, "pareto"))


def report(name: str) -> Call[StudyReport]:
    """Report what a study gained and cost."""
    return Call(_REPORT, "GET", _path(name, "report"))


def explain(name: str) -> Call[ExplanationView]:
    """Tell what a study's policy believes by its trials."""
    return Call(_EXPLANATION, "GET", _path(name, "explain"))


def devices() -> Call[list[DeviceView]]:
    """List all devices."""
    return Call(_DEVICES, "GET", "/v1/devices")


def replicas() -> Call[list[ReplicaView]]:
    """Ask for the tuners of the database."""
    return Call(_REPLICAS, "GET", "/v1/replicas")


def forget(device: str, told: Change) -> Call[None]:
    """Forget a device that is offline and in no active study."""
    path = f"/v1/devices/{quote(device, safe='')}"
    return Call(_NOTHING, "DELETE", path, query={"who": told.who})


def fleet() -> Call[FleetView]:
    """Show how every device stands, and what was saved."""
    return Call(_FLEET, "GET", "/v1/fleet")


def stop_all(told: Change) -> Call[StopView]:
    """Put every device back to its original setting, until it is lifted."""
    return Call(_STOP, "POST", "/v1/stop", told)


def lift(told: Change) -> Call[StopView]:
    """Let the studies go on as they were before everything was stopped."""
    return Call(_STOP, "DELETE", "/v1/stop", query={"who": told.who, "why": told.why})


def stop_state() -> Call[StopView]:
    """Tell whether everything is stopped, and which devices are back."""
    return Call(_STOP, "GET", "/v1/stop")


def events(study: str | None, device: str | None, last: int | None) -> Call[list[Event]]:
    """List the (last) events."""
    asked = {"study": study, "device": device, "last": last}
    return Call(_EVENTS, "GET", "/v1/events", query=_query(asked))


def history(question: HistoryQuestion, last: int | None) -> Call[list[HistoryRow]]:
    """List trials across studies; with `last` so many, the latest first."""
    asked = {f.name: getattr(question, f.name) for f in fields(question)} | {"last": last}
    return Call(_ROWS, "GET", "/v1/history", query=_query(asked))


def create_token(draft: TokenDraft) -> Call[NewToken]:
    """Make a token."""
    return Call(_TOKEN, "POST", "/v1/tokens", draft)


def tokens() -> Call[list[TokenView]]:
    """List all tokens by name."""
    return Call(_TOKENS, "GET", "/v1/tokens")


def revoke(name: str) -> Call[None]:
    """Let a token count no more."""
    return Call(_NOTHING, "DELETE", f"/v1/tokens/{quote(name, safe='')}")


def audit(last: int | None, who: str | None) -> Call[list[AuditEntry]]:
    """List the (last) changes and refusals, oldest first."""
    return Call(_AUDIT, "GET", "/v1/audit", query=_query({"last": last, "who": who}))


def refusal(url: str, answer: httpx.Response) -> TuningError:
    """Return the error that an answer stands for."""
    try:
        problem = Problem.model_validate_json(answer.content)
    except ValidationError:
        return LinkError(
            f"{url} answered {answer.status_code} {answer.reason_phrase}, but not as a tuner does",
            hint="check the URL",
        )
    unnamed = InvalidInput if answer.status_code < 500 else TuningError
    return (error_of(problem.code) or unnamed)(problem.message, hint=problem.hint)


def unsent(url: str, error: httpx.TransportError) -> TuningError:
    """Return the error that stands for a request which got no answer."""
    if isinstance(error, httpx.UnsupportedProtocol):
        return ConfigError(
            f"{url!r} is no http URL", hint="check the tuner's URL, e.g. http://127.0.0.1:8790"
        )
    return LinkError(
        f"the tuner at {url} does not answer: {error or type(error).__name__}",
        hint="check the URL, or start it with `jouletune tuner serve`",
    )


def _path(name: str, verb: str = "") -> str:
    path = f"/v1/studies/{quote(name, safe='')}"
    return f"{path}/{verb}" if verb else path


def _query(asked: Mapping[str, object]) -> dict[str, str]:
    return {name: _text(value) for name, value in asked.items() if value is not None}


def _text(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)
