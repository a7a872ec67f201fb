"""The asyncio client for operators of a tuner. `make client` generates `tuner.client.blocking` from it."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import httpx2
from pydantic import PrivateAttr

from db.history import HistoryQuestion
from tuner import http_clients
from tuner.bounds import redacted
from tuner.client import calls
from tuner.client.calls import SILENT_S, STREAM, Place, Reader
from tuner.client.history import History, Narrowing
from tuner.client.request import StudyRequest
from tuner.core import ConfigError, Event, LinkError, Phase
from tuner.tls import SYSTEM, ClientTls
from tuner.verbs.awaited import AsyncTokenVerbs, AsyncVerbs
from tuner.verbs.questions import narrowed
from tuner.verbs.row import Verb
from tuner.wire import (
    Change,
    ConstraintChange,
    ConstraintPreview,
    Decision,
    ExplanationView,
    RevisionView,
    SettingView,
    StudyDraft,
    StudyReport,
    StudyView,
    TrialView,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from typing_extensions import Self, Unpack

LOOK_S = 1.0
"""Seconds between two looks at a study while `AsyncStudy.wait` waits for it."""
RETRY_S = 2.0
"""Seconds between a lost connection and the next request for the stream of events."""
RESTING = (Phase.PROPOSED, Phase.HOLDING, Phase.PAUSED, Phase.STOPPED)
"""Phases that a study leaves only after a further action."""


class AsyncClient(AsyncVerbs["AsyncStudy"]):
    """An operator's connection to a tuner, in Python. Close it, or use it in an `async with` block.

    Its verbs are those of `tuner.verbs.table`. A verb on a study accepts the beginning of the study's id
    if no other id begins with it; `delete` needs the whole id.

    Every verb raises LinkError if the tuner does not answer or does not speak our protocol, Unauthorised
    if the token is not valid, and the error that the tuner's own refusal names.
    """

    def __init__(
        self,
        url: str,
        token: str = "",
        transport: httpx2.AsyncBaseTransport | None = None,
        tls: ClientTls = SYSTEM,
    ) -> None:
        """Open a client without a request to the tuner. Raises ConfigError: URL or token is not valid."""
        self._url = redacted(url.rstrip("/"))
        if not re.fullmatch("[!-~]*", token):
            raise ConfigError("the token is not one word of ASCII", hint="copy it again")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            self._http = http_clients.async_client(
                calls.MOST_ANSWER_BYTES,
                inner=transport,
                base_url=url.rstrip("/"),
                headers=headers,
                timeout=calls.TIMEOUT_S,
                verify=tls.context(),
            )
        except httpx2.InvalidURL as error:
            raise ConfigError(f"{self._url!r} is not a URL: {error}", hint="check it") from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    @property
    def access(self) -> AsyncTokens:
        """The verbs on tokens."""
        return AsyncTokens(self)

    async def tune(self, *devices: str, **request: Unpack[StudyRequest]) -> AsyncStudy:
        """Create a study as `jouletune study create` does, with the same defaults.

        `request` are fields of `StudyRequest`. Without an objective it takes the first that the device
        measures of energy, CPU time and latency. Without constraints (None) the latency may be at most 1.2
        times the baseline's; `()` sets no limit. `conditions` states when a knob has an effect:
        `{"prefetch": "workers > 0"}`.

        Raises:
            NotFound: a device is not registered.
            InvalidInput and its subclasses: the request does not fit the devices.
            DeviceBusy: a device belongs to another active study.
        """
        given = {name: value for name, value in request.items() if value is not None}
        return await self.create(StudyDraft.model_validate({**given, "devices": devices}))

    async def follow(
        self, study: str | None = None, device: str | None = None, after: int | None = None
    ) -> AsyncIterator[Event]:
        """Yield events in order, from now on or after a given event.

        After a lost connection the stream continues after the last event read. A study that changed
        without an event is reported by an event without an id.
        """
        filters = {"study": study, "device": device}
        query = {name: value for name, value in filters.items() if value is not None}
        await self.events(
            last=1
        )  # an absent tuner or a refused token raises now, not at the first event
        place = Place(after)
        while True:
            try:
                async with self._http.stream(
                    "GET", STREAM, params=query, headers=place.headers, timeout=SILENT_S
                ) as answer:
                    if not answer.is_success:
                        await answer.aread()
                        raise calls.refusal(self._url, answer)
                    reader = Reader()
                    async for line in answer.aiter_lines():
                        if (event := reader.read(line)) is not None:
                            place.passed(event)
                            yield event
            except httpx2.TransportError:
                pass
            await asyncio.sleep(RETRY_S)

    async def history(
        self,
        question: HistoryQuestion | None = None,
        last: int | None = None,
        skip: int = 0,
        **narrow: Unpack[Narrowing],
    ) -> History:
        """Return the trials that match the filters, across studies, by start.

        With `last` it returns only that number of the latest, newest first, after `skip` of them.

        Raises:
            InvalidInput: a filter is not valid.
        """
        return History(await super().history(narrowed(question, narrow), last, skip))

    async def ready(self) -> bool:
        """Return whether the tuner is up and its database takes writes."""
        try:
            return (await self._http.get("/v1/ready")).is_success
        except httpx2.TransportError:
            return False

    async def ask(self, verb: Verb, given: Mapping[str, object]) -> Any:  # noqa: ANN401  as declared
        """Send the request of a verb and return the value in its answer."""
        request = calls.request(self._http, verb, given)
        try:
            answer = await self._sent(request, again=verb.method == "GET")
        except httpx2.TransportError as error:
            raise calls.unsent(self._url, error) from None
        reply = calls.read(self._url, verb, answer)
        if isinstance(reply, list):
            return [self._seen(one) for one in reply]
        return self._seen(reply)

    async def _sent(self, request: httpx2.Request, *, again: bool) -> httpx2.Response:
        """Return the answer; a read is sent once more if its connection broke.

        A server closes idle connections, and sometimes just when one is used again.
        """
        try:
            return await self._http.send(request)
        except (httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError):
            if not again:
                raise
            return await self._http.send(request)

    def _seen(self, reply: object) -> object:
        """Return a study's view as a study with verbs, and any other value unchanged."""
        return AsyncStudy.seen_by(self, reply) if isinstance(reply, StudyView) else reply


