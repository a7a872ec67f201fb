"""An operator at a tuner. Generated from `tuner.client.asynchronous`."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
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
from tuner.verbs.questions import narrowed
from tuner.verbs.row import Verb
from tuner.verbs.table import TokenVerbs, Verbs
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


class Client(Verbs["RemoteStudy"]):
    """An operator at a tuner, in Python. Close it, or use it in a `with` block.

    Its verbs are those of `tuner.verbs.table`. Whatever names a study may name the beginning of its id,
    where no other begins so.

    Raises from every verb: LinkError where the tuner does not answer or does not speak our protocol,
    Unauthorised where it does not know the token, and whatever the tuner itself refuses with.
    """

    def __init__(
        self,
        url: str,
        token: str = "",
        transport: httpx.BaseTransport | None = None,
        tls: ClientTls = SYSTEM,
    ) -> None:
        """Open a tuner, which is not asked yet. Raises ConfigError for what is no URL."""
        self._url = url.rstrip("/")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            self._http = http_clients.client(
                calls.MOST_ANSWER_BYTES,
                inner=transport,
                base_url=self._url,
                headers=headers,
                timeout=calls.TIMEOUT_S,
                verify=tls.context(),
            )
        except httpx.InvalidURL as error:
            raise ConfigError(f"{url!r} is not a URL: {error}", hint="check it") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    @property
    def access(self) -> RemoteTokens:
        """The verbs on tokens."""
        return RemoteTokens(self)

    def tune(
        self,
        *devices: str,
        objective: str = "",
        constraints: Sequence[str] | None = None,
        policy: str = "polythrottle",
        seed: int = 0,
        terms: Terms | None = None,
        choices: Mapping[str, Sequence[Value]] | None = None,
        conditions: Mapping[str, str] | None = None,
    ) -> RemoteStudy:
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
        return self.create(draft)

    def follow(
        self, study: str | None = None, device: str | None = None, after: int | None = None
    ) -> Iterator[Event]:
        """Yield events in order, from now on or after one; after a lost connection all missed.

        A study that changed without an event comes as one without an id.
        """
        filters = {"study": study, "device": device}
        query = {name: value for name, value in filters.items() if value is not None}
        self.events(last=1)  # a tuner that is not there, or not for us, is reported at once
        place = Place(after)
        while True:
            try:
                with self._http.stream(
                    "GET", STREAM, params=query, headers=place.headers, timeout=SILENT_S
                ) as answer:
                    if not answer.is_success:
                        answer.read()
                        raise calls.refusal(self._url, answer)
                    reader = Reader()
                    for line in answer.iter_lines():
                        if (event := reader.read(line)) is not None:
                            place.passed(event)
                            yield event
            except httpx.TransportError:
                pass
            time.sleep(RETRY_S)

    def history(
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
        return History(super().history(narrowed(question, narrow), last, skip))

    def ready(self) -> bool:
        """Return whether the tuner is up and its database answers."""
        try:
            return (self._http.get("/v1/ready")).is_success
        except httpx.TransportError:
            return False

    def ask(self, verb: Verb, given: Mapping[str, object]) -> Any:  # noqa: ANN401  as declared
        """Send one request and return what its answer says."""
        request = calls.request(self._http, verb, given)
        try:
            answer = self._sent(request, again=verb.method == "GET")
        except httpx.TransportError as error:
            raise calls.unsent(self._url, error) from None
        reply = calls.read(self._url, verb, answer)
        if isinstance(reply, list):
            return [self._seen(one) for one in reply]
        return self._seen(reply)

    def _sent(self, request: httpx.Request, *, again: bool) -> httpx.Response:
        """Return the answer; a read request is sent again where its connection broke.

        A server closes idle connections, and now and then just as one is used again.
        """
        try:
            return self._http.send(request)
        except (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError):
            if not again:
                raise
            return self._http.send(request)

    def _seen(self, reply: object) -> object:
        return RemoteStudy.seen_by(self, reply) if isinstance(reply, StudyView) else reply


class RemoteTokens(TokenVerbs):
    """The admin's verbs on tokens at a tuner."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def ask(self, verb: Verb, given: Mapping[str, object]) -> Any:  # noqa: ANN401  as declared
        """Send one request and return what its answer says."""
        return self._client.ask(verb, given)


