"""The agent's client of the tuner: HTTP out, typed messages and our errors back."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar
from urllib.parse import quote

import httpx2
from pydantic import BaseModel, TypeAdapter, ValidationError

from agents.tuner_link.credentials import Credentials
from agents.tuner_link.spool import Report, Spool
from tuner import http_clients
from tuner.bounds import redacted
from tuner.core import (
    ConfigError,
    Conflict,
    Device,
    Forbidden,
    InvalidInput,
    LinkError,
    NotFound,
    Outcome,
    ProtocolMismatch,
    TrialState,
    TuningError,
    Unauthorised,
    error_of,
    first_fault,
)
from tuner.tls import SYSTEM, ClientTls
from tuner.wire import (
    MOST_ORDER_BYTES,
    ORDER,
    Assignment,
    BudgetOrder,
    BudgetReport,
    Enrolled,
    Enrolment,
    HoldOrder,
    HoldReport,
    Idle,
    Message,
    Poll,
    Problem,
    Receipt,
    Registered,
    Registration,
    Release,
    Renewal,
    Reverted,
    StepReport,
    TrialReport,
    readable,
)

log = logging.getLogger(__name__)

Answer = TypeVar("Answer", bound=BaseModel)

PATIENCE_S = 10.0
"""The longest delay of an answer beyond the tuner's permitted wait, in seconds."""

MOST_AGAIN_S = 60.0

OURS = (InvalidInput, NotFound, Conflict, Unauthorised, ProtocolMismatch)
"""The kinds of refusals that a tuner sends. Any other error answer comes from a proxy or a tuner in
trouble, and counts as not reached."""

WHOLE = {"protocol", "code", "message", "hint"}
"""The fields of every refusal of a tuner."""


class Backoff:
    """The wait after each consecutive failure: it doubles, and is reduced at random by up to half."""

    def __init__(self, rng: random.Random, first_s: float = 0.5, most_s: float = 30.0) -> None:
        self._rng = rng
        self._first_s = first_s
        self._most_s = most_s
        self._failures = 0

    def failed(self, *, final: bool = False) -> float:
        """Return the next wait in seconds; the longest one if an early retry is useless (`final`)."""
        longest = self._most_s if final else self._first_s * 2.0 ** min(self._failures, 30)
        self._failures += 1
        return min(self._most_s, longest) * self._rng.uniform(0.5, 1.0)

    def worked(self) -> None:
        """Start again from the shortest wait."""
        self._failures = 0


