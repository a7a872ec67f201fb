"""The blocking client. Generated from `tuner.client.asynchronous`."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
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
"""Seconds between two looks at a study while `RemoteStudy.wait` waits for it."""
RETRY_S = 2.0
"""Seconds between a lost connection and the next request for the stream of events."""
RESTING = (Phase.PROPOSED, Phase.HOLDING, Phase.PAUSED, Phase.STOPPED)
"""Phases that a study leaves only after a further action."""


class Client(Verbs["RemoteStudy"]):
    """An operator's connection to a tuner, in Python. Close it, or use it in a `with` block.

    Its verbs are those of `tuner.verbs.table`. A verb on a study accepts the beginning of the study's id
    if no other id begins with it; `delete` needs the whole id.

    Every verb raises LinkError if the tuner does not answer or does not speak our protocol, Unauthorised
    if the token is not valid, and the error that the tuner's own refusal names.
    """

    def __init__(
        self,
        url: str,
        token: str = "",
        transport: httpx2.BaseTransport | None = None,
        tls: ClientTls = SYSTEM,
    ) -> None:
        """Open a client without a request to the tuner. Raises ConfigError: URL or token is not valid."""
        self._url = redacted(url.rstrip("/"))
        if not re.fullmatch("[!-~]*", token):
            raise ConfigError("the token is not one word of ASCII", hint="copy it again")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            self._http = http_clients.client(
                calls.MOST_ANSWER_BYTES,
                inner=transport,
                base_url=url.rstrip("/"),
                headers=headers,
                timeout=calls.TIMEOUT_S,
                verify=tls.context(),
            )
        except httpx2.InvalidURL as error:
            raise ConfigError(f"{self._url!r} is not a URL: {error}", hint="check it") from None

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

    def tune(self, *devices: str, **request: Unpack[StudyRequest]) -> RemoteStudy:
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
        return self.create(StudyDraft.model_validate({**given, "devices": devices}))

    def follow(
        self, study: str | None = None, device: str | None = None, after: int | None = None
    ) -> Iterator[Event]:
        """Yield events in order, from now on or after a given event.

        After a lost connection the stream continues after the last event read. A study that changed
        without an event is reported by an event without an id.
        """
        filters = {"study": study, "device": device}
        query = {name: value for name, value in filters.items() if value is not None}
        self.events(last=1)  # an absent tuner or a refused token raises now, not at the first event
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
            except httpx2.TransportError:
                pass
            time.sleep(RETRY_S)

    def history(
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
        return History(super().history(narrowed(question, narrow), last, skip))

    def ready(self) -> bool:
        """Return whether the tuner is up and its database takes writes."""
        try:
            return (self._http.get("/v1/ready")).is_success
        except httpx2.TransportError:
            return False

    def ask(self, verb: Verb, given: Mapping[str, object]) -> Any:  # noqa: ANN401  as declared
        """Send the request of a verb and return the value in its answer."""
        request = calls.request(self._http, verb, given)
        try:
            answer = self._sent(request, again=verb.method == "GET")
        except httpx2.TransportError as error:
            raise calls.unsent(self._url, error) from None
        reply = calls.read(self._url, verb, answer)
        if isinstance(reply, list):
            return [self._seen(one) for one in reply]
        return self._seen(reply)

    def _sent(self, request: httpx2.Request, *, again: bool) -> httpx2.Response:
        """Return the answer; a read is sent once more if its connection broke.

        A server closes idle connections, and sometimes just when one is used again.
        """
        try:
            return self._http.send(request)
        except (httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError):
            if not again:
                raise
            return self._http.send(request)

    def _seen(self, reply: object) -> object:
        """Return a study's view as a study with verbs, and any other value unchanged."""
        return RemoteStudy.seen_by(self, reply) if isinstance(reply, StudyView) else reply