class RemoteStudy(StudyView):
    """A study as it stood when it was requested, and what can be done with it.

    Each verb that changes it returns it as it stands then; this one stays as it was.
    """

    _client: Client = PrivateAttr()

    @classmethod
    def seen_by(cls, client: Client, view: StudyView) -> Self:
        """Return a view as a study that a client can act on."""
        study = cls.model_construct(**dict(view))
        study._client = client
        return study

    def refreshed(self) -> RemoteStudy:
        """Return the study as it stands now."""
        return self._client.study(self.id)

    def wait(
        self, phases: Collection[Phase] = RESTING, timeout_s: float = float("inf")
    ) -> RemoteStudy:
        """Return the study once it is in one of some phases: by default where it goes no further.

        Raises:
            LinkError: it was not within `timeout_s` seconds, by this machine's clock.
        """
        end = time.monotonic() + timeout_s
        while (now := self.refreshed()).phase not in phases:
            if time.monotonic() > end:
                raise LinkError(
                    f"study {self.id} is still {now.phase} after {timeout_s:g} s",
                    hint="wait longer",
                )
            time.sleep(LOOK_S)
        return now

    def pause(self, why: str = "") -> RemoteStudy:
        """Stop trying until it is resumed; the devices go back to their original settings."""
        return self._client.pause(self.id, Change(why=why))

    def resume(self, why: str = "") -> RemoteStudy:
        """Continue where the study was paused."""
        return self._client.resume(self.id, Change(why=why))

    def stop(self, why: str = "") -> RemoteStudy:
        """End the study permanently; its devices are free."""
        return self._client.stop(self.id, Change(why=why))

    def approve(self, why: str = "") -> RemoteStudy:
        """Hold what the study proposed when it was requested; refused where that is another by now."""
        return self._client.approve(self.id, Decision(why=why, revision=self.revision))

    def reject(self, why: str = "") -> RemoteStudy:
        """End the study; what it proposed when it was requested is not wanted."""
        return self._client.reject(self.id, Decision(why=why, revision=self.revision))

    def delete(self) -> None:
        """Remove the study, which has to be stopped, with everything it measured."""
        self._client.delete(self.id, Change())

    def constrain(self, *constraints: str, why: str = "") -> RemoteStudy:
        """Replace all constraints; everything measured is judged again. Without any there is no limit."""
        change = ConstraintChange(constraints=constraints, why=why)
        return self._client.set_constraints(self.id, change)

    def preview(self, *constraints: str) -> ConstraintPreview:
        """Return what other constraints would change; nothing is changed."""
        return self._client.preview(self.id, ConstraintChange(constraints=constraints))

    def tried(self) -> Sequence[TrialView]:
        """Return every trial with its verdict as of now."""
        return self._client.trials(self.id)

    def pareto(self) -> Sequence[SettingView]:
        """Return the settings that no other beats in every metric asked for."""
        return self._client.pareto(self.id)

    def report(self) -> StudyReport:
        """Return what the study gained and cost."""
        return self._client.report(self.id)

    def explain(self) -> ExplanationView:
        """Return what the policy believes each knob does, and what it does not try."""
        return self._client.explain(self.id)

    def revisions(self) -> Sequence[RevisionView]:
        """Return who changed what and when."""
        return self._client.revisions(self.id)

    def history(self, last: int | None = None, **narrow: Unpack[Narrowing]) -> History:
        """Return the trials as the client's `history` does, to be had as a frame or a file."""
        own: Narrowing = {**narrow, "study": self.id}
        return self._client.history(None, last, **own)

    def events(self, last: int = 100) -> Sequence[Event]:
        """Return the last events of the study."""
        return self._client.events(self.id, last=last)

    def follow(self, after: int | None = None) -> Iterator[Event]:
        """Yield the study's events in order, from now on or after one."""
        return self._client.follow(self.id, after=after)

    def plot(self) -> Figure:
        """Draw the objective (energy) against the limited metric (latency), one mark a window.

        With the limit, the baseline and the best; `savefig("study.svg")` of it writes it.

        Raises:
            ConfigError: matplotlib is not installed.
            InvalidInput: nothing can be drawn yet.
        """
        from tuner.presentation.pictures import study_picture

        return study_picture(self.report(), self.tried(), self.pareto())
