"""The operator's API over HTTP. A problem the tuner names comes back as the error of the family it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Self, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, TypeAdapter, ValidationError

from db.history import HistoryQuestion, HistoryRow
from tuner.cli.event_stream import followed
from tuner.core import (
    AuditEntry,
    ConfigError,
    Event,
    InvalidInput,
    LinkError,
    TuningError,
    error_of,
)
from tuner.tls import SYSTEM, ClientTls
from tuner.wire import (
    Change,
    ConstraintChange,
    Decision,
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


def read_token(file: Path | None) -> str:
    """Return the bearer token in a file; empty where no file is given.

    Raises:
        ConfigError: the file cannot be read, or is empty.
    """
    if file is None:
        return ""
    try:
        token = file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        raise ConfigError(
            f"cannot read the token file {file}: {reason}", hint="check --token-file"
        ) from None
    if not token:
        raise ConfigError(
            f"the token file {file} is empty", hint="write one with `jouletune token create`"
        )
    return token


class HttpOperatorApi:
    """The operator's verbs at a tuner. See `tuner.cli.operator_api.OperatorApi`.

    Raises from every verb: LinkError where the tuner does not answer or does not speak our protocol,
    Unauthorised where it does not know the token, and whatever the tuner itself refuses with.
    """

    def __init__(
        self,
        url: str,
        token: str,
        transport: httpx.BaseTransport | None = None,
        tls: ClientTls = SYSTEM,
    ) -> None:
        self._url = url
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            self._client = httpx.Client(
                base_url=url,
                headers=headers,
                timeout=TIMEOUT_S,
                transport=transport,
                trust_env=False,
                verify=tls.context(),
            )
        except httpx.InvalidURL as error:
            raise ConfigError(f"{url!r} is no URL: {error}", hint="check --tuner") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    @property
    def access(self) -> RemoteTokens:
        """The verbs on tokens."""
        return RemoteTokens(self)

    def create(self, draft: StudyDraft) -> StudyView:
        """Create a study."""
        return self._ask(_STUDY, "POST", "/v1/studies", draft)

    def studies(self) -> Sequence[StudyView]:
        """Return all studies, oldest first."""
        return self._ask(_STUDIES, "GET", "/v1/studies")

    def study(self, study: str) -> StudyView:
        """Return one study."""
        return self._ask(_STUDY, "GET", _path(study))

    def pause(self, study: str, change: Change) -> StudyView:
        """Stop trying for a while."""
        return self._ask(_STUDY, "POST", _path(study, "pause"), change)

    def resume(self, study: str, change: Change) -> StudyView:
        """Go on where a paused study was."""
        return self._ask(_STUDY, "POST", _path(study, "resume"), change)

    def stop(self, study: str, change: Change) -> StudyView:
        """End a study for good."""
        return self._ask(_STUDY, "POST", _path(study, "stop"), change)

    def approve(self, study: str, decision: Decision) -> StudyView:
        """Hold what a study proposes."""
        return self._ask(_STUDY, "POST", _path(study, "approve"), decision)

    def reject(self, study: str, decision: Decision) -> StudyView:
        """End a study whose proposal is not wanted."""
        return self._ask(_STUDY, "POST", _path(study, "reject"), decision)

    def delete(self, study: str, change: Change) -> None:
        """Remove a stopped study with everything it measured."""
        self._ask(_NOTHING, "DELETE", _path(study), query={"who": change.who})

    def set_constraints(self, study: str, change: ConstraintChange) -> StudyView:
        """Replace all constraints of a study."""
        return self._ask(_STUDY, "PUT", _path(study, "constraints"), change)

    def revisions(self, study: str) -> Sequence[RevisionView]:
        """Return who changed what and when."""
        return self._ask(_REVISIONS, "GET", _path(study, "revisions"))

    def trials(self, study: str) -> Sequence[TrialView]:
        """Return every trial of a study."""
        return self._ask(_TRIALS, "GET", _path(study, "trials"))

    def best(self, study: str) -> SettingView:
        """Return the held or the best feasible setting."""
        return self._ask(_SETTING, "GET", _path(study, "best"))

    def pareto(self, study: str) -> Sequence[SettingView]:
        """Return the settings that no other beats in every metric asked for."""
        return self._ask(_SETTINGS, "GET", _path(study, "pareto"))

    def report(self, study: str) -> StudyReport:
        """Return what a study gained and cost."""
        return self._ask(_REPORT, "GET", _path(study, "report"))

    def explain(self, study: str) -> ExplanationView:
        """Return what a study's policy believes by its trials."""
        return self._ask(_EXPLANATION, "GET", _path(study, "explain"))

    def devices(self) -> Sequence[DeviceView]:
        """Return all devices."""
        return self._ask(_DEVICES, "GET", "/v1/devices")

    def replicas(self) -> Sequence[ReplicaView]:
        """Return the tuners of the database."""
        return self._ask(_REPLICAS, "GET", "/v1/replicas")

    def forget(self, device: str, change: Change) -> None:
        """Forget a device that is offline and in no active study."""
        path = f"/v1/devices/{quote(device, safe='')}"
        self._ask(_NOTHING, "DELETE", path, query={"who": change.who})

    def stop_all(self, change: Change) -> StopView:
        """Put every device back to its original setting, until it is lifted."""
        return self._ask(_STOP, "POST", "/v1/stop", change)

    def lift(self, change: Change) -> StopView:
        """Let the studies go on as they were before everything was stopped."""
        query = {"who": change.who, "why": change.why}
        return self._ask(_STOP, "DELETE", "/v1/stop", query=query)

    def fleet(self) -> FleetView:
        """Return how every device stands, and what was saved."""
        return self._ask(_FLEET, "GET", "/v1/fleet")

    def stop_state(self) -> StopView:
        """Return whether everything is stopped, and which devices are back."""
        return self._ask(_STOP, "GET", "/v1/stop")

    def events(
        self, study: str | None = None, device: str | None = None, last: int | None = None
    ) -> Sequence[Event]:
        """Return the (last) events."""
        asked = {"study": study, "device": device, "last": last}
        query = {name: str(value) for name, value in asked.items() if value is not None}
        return self._ask(_EVENTS, "GET", "/v1/events", query=query)

    def follow(
        self, study: str | None = None, device: str | None = None, after: int | None = None
    ) -> Iterator[Event]:
        """Yield events as they come, from now on or after one; after a lost connection all missed."""
        asked = {"study": study, "device": device}
        query = {name: value for name, value in asked.items() if value is not None}
        self.events(last=1)  # a tuner that is not there, or not for us, is said at once
        return followed(self._client, query, partial(_refusal, self._url), after)

    def history(self, question: HistoryQuestion, last: int | None = None) -> Sequence[HistoryRow]:
        """Return the trials a question asks for, across studies; or so many, the latest first."""
        asked = {f.name: getattr(question, f.name) for f in fields(question)} | {"last": last}
        query = {name: _text(value) for name, value in asked.items() if value is not None}
        return self._ask(_ROWS, "GET", "/v1/history", query=query)

    def ready(self) -> bool:
        """Return whether the tuner is up and its database answers."""
        try:
            return self._client.get("/v1/ready").is_success
        except httpx.TransportError:
            return False

    def _ask(
        self,
        kind: TypeAdapter[T],
        method: str,
        path: str,
        message: BaseModel | None = None,
        query: Mapping[str, str] | None = None,
    ) -> T:
        request = self._client.build_request(
            method,
            path,
            content=message.model_dump_json() if message is not None else None,
            headers={"Content-Type": "application/json"} if message is not None else {},
            params=query,
        )
        try:
            answer = self._sent(request)
        except httpx.UnsupportedProtocol:
            raise ConfigError(
                f"{self._url!r} is no http URL", hint="check --tuner, e.g. http://127.0.0.1:8790"
            ) from None
        except httpx.TransportError as error:
            raise LinkError(
                f"the tuner at {self._url} does not answer: {error or type(error).__name__}",
                hint="check the URL, or start it with `jouletune tuner serve`",
            ) from None
        if not answer.is_success:
            raise _refusal(self._url, answer)
        try:
            return kind.validate_json(answer.content or b"null")
        except ValidationError:
            raise LinkError(
                f"{self._url}{path} answered something else than a tuner does",
                hint="check the URL, or bring both sides to the same release",
            ) from None

    def _sent(self, request: httpx.Request) -> httpx.Response:
        """Return the answer; a mere question is asked again where its connection broke.

        A server closes idle connections, and now and then just as one is used again.
        """
        try:
            return self._client.send(request)
        except (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError):
            if request.method != "GET":
                raise
            return self._client.send(request)


