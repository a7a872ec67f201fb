"""An operator at a tuner, awaited. `tuner.client.blocking` is generated from this: `make client`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import httpx
from pydantic import PrivateAttr

from db.history import HistoryQuestion
from tuner import http_clients
from tuner.client import calls
from tuner.client.event_stream import SILENT_S, STREAM, Place, Reader
from tuner.client.history import History, Narrowing
from tuner.core import ConfigError, Event, LinkError, Phase, Terms, Value
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
"""How often a study is looked at that is waited for."""
RETRY_S = 2.0
"""After a lost connection the stream of events is requested again so late."""
RESTING = (Phase.PROPOSED, Phase.HOLDING, Phase.PAUSED, Phase.STOPPED)
"""Phases that a study leaves only by another action."""


class AsyncClient(AsyncVerbs["AsyncStudy"]):
    """An operator at a tuner, in Python. Close it, or use it in an `async with` block.

    Its verbs are those of `tuner.verbs.table`. Whatever names a study may name the beginning of its id,
    where no other begins so.

    Raises from every verb: LinkError where the tuner does not answer or does not speak our protocol,
    Unauthorised where it does not know the token, and whatever the tuner itself refuses with.
    """

    def __init__(
        self,
        url: str,
        token: str = "",
        transport: httpx.AsyncBaseTransport | None = None,
        tls: ClientTls = SYSTEM,
    ) -> None:
        """Open a tuner, which is not asked yet. Raises ConfigError for what is no URL."""
        self._url = url.rstrip("/")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            self._http = http_clients.async_client(
                calls.MOST_ANSWER_BYTES,
                inner=transport,
                base_url=self._url,
                headers=headers,
                timeout=calls.TIMEOUT_S,
                verify=tls.context(),
            )
        except httpx.InvalidURL as error:
            raise ConfigError(f"{url!r} is not a URL: {error}", hint="check it") from None

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

    async def tune(
        self,
        *devices: str,
        objective: str = "",
        constraints: Sequence[str] | None = None,
        policy: str = "polythrottle",
        seed: int = 0,
        terms: Terms | None = None,
        choices: Mapping[str, Sequence[Value]] | None = None,
        conditions: Mapping[str, str] | None = None,
    ) -> AsyncStudy:
        """Create a study as `jouletune study create` does, with the same choice of what is left open.

        Without an objective it is the first that the device measures of energy, CPU time and latency;
        without constraints (None) the latency may be at most 1.2 times the baseline's; `()` says that
        no limit is wanted. `conditions` says when a knob has an effect: `{"prefetch": "workers > 0"}`.

        Raises:
            NotFound: a device is not registered.
            InvalidInput and its subclasses: the request does not fit the devices.
            DeviceBusy: a device belongs to another active study.
        """
        draft = StudyDraft(
            devices=devices,
            objective=objective,
            constraints=None if constraints is None else tuple(constraints),
            policy=policy,
            seed=seed,
            terms=terms or Terms(),
            choices={name: tuple(values) for name, values in (choices or {}).items()},
            conditions=dict(conditions or {}),
        )
        return await self.create(draft)

    async def follow(
        self, study: str | None = None, device: str | None = None, after: int | None = None
    ) -> AsyncIterator[Event]:
        """Yield events in order, from now on or after one; after a lost connection all missed.

        A study that changed without an event comes as one without an id.
        """
        filters = {"study": study, "device": device}
        query = {name: value for name, value in filters.items() if value is not None}
        await self.events(last=1)  # a tuner that is not there, or not for us, is reported at once
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
            except httpx.TransportError:
                pass
            await asyncio.sleep(RETRY_S)

    async def history(
        self,
        question: HistoryQuestion | None = None,
        last: int | None = None,
        skip: int = 0,
        **narrow: Unpack[Narrowing],
    ) -> History:
        """Return the trials asked for, across studies, by start; or the given number, the latest first.

        Raises:
            InvalidInput: what is to narrow it is no such thing.
        """
        return History(await super().history(narrowed(question, narrow), last, skip))

    async def ready(self) -> bool:
        """Return whether the tuner is up and its database answers."""
        try:
            return (await self._http.get("/v1/ready")).is_success
        except httpx.TransportError:
            return False

    async def ask(self, verb: Verb, given: Mapping[str, object]) -> Any:  # noqa: ANN401  as declared
        """Send one request and return what its answer says."""
        request = calls.request(self._http, verb, given)
        try:
            answer = await self._sent(request, again=verb.method == "GET")
        except httpx.TransportError as error:
            raise calls.unsent(self._url, error) from None
        reply = calls.read(self._url, verb, answer)
        if isinstance(reply, list):
            return [self._seen(one) for one in reply]
        return self._seen(reply)

    async def _sent(self, request: httpx.Request, *, again: bool) -> httpx.Response:
        """Return the answer; a read request is sent again where its connection broke.

        A server closes idle connections, and now and then just as one is used again.
        """
        try:
            return await self._http.send(request)
        except (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError):
            if not again:
                raise
            return await self._http.send(request)

    def _seen(self, reply: object) -> object:
        return AsyncStudy.seen_by(self, reply) if isinstance(reply, StudyView) else reply


class AsyncTokens(AsyncTokenVerbs):
    """The admin's verbs on tokens at a tuner."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def ask(self, verb: Verb, given: Mapping[str, object]) -> Any:  # noqa: ANN401  as declared
        """Send one request and return what its answer says."""
        return await self._client.ask(verb, given)