class TunerClient:
    """One tuner. Every call is one attempt; the caller backs off. Safe from many threads.

    An agent enrols first if it has no token yet, or if the tuner does not accept its token. `requests`
    counts requests, `failed` those without the tuner's answer.

    Every method raises LinkError (not reached, or in trouble), ProtocolMismatch, Unauthorised (refused, or
    not enrolled) or the error in the tuner's refusal.
    """

    def __init__(self, http: httpx2.Client, credentials: Credentials, spool: Spool) -> None:
        self._http, self._shown = http, redacted(str(http.base_url))
        self._credentials = credentials
        self.spool = spool
        """The queue of unsent reports."""
        self._lock = threading.Lock()
        self.requests = self.failed = 0

    def register(self, device: Device) -> float:
        """Register a device and return the length of a lease in seconds."""
        message = Registration(device=device)
        path = f"/v1/devices/{quote(device.id, safe='')}"
        return self._call("PUT", path, message, TypeAdapter(Registered)).lease_s

    def next(self, device: str, poll: Poll) -> Assignment | HoldOrder | Idle | Release:
        """Poll for an assignment; returns within `poll.wait_s`."""
        path = f"/v1/devices/{quote(device, safe='')}/next"
        return self._call("POST", path, poll, ORDER, poll.wait_s + PATIENCE_S)

    def budget(self, device: str, report: BudgetReport) -> BudgetOrder:
        """Report a member's caps; return new ones, or the kind "none" after the report's `wait_s`."""
        path = f"/v1/devices/{quote(device, safe='')}/budget"
        return self._call(
            "POST", path, report, TypeAdapter(BudgetOrder), report.wait_s + PATIENCE_S
        )

    def renew(self, renewal: Renewal) -> float:
        """Renew a lease and return its length from now, in seconds. NotFound and Conflict: it is lost."""
        return self._call("POST", "/v1/trials/renew", renewal, TypeAdapter(Registered)).lease_s

    def keep(self, report: Report) -> None:
        """Queue a report until `deliver` has sent it; in memory if the disk refuses it.

        A trial whose report would be refused has failed: without one the tuner orders it for ever.
        """
        if isinstance(report, TrialReport):
            try:
                readable(TrialReport.model_copy)(report)
            except InvalidInput as error:
                why = f"the measurement cannot be reported: {error}"
                log.warning("event=trial_failed device=%s why=%r", report.device, why)
                failed = Outcome(state=TrialState.FAILED, reason=why)
                report = report.model_copy(update={"outcome": failed})
        self.spool.put(report)

    def deliver(self) -> int:
        """Send the queued reports, oldest first, and return the number that arrived."""
        return self.spool.deliver(self._send)

    def _send(self, report: Report) -> Receipt:
        """Send a report to the address of its kind."""
        match report:
            case TrialReport():
                path = "/v1/trials/report"
            case HoldReport():
                path = "/v1/holds/report"
            case Reverted():
                path = "/v1/reverts"
            case StepReport():
                path = "/v1/trials/step"
        return self._call("POST", path, report, TypeAdapter(Receipt))

    def _call(
        self,
        method: str,
        path: str,
        message: Message,
        schema: TypeAdapter[Answer],
        timeout_s: float = PATIENCE_S,
    ) -> Answer:
        """Send a request with the agent's token; enrol and repeat it if the token is missing or refused."""
        own = self._credentials.own
        if own:
            try:
                return self._ask(own, method, path, message, schema, timeout_s)
            except Forbidden:
                raise
            except Unauthorised:
                pass  # another database, or a revoked token: try to enrol again
        self._credentials.enrol(self._enrol, own)
        return self._ask(self._credentials.own, method, path, message, schema, timeout_s)

    def _enrol(self, token: str, message: Enrolment) -> None:
        """Enrol with a token. Raises Unauthorised if refused: the caller's own request is not at fault."""
        try:
            self._ask(token, "POST", "/v1/enrol", message, TypeAdapter(Enrolled), PATIENCE_S)
        except (Conflict, Forbidden, InvalidInput, NotFound) as error:
            raise Unauthorised(
                f"the tuner does not enrol this agent: {error.message}", hint=error.hint
            ) from error
        log.info("event=enrolled agent=%s", message.agent)

    def _ask(
        self,
        token: str,
        method: str,
        path: str,
        message: Message,
        schema: TypeAdapter[Answer],
        timeout_s: float,
    ) -> Answer:
        """Send one request with a token, and return the parsed answer."""
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        content = message.model_dump_json()
        with self._counted():
            try:
                response = self._http.request(
                    method, path, content=content, headers=headers, timeout=timeout_s
                )
            except (httpx2.HTTPError, httpx2.InvalidURL) as error:
                why = f"cannot reach the tuner at {self._shown}"
                raise LinkError(
                    f"{why}: {error or type(error).__name__}",
                    hint="check that it is running, and check the address",
                ) from error
            if response.is_success:
                return self._understood(response, schema)
            retry_after = response.headers.get("retry-after", "")
            raise refusal_of(response.status_code, response.content, retry_after)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """Count a request, and whether it failed to reach the tuner."""
        with self._lock:
            self.requests += 1
        try:
            yield
        except LinkError:
            with self._lock:
                self.failed += 1
            raise

    def _understood(self, response: httpx2.Response, schema: TypeAdapter[Answer]) -> Answer:
        """Return the parsed answer. Raises LinkError if it is not a tuner's."""
        try:
            return schema.validate_json(response.content)
        except ValidationError as error:
            raise LinkError(
                f"the response of {self._shown} to {response.request.url.path} is not the "
                f"tuner's: {first_fault(error)}",
                hint="check that it is a jouletune tuner of this release",
            ) from None


def refusal_of(status: int, body: bytes, retry_after: str) -> TuningError:
    """Return the error of a refusal, from the code in its body: a status alone may come from a proxy."""
    try:
        problem = Problem.model_validate_json(body)
        if not problem.model_fields_set >= WHOLE:  # gateways also send codes and messages
            raise ValueError("not the tuner's")
    except ValueError:
        text = f"HTTP {status}, but not in the tuner's format"
        return LinkError(text, hint="check the address, and any proxy in between")
    kind = error_of(problem.code)
    if kind is None or not issubclass(kind, OURS):
        busy = LinkError(problem.message, hint=problem.hint)
        busy.again_s = _retry_after_s(retry_after)
        return busy
    return kind(problem.message, hint=problem.hint)


def _retry_after_s(text: str) -> float:
    """Return the wait that the tuner requests, in seconds, limited in case a proxy sent it."""
    return min(float(text), MOST_AGAIN_S) if text.isdecimal() else 0.0


def connect(url: str, tls: ClientTls = SYSTEM) -> httpx2.Client:
    """Return a client for the tuner at `url`. It ignores proxy settings: the operator gave the address.

    Raises:
        ConfigError: a certificate file cannot be used, or the URL is not valid.
    """
    try:
        return http_clients.client(MOST_ORDER_BYTES, PATIENCE_S, verify=tls.context(), base_url=url)
    except httpx2.InvalidURL as error:
        raise ConfigError(f"tuner cannot be {redacted(url)!r}: {error}", hint="check it") from None