@dataclass(frozen=True)
class RemoteTokens:
    """The admin's verbs on tokens at a tuner. See `tuner.cli.operator_api.TokenDesk`."""

    _desk: HttpOperatorApi

    def create(self, draft: TokenDraft) -> NewToken:
        """Make a token and return it, for the only time."""
        return self._desk._ask(_TOKEN, "POST", "/v1/tokens", draft)

    def tokens(self) -> Sequence[TokenView]:
        """Return all tokens by name."""
        return self._desk._ask(_TOKENS, "GET", "/v1/tokens")

    def audit(self, last: int | None = None, who: str | None = None) -> Sequence[AuditEntry]:
        """Return the (last) changes and refusals, oldest first."""
        asked = {"last": last, "who": who}
        query = {name: str(value) for name, value in asked.items() if value is not None}
        return self._desk._ask(_AUDIT, "GET", "/v1/audit", query=query)

    def revoke(self, name: str) -> None:
        """Let a token count no more."""
        self._desk._ask(_NOTHING, "DELETE", f"/v1/tokens/{quote(name, safe='')}")


def _path(study: str, verb: str = "") -> str:
    path = f"/v1/studies/{quote(study, safe='')}"
    return f"{path}/{verb}" if verb else path


def _refusal(url: str, answer: httpx.Response) -> TuningError:
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


def _text(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)
