"""The same operator at the same tuner, for programs that await."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import httpx
from pydantic import PrivateAttr

from db.history import HistoryQuestion
from tuner.client import calls
from tuner.client.blocking import LOOK_S, RESTING
from tuner.client.event_stream import followed_async
from tuner.client.history import History, Narrowing, asked_of
from tuner.core import ConfigError, Event, LinkError, Phase, Terms, Value
from tuner.service.drafts import drafted
from tuner.tls import SYSTEM, ClientTls
from tuner.wire import (
    Change,
    ConstraintChange,
    Decision,
    DeviceView,
    ExplanationView,
    FleetView,
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

T = TypeVar("T")


class AsyncClient:
    """An operator at a tuner, awaited: see `tuner.client.Client`, which raises the same."""

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
            self._http = httpx.AsyncClient(
                base_url=self._url,
                headers=headers,
                timeout=calls.TIMEOUT_S,
                transport=transport,
                trust_env=False,
                verify=tls.context(),
            )
        except httpx.InvalidURL as error:
            raise ConfigError(f"{url!r} is no URL: {error}", hint="check it") from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def tune(
        self,
        *devices: str,
        objective: str = "",
        constraints: Sequence[str] | None = None,
        policy: str = "polythrottle",
        seed: int = 0,
        terms: Terms | None = None,
        choices: Mapping[str, Sequence[Value]] | None = None,
    ) -> AsyncStudy:
        """Create a study; see `Client.tune`."""
        draft = StudyDraft(
            devices=devices,
            objective=objective,
            constraints=None if constraints is None else tuple(constraints),
            policy=policy,
            seed=seed,
            terms=terms or Terms(),
            choices={name: tuple(values) for name, values in (choices or {}).items()},
        )
        return await self.study_of(calls.create(drafted(draft, await self.devices())))

    async def studies(self) -> Sequence[AsyncStudy]:
        """Return all studies, oldest first."""
        return [AsyncStudy.seen_by(self, view) for view in await self.ask(calls.studies())]

    async def study(self, study: str) -> AsyncStudy:
        """Return one study."""
        return await self.study_of(calls.study(study))

    async def devices(self) -> Sequence[DeviceView]:
        """Return all devices."""
        return await self.ask(calls.devices())

    async def fleet(self) -> FleetView:
        """Return how every device stands, and what was saved."""
        return await self.ask(calls.fleet())

    async def events(
        self, study: str | None = None, device: str | None = None, last: int | None = None
    ) -> Sequence[Event]:
        """Return the (last) events."""
        return await self.ask(calls.events(study, device, last))

    async def follow(
        self, study: str | None = None, device: str | None = None, after: int | None = None
    ) -> AsyncIterator[Event]:
        """Yield events as they come, from now on or after one; after a lost connection all missed."""
        asked = {"study": study, "device": device}
        query = {name: value for name, value in asked.items() if value is not None}
        await self.events(last=1)  # a tuner that is not there, or not for us, is said at once
        refuse = partial(calls.refusal, self._url)
        async for event in followed_async(self._http, query, refuse, after):
            yield event

    async def history(
        self,
        question: HistoryQuestion | None = None,
        last: int | None = None,
        **narrow: Unpack[Narrowing],
    ) -> History:
        """Return the trials asked for, across studies; see `Client.history`."""
        rows = await self.ask(calls.history(asked_of(question, narrow), last))
        return History(rows)

    async def ask(self, call: calls.Call[T]) -> T:
        """Send one request and return what its answer says."""
        try:
            answer = await self._sent(call.request(self._http), again=call.repeatable)
        except httpx.TransportError as error:
            raise calls.unsent(self._url, error) from None
        return call.read(self._url, answer)

    async def study_of(self, call: calls.Call[StudyView]) -> AsyncStudy:
        """Send one request whose answer is a study."""
        return AsyncStudy.seen_by(self, await self.ask(call))

    async def _sent(self, request: httpx.Request, *, again: bool) -> httpx.Response:
        """Return the answer; a mere question is asked again where its connection broke."""
        try:
            return await self._http.send(request)
        except (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError):
            if not again:
                raise
            return await self._http.send(request)


class AsyncStudy(StudyView):
    """A study as it stood when it was asked for, and what can be done with it: see `RemoteStudy`."""

    _client: AsyncClient = PrivateAttr()

    @classmethod
    def seen_by(cls, client: AsyncClient, view: StudyView) -> Self:
        """Return a view as a study that a client can act on."""
        made = cls.model_construct(**dict(view))
        made._client = client
        return made

    async def refreshed(self) -> AsyncStudy:
        """Return the study as it stands now."""
        return await self._client.study(self.id)

    async def wait(
        self, phases: Collection[Phase] = RESTING, timeout_s: float = float("inf")
    ) -> AsyncStudy:
        """Return the study once it is in one of some phases; see `RemoteStudy.wait`."""
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
        return await self._changed("pause", Change(why=why))

    async def resume(self, why: str = "") -> AsyncStudy:
        """Go on where the study was paused."""
        return await self._changed("resume", Change(why=why))

    async def stop(self, why: str = "") -> AsyncStudy:
        """End the study for good; its devices are free."""
        return await self._changed("stop", Change(why=why))

    async def approve(self, why: str = "") -> AsyncStudy:
        """Hold what the study proposed when it was asked for."""
        return await self._changed("approve", Decision(why=why, revision=self.revision))

    async def reject(self, why: str = "") -> AsyncStudy:
        """End the study; what it proposed when it was asked for is not wanted."""
        return await self._changed("reject", Decision(why=why, revision=self.revision))

    async def delete(self) -> None:
        """Remove the study, which has to be stopped, with everything it measured."""
        await self._client.ask(calls.delete(self.id, Change()))

    async def constrain(self, *constraints: str, why: str = "") -> AsyncStudy:
        """Replace all constraints; everything measured is judged anew."""
        change = ConstraintChange(constraints=constraints, why=why)
        return await self._client.study_of(calls.set_constraints(self.id, change))

    async def tried(self) -> Sequence[TrialView]:
        """Return every trial with its verdict as of now."""
        return await self._client.ask(calls.trials(self.id))

    async def pareto(self) -> Sequence[SettingView]:
        """Return the settings that no other beats in every metric asked for."""
        return await self._client.ask(calls.pareto(self.id))

    async def report(self) -> StudyReport:
        """Return what the study gained and cost."""
        return await self._client.ask(calls.report(self.id))

    async def explain(self) -> ExplanationView:
        """Return what the policy believes each knob does, and what it does not try."""
        return await self._client.ask(calls.explain(self.id))

    async def revisions(self) -> Sequence[RevisionView]:
        """Return who changed what and when."""
        return await self._client.ask(calls.revisions(self.id))

    async def history(self, last: int | None = None, **narrow: Unpack[Narrowing]) -> History:
        """Return the trials as `Client.history` does, to be had as a frame or a file."""
        own: Narrowing = {**narrow, "study": self.id}
        return await self._client.history(None, last, **own)

    async def events(self, last: int | None = None) -> Sequence[Event]:
        """Return the (last) events of the study."""
        return await self._client.events(self.id, last=last)

    def follow(self, after: int | None = None) -> AsyncIterator[Event]:
        """Yield the study's events as they come, from now on or after one."""
        return self._client.follow(self.id, after=after)

    async def plot(self) -> Figure:
        """Draw the study; see `RemoteStudy.plot`."""
        from tuner.presentation.pictures import study_picture

        return study_picture(await self.report(), await self.tried(), await self.pareto())

    async def _changed(self, verb: str, told: Change) -> AsyncStudy:
        return await self._client.study_of(calls.change(self.id, verb, told))
