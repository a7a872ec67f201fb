"""An HTTP client for programs on this machine. It raises the errors of `tuner.core`."""

from __future__ import annotations

from ipaddress import ip_address
from typing import TypeVar
from urllib.parse import SplitResult, urlsplit

import httpx2
from pydantic import TypeAdapter, ValidationError

from tuner import http_clients
from tuner.core import ActuationError, DeviceLost, InvalidInput, first_fault

ANSWER_S = 10.0
MOST_ANSWER_BYTES = 32 * 1024 * 1024
"""Far above the /metrics of a large server, which has about half a megabyte."""
ReplyT = TypeVar("ReplyT")


def local_url(url: str, hint: str) -> SplitResult:
    """Return the parts of a URL. Raises InvalidInput: it is not plain http to a port on loopback."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        local = host == "localhost" or (host is not None and ip_address(host).is_loopback)
    except ValueError as error:
        raise InvalidInput(f"{url!r} is not an address: {error}", hint=hint) from None
    if host is None:
        raise InvalidInput(f"{url!r} is not an address", hint=hint)
    if not local:
        raise InvalidInput(f"{url!r} is not on this machine", hint=hint)
    if parts.scheme != "http" or not port or parts.query:
        raise InvalidInput(f"{url!r} is not a plain http address with a port", hint=hint)
    return parts


class HttpRefusal(ActuationError):
    """A program answered with an HTTP status other than success; `status` holds it."""

    status = 0


class LocalHttp:
    """A client of the program at a base URL.

    `who` names the program in errors. `hint` is the next step if the program does not answer.
    """

    def __init__(self, url: str, who: str, hint: str, answer_s: float = ANSWER_S) -> None:
        self.url = url
        self._who, self._hint, self._answer_s = f"{who} at {url}", hint, answer_s
        # Requests to loopback must not go through a proxy from the environment.
        # A GET follows redirects within the host, like from /metrics to /metrics/.
        self.client = http_clients.client(
            MOST_ANSWER_BYTES, answer_s, base_url=url, timeout=answer_s, follow_redirects=True
        )
        self.close = self.client.close

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        within_s: float | None = None,
        accept: str = "*/*",
    ) -> httpx2.Response:
        """Send a request and return its successful response.

        `accept` lists the accepted media types. `within_s` bounds the wait in seconds.

        Raises:
            DeviceLost: the program does not respond.
            HttpRefusal: the response has a status other than success.
            ActuationError: no response arrived in time.
        """
        within_s = within_s or self._answer_s
        try:
            response = self.client.request(
                method,
                path,
                json=body,
                timeout=within_s,
                follow_redirects=method == "GET",
                headers={"Accept": accept},
                extensions={http_clients.BODY_S: within_s},
            )
        except httpx2.TimeoutException:
            raise ActuationError(
                f"{self._who} did not answer {method} {path} within {within_s:g} s",
                hint="check its log",
            ) from None
        except httpx2.RequestError as error:
            raise DeviceLost(f"{self._who} does not answer: {error}", hint=self._hint) from None
        if not response.is_success:
            reason = _reason(response)
            refusal = HttpRefusal(
                f"{self._who} refused {method} {path} with HTTP {response.status_code}"
                f"{reason and f': {reason}'}"
            )
            refusal.status = response.status_code
            raise refusal
        return response

    def parsed(
        self, kind: TypeAdapter[ReplyT], response: httpx2.Response, expected: str, hint: str
    ) -> ReplyT:
        """Return a response's body as type `kind`.

        Raises:
            ActuationError: the body is not of this type, which the message calls `expected`.
        """
        try:
            return kind.validate_json(response.content)
        except ValidationError as error:
            raise ActuationError(
                f"the response of {self.url}{response.request.url.path} is not {expected}: "
                f"{first_fault(error)}",
                hint=hint,
            ) from None


def _reason(response: httpx2.Response) -> str:
    """Return the reason for a refusal: redirect target, error message, or the body's beginning."""
    if response.has_redirect_location:
        return f"it redirects to {response.url.join(response.headers['location'])}"
    try:
        error = response.json()["error"]
        why = error if isinstance(error, str) else str(error["message"])
        return why.encode(errors="replace").decode()  # no message has half of a surrogate pair
    except (ValueError, LookupError, TypeError):
        return response.text[:300]