class AsyncStudy(StudyView):
    """A study as it stood when it was requested, and what can be done with it.

    Each verb that changes it returns it as it stands then; this one stays as it was.
    """

    _client: AsyncClient = PrivateAttr()

    @classmethod
    def seen_by(cls, client: AsyncClient, view: StudyView) -> Self:
        """Return a view as a study that a client can act on."""
        study = cls.model_construct(**dict(view))
        study._client = client
        return study

    async def refreshed(self) -> AsyncStudy:
        """Return the study as it stands now."""
        return await self._client.study(self.id)

    async def wait(
        self, phases: Collection[Phase] = RESTING, timeout_s: float = float("inf")
    ) -> AsyncStudy:
        """Return the study once it is in one of some phases: by default where it goes no further.

        Raises:
            LinkError: it was not within `timeout_s` seconds, by this machine's clock.
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
        """Stop trying until it is resumed; the devices go back to their original settings."""
        return await self._client.pause(self.id, Change(why=why))

    async def resume(self, why: str = "") -> AsyncStudy:
        """Continue where the study was paused."""
        return await self._client.resume(self.id, Change(why=why))

    async def stop(self, why: str = "") -> AsyncStudy:
        """End the study permanently; its devices are free."""
        return await self._client.stop(self.id, Change(why=why))

    async def approve(self, why: str = "") -> AsyncStudy:
        """Hold what the study proposed when it was requested; refused where that is another by now."""
        return await self._client.approve(self.id, Decision(why=why, revision=self.revision))

    async def reject(self, why: str = "") -> AsyncStudy:
        """End the study; what it proposed when it was requested is not wanted."""
        return await self._client.reject(self.id, Decision(why=why, revision=self.revision))

    async def delete(self) -> None:
        """Remove the study, which has to be stopped, with everything it measured."""
        await self._client.delete(self.id, Change())

    async def constrain(self, *constraints: str, why: str = "") -> AsyncStudy:
        """Replace all constraints; everything measured is judged again. Without any there is no limit."""
        change = ConstraintChange(constraints=constraints, why=why)
        return await self._client.set_constraints(self.id, change)

    async def preview(self, *constraints: str) -> ConstraintPreview:
        """Return what other constraints would change; nothing is changed."""
        return await self._client.preview(self.id, ConstraintChange(constraints=constraints))

    async def tried(self) -> Sequence[TrialView]:
        """Return every trial with its verdict as of now."""
        return await self._client.trials(self.id)

    async def pareto(self) -> Sequence[SettingView]:
        """Return the settings that no other beats in every metric asked for."""
        return await self._client.pareto(self.id)

    async def report(self) -> StudyReport:
        """Return what the study gained and cost."""
        return await self._client.report(self.id)

    async def explain(self) -> ExplanationView:
        """Return what the policy believes each knob does, and what it does not try."""
        return await self._client.explain(self.id)

    async def revisions(self) -> Sequence[RevisionView]:
        """Return who changed what and when."""
        return await self._client.revisions(self.id)

    async def history(self, last: int | None = None, **narrow: Unpack[Narrowing]) -> History:
        """Return the trials as the client's `history` does, to be had as a frame or a file."""
        own: Narrowing = {**narrow, "study": self.id}
        return await self._client.history(None, last, **own)

    async def events(self, last: int = 100) -> Sequence[Event]:
        """Return the last events of the study."""
        return await self._client.events(self.id, last=last)

    def follow(self, after: int | None = None) -> AsyncIterator[Event]:
        """Yield the study's events in order, from now on or after one."""
        return self._client.follow(self.id, after=after)

    async def plot(self) -> Figure:
        """Draw the objective (energy) against the limited metric (latency), one mark a window.

        With the limit, the baseline and the best; `savefig("study.svg")` of it writes it.

        Raises:
            ConfigError: matplotlib is not installed.
            InvalidInput: nothing can be drawn yet.
        """
        from tuner.presentation.pictures import study_picture

        return study_picture(await self.report(), await self.tried(), await self.pareto())