class RemoteTokens(TokenVerbs):
    """The admin's verbs on the tokens of a tuner."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def ask(self, verb: Verb, given: Mapping[str, object]) -> Any:  # noqa: ANN401  as declared
        """Send the request of a verb and return the value in its answer."""
        return self._client.ask(verb, given)


class RemoteStudy(StudyView):  # type: ignore[misc] # pydantic freezes it
    """A study as it was when it was read, with the verbs that apply to it.

    Each verb that changes the study returns the study after the change; this object stays unchanged.
    """

    _client: Client = PrivateAttr()

    @classmethod
    def seen_by(cls, client: Client, view: StudyView) -> Self:
        """Return a view as a study on which the client's verbs can be called."""
        study = cls.model_construct(**dict(view))
        study._client = client
        return study

    def refreshed(self) -> RemoteStudy:
        """Return the study as it is now."""
        return self._client.study(self.id)

    def wait(
        self, phases: Collection[Phase] = RESTING, timeout_s: float = float("inf")
    ) -> RemoteStudy:
        """Return the study once it is in one of these phases; by default one that needs a further action.

        Raises:
            LinkError: it was in no such phase within `timeout_s` seconds, by this machine's clock.
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
        """Start no more trials until the study is resumed; its devices get their original settings back."""
        return self._client.pause(self.id, Change(why=why))

    def resume(self, why: str = "") -> RemoteStudy:
        """Continue the study in the phase in which it was paused."""
        return self._client.resume(self.id, Change(why=why))

    def stop(self, why: str = "") -> RemoteStudy:
        """End the study permanently; its devices are free."""
        return self._client.stop(self.id, Change(why=why))

    def approve(self, why: str = "") -> RemoteStudy:
        """Hold the proposal that this view shows. Raises Conflict: the study has changed since."""
        return self._client.approve(self.id, Decision(why=why, revision=self.revision))

    def reject(self, why: str = "") -> RemoteStudy:
        """End the study and reject its proposal. Raises Conflict: the study has changed since."""
        return self._client.reject(self.id, Decision(why=why, revision=self.revision))

    def delete(self) -> None:
        """Delete the study, which must be stopped, and all its measurements."""
        self._client.delete(self.id, Change())

    def constrain(self, *constraints: str, why: str = "") -> RemoteStudy:
        """Replace all constraints; all measurements are judged again. No arguments: there is no limit."""
        change = ConstraintChange(constraints=constraints, why=why)
        return self._client.set_constraints(self.id, change)

    def preview(self, *constraints: str) -> ConstraintPreview:
        """Return the effect of other constraints, without a change."""
        return self._client.preview(self.id, ConstraintChange(constraints=constraints))

    def tried(self) -> Sequence[TrialView]:
        """Return every trial with its current verdict."""
        return self._client.trials(self.id)

    def pareto(self) -> Sequence[SettingView]:
        """Return the Pareto front: the settings that no other beats in every metric of the study."""
        return self._client.pareto(self.id)

    def report(self) -> StudyReport:
        """Return the saving and the cost of the study."""
        return self._client.report(self.id)

    def explain(self) -> ExplanationView:
        """Return the policy's predicted effect of each knob, and the settings that it does not try."""
        return self._client.explain(self.id)

    def revisions(self) -> Sequence[RevisionView]:
        """Return the changes of the study, each with its author, time and reason."""
        return self._client.revisions(self.id)

    def history(self, last: int | None = None, **narrow: Unpack[Narrowing]) -> History:
        """Return the study's trials as a history, for a data frame or a file."""
        own: Narrowing = {**narrow, "study": self.id}
        return self._client.history(None, last, **own)

    def events(self, last: int = 100) -> Sequence[Event]:
        """Return the last events of the study."""
        return self._client.events(self.id, last=last)

    def follow(self, after: int | None = None) -> Iterator[Event]:
        """Yield the study's events in order, from now on or after a given event."""
        return self._client.follow(self.id, after=after)

    def plot(self) -> Figure:
        """Draw the objective (energy) against the limited metric (latency), with one mark for each window.

        The figure also shows the limit, the baseline and the best setting; `savefig("study.svg")` writes
        it.

        Raises:
            ConfigError: matplotlib is not installed.
            InvalidInput: there is nothing to draw yet.
        """
        from tuner.presentation.documents import study_picture

        return study_picture(self.report(), self.tried(), self.pareto())