class AsyncTokens(AsyncTokenVerbs):
    """The admin's verbs on the tokens of a tuner."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def ask(self, verb: Verb, given: Mapping[str, object]) -> Any:  # noqa: ANN401  as declared
        """Send the request of a verb and return the value in its answer."""
        return await self._client.ask(verb, given)


class AsyncStudy(StudyView):  # type: ignore[misc] # pydantic freezes it
    """A study as it was when it was read, with the verbs that apply to it.

    Each verb that changes the study returns the study after the change; this object stays unchanged.
    """

    _client: AsyncClient = PrivateAttr()

    @classmethod
    def seen_by(cls, client: AsyncClient, view: StudyView) -> Self:
        """Return a view as a study on which the client's verbs can be called."""
        study = cls.model_construct(**dict(view))
        study._client = client
        return study

    async def refreshed(self) -> AsyncStudy:
        """Return the study as it is now."""
        return await self._client.study(self.id)

    async def wait(
        self, phases: Collection[Phase] = RESTING, timeout_s: float = float("inf")
    ) -> AsyncStudy:
        """Return the study once it is in one of these phases; by default one that needs a further action.

        Raises:
            LinkError: it was in no such phase within `timeout_s` seconds, by this machine's clock.
        """
        end = time.monotonic() + timeout_s
        while (now := await self.refreshed()).phase not in phases:
            if time.monotonic() > end:
                raise LinkError(
                    f"study {self.id} is still {now.phase} after {timeout_s:g} s",
                    hint="wait longer",
                )
            await asyncio.sleep(LOOK_S)
        return now

    async def pause(self, why: str = "") -> AsyncStudy:
        """Start no more trials until the study is resumed; its devices get their original settings back."""
        return await self._client.pause(self.id, Change(why=why))

    async def resume(self, why: str = "") -> AsyncStudy:
        """Continue the study in the phase in which it was paused."""
        return await self._client.resume(self.id, Change(why=why))

    async def stop(self, why: str = "") -> AsyncStudy:
        """End the study permanently; its devices are free."""
        return await self._client.stop(self.id, Change(why=why))

    async def approve(self, why: str = "") -> AsyncStudy:
        """Hold the proposal that this view shows. Raises Conflict: the study has changed since."""
        return await self._client.approve(self.id, Decision(why=why, revision=self.revision))

    async def reject(self, why: str = "") -> AsyncStudy:
        """End the study and reject its proposal. Raises Conflict: the study has changed since."""
        return await self._client.reject(self.id, Decision(why=why, revision=self.revision))

    async def delete(self) -> None:
        """Delete the study, which must be stopped, and all its measurements."""
        await self._client.delete(self.id, Change())

    async def constrain(self, *constraints: str, why: str = "") -> AsyncStudy:
        """Replace all constraints; all measurements are judged again. No arguments: there is no limit."""
        change = ConstraintChange(constraints=constraints, why=why)
        return await self._client.set_constraints(self.id, change)

    async def preview(self, *constraints: str) -> ConstraintPreview:
        """Return the effect of other constraints, without a change."""
        return await self._client.preview(self.id, ConstraintChange(constraints=constraints))

    async def tried(self) -> Sequence[TrialView]:
        """Return every trial with its current verdict."""
        return await self._client.trials(self.id)

    async def pareto(self) -> Sequence[SettingView]:
        """Return the Pareto front: the settings that no other beats in every metric of the study."""
        return await self._client.pareto(self.id)

    async def report(self) -> StudyReport:
        """Return the saving and the cost of the study."""
        return await self._client.report(self.id)

    async def explain(self) -> ExplanationView:
        """Return the policy's predicted effect of each knob, and the settings that it does not try."""
        return await self._client.explain(self.id)

    async def revisions(self) -> Sequence[RevisionView]:
        """Return the changes of the study, each with its author, time and reason."""
        return await self._client.revisions(self.id)

    async def history(self, last: int | None = None, **narrow: Unpack[Narrowing]) -> History:
        """Return the study's trials as a history, for a data frame or a file."""
        own: Narrowing = {**narrow, "study": self.id}
        return await self._client.history(None, last, **own)

    async def events(self, last: int = 100) -> Sequence[Event]:
        """Return the last events of the study."""
        return await self._client.events(self.id, last=last)

    def follow(self, after: int | None = None) -> AsyncIterator[Event]:
        """Yield the study's events in order, from now on or after a given event."""
        return self._client.follow(self.id, after=after)

    async def plot(self) -> Figure:
        """Draw the objective (energy) against the limited metric (latency), with one mark for each window.

        The figure also shows the limit, the baseline and the best setting; `savefig("study.svg")` writes
        it.

        Raises:
            ConfigError: matplotlib is not installed.
            InvalidInput: there is nothing to draw yet.
        """
        from tuner.presentation.documents import study_picture

        return study_picture(await self.report(), await self.tried(), await self.pareto())
