"""The operator's API over HTTP. A problem the tuner names comes back as the error of the family it is."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import httpx
from pydantic import PrivateAttr

from db.history import HistoryQuestion
from tuner.client import calls
from tuner.client.event_stream import followed
from tuner.client.history import History, Narrowing, asked_of
from tuner.client.tokens import RemoteTokens
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
    ReplicaView,
    RevisionView,
    SettingView,
    StopView,
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
RESTING = (Phase.PROPOSED, Phase.HOLDING, Phase.PAUSED, Phase.STOPPED)
"""Phases that a study leaves only when somebody or something else acts."""

T = TypeVar("T")


class Client:
    """An operator at a tuner, in Python. Close it, or use it in a `with` block.

    Whatever names a study may name the beginning of its id, where no other begins so. Implements
    `tuner.cli.operator_api.OperatorApi`, so that the command line asks through it, too.

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
            self._http = httpx.Client(
                base_url=self._url,
                headers=headers,
                timeout=calls.TIMEOUT_S,
                transport=transport,
                trust_env=False,
                verify=tls.context(),
            )
        except httpx.InvalidURL as error:
            raise ConfigError(f"{url!r} is no URL: {error}", hint="check it") from None

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
    ) -> RemoteStudy:
        """Create a study as `jouletune study create` does, with the same choice of what is left open.

        Without an objective it is the first that the device measures of energy, CPU time and latency;
        without constraints (None) the latency may be at most 1.2 times the baseline's; `()` says that
        no limit is wanted.

        Raises:
            NotFound: a device is not registered.
            InvalidInput and its kin: the wishes do not fit the devices.
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
        )
        return self.create(drafted(draft, self.devices()))

    def create(self, draft: StudyDraft) -> RemoteStudy:
        """Create a study from all that is to be said of it."""
        return self._study(calls.create(draft))

    def studies(self) -> Sequence[RemoteStudy]:
        """Return all studies, oldest first."""
        return [RemoteStudy.seen_by(self, view) for view in self.ask(calls.studies())]

    def study(self, study: str) -> RemoteStudy:
        """Return one study."""
        return self._study(calls.study(study))

    def pause(self, study: str, change: Change) -> RemoteStudy:
        """Stop trying for a while."""
        return self._study(calls.change(study, "pause", change))

    def resume(self, study: str, change: Change) -> RemoteStudy:
        """Go on where a paused study was."""
        return self._study(calls.change(study, "resume", change))

    def stop(self, study: str, change: Change) -> RemoteStudy:
        """End a study for good."""
        return self._study(calls.change(study, "stop", change))

    def approve(self, study: str, decision: Decision) -> RemoteStudy:
        """Hold what a study proposes."""
        return self._study(calls.change(study, "approve", decision))

    def reject(self, study: str, decision: Decision) -> RemoteStudy:
        """End a study whose proposal is not wanted."""
        return self._study(calls.change(study, "reject", decision))

    def delete(self, study: str, change: Change) -> None:
        """Remove a stopped study with everything it measured."""
        self.ask(calls.delete(study, change))

    def set_constraints(self, study: str, change: ConstraintChange) -> RemoteStudy:
        """Replace all constraints of a study."""
        return self._study(calls.set_constraints(study, change))

    def revisions(self, study: str) -> Sequence[RevisionView]:
        """Return who changed what and when."""
        return self.ask(calls.revisions(study))

    def trials(self, study: str) -> Sequence[TrialView]:
        """Return every trial of a study."""
        return self.ask(calls.trials(study))

    def best(self, study: str) -> SettingView:
        """Return the held or the best feasible setting."""
        return self.ask(calls.best(study))

    def pareto(self, study: str) -> Sequence[SettingView]:
        """Return the settings that no other beats in every metric asked for."""
        return self.ask(calls.pareto(study))

    def report(self, study: str) -> StudyReport:
        """Return what a study gained and cost."""
        return self.ask(calls.report(study))

    def explain(self, study: str) -> ExplanationView:
        """Return what a study's policy believes by its trials."""
        return self.ask(calls.explain(study))

    def devices(self) -> Sequence[DeviceView]:
        """Return all devices."""
        return self.ask(calls.devices())

    def replicas(self) -> Sequence[ReplicaView]:
        """Return the tuners of the database."""
        return self.ask(calls.replicas())

    def forget(self, device: str, change: Change) -> None:
        """Forget a device that is offline and in no active study."""
        self.ask(calls.forget(device, change))

    def stop_all(self, change: Change) -> StopView:
        """Put every device back to its original setting, until it is lifted."""
        return self.ask(calls.stop_all(change))

    def lift(self, change: Change) -> StopView:
        """Let the studies go on as they were before everything was stopped."""
        return self.ask(calls.lift(change))

    def fleet(self) -> FleetView:
        """Return how every device stands, and what was saved."""
        return self.ask(calls.fleet())

    def stop_state(self) -> StopView:
        """Return whether everything is stopped, and which devices are back."""
        return self.ask(calls.stop_state())

    def events(
        self, study: str | None = None, device: str | None = None, last: int | None = None
    ) -> Sequence[Event]:
        """Return the (last) events."""
        return self.ask(calls.events(study, device, last))

    def follow(
        self, study: str | None = None, device: str | None = None, after: int | None = None
    ) -> Iterator[Event]:
        """Yield events as they come, from now on or after one; after a lost connection all missed."""
        asked = {"study": study, "device": device}
        query = {name: value for name, value in asked.items() if value is not None}
        self.events(last=1)  # a tuner that is not there, or not for us, is said at once
        return followed(self._http, query, partial(calls.refusal, self._url), after)

    def history(
        self,
        question: HistoryQuestion | None = None,
        last: int | None = None,
        **narrow: Unpack[Narrowing],
    ) -> History:
        """Return the trials asked for, across studies, by start; or so many, the latest first.

        Raises:
            InvalidInput: what is to narrow it is no such thing.
        """
        rows = self.ask(calls.history(asked_of(question, narrow), last))
        return History(rows)

    def ready(self) -> bool:
        """Return whether the tuner is up and its database answers."""
        try:
            return self._http.get("/v1/ready").is_success
        except httpx.TransportError:
            return False

    def ask(self, call: calls.Call[T]) -> T:
        """Send one request and return what its answer says."""
        request = call.request(self._http)
        try:
            answer = self._sent(request, again=call.repeatable)
        except httpx.TransportError as error:
            raise calls.unsent(self._url, error) from None
        return call.read(self._url, answer)

    def _sent(self, request: httpx.Request, *, again: bool) -> httpx.Response:
        """Return the answer; a mere question is asked again where its connection broke.

        A server closes idle connections, and now and then just as one is used again.
        """
        try:
            return self._http.send(request)
        except (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError):
            if not again:
                raise
            return self._http.send(request)

    def _study(self, call: calls.Call[StudyView]) -> RemoteStudy:
        return RemoteStudy.seen_by(self, self.ask(call))


class RemoteStudy(StudyView):
    """A study as it stood when it was asked for, and what can be done with it.

    Each verb that changes it returns it as it stands then; this one stays as it was.
    """

    _client: Client = PrivateAttr()

    @classmethod
    def seen_by(cls, client: Client, view: StudyView) -> Self:
        """Return a view as a study that a client can act on."""
        made = cls.model_construct(**dict(view))
        made._client = client
        return made

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
        """Go on where the study was paused."""
        return self._client.resume(self.id, Change(why=why))

    def stop(self, why: str = "") -> RemoteStudy:
        """End the study for good; its devices are free."""
        return self._client.stop(self.id, Change(why=why))

    def approve(self, why: str = "") -> RemoteStudy:
        """Hold what the study proposed when it was asked for; refused where that is another by now."""
        return self._client.approve(self.id, Decision(why=why, revision=self.revision))

    def reject(self, why: str = "") -> RemoteStudy:
        """End the study; what it proposed when it was asked for is not wanted."""
        return self._client.reject(self.id, Decision(why=why, revision=self.revision))

    def delete(self) -> None:
        """Remove the study, which has to be stopped, with everything it measured."""
        self._client.delete(self.id, Change())

    def constrain(self, *constraints: str, why: str = "") -> RemoteStudy:
        """Replace all constraints; everything measured is judged anew. Without any there is no limit."""
        change = ConstraintChange(constraints=constraints, why=why)
        return self._client.set_constraints(self.id, change)

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
        """Return the trials as `Client.history` does, to be had as a frame or a file."""
        own: Narrowing = {**narrow, "study": self.id}
        return self._client.history(None, last, **own)

    def events(self, last: int | None = None) -> Sequence[Event]:
        """Return the (last) events of the study."""
        return self._client.events(self.id, last=last)

    def follow(self, after: int | None = None) -> Iterator[Event]:
        """Yield the study's events as they come, from now on or after one."""
        return self._client.follow(self.id, after=after)

    def plot(self) -> Figure:
        """Draw the objective (energy) against the limited metric (latency), one mark a window.

        With the limit, the baseline and the best; `plot().savefig("study.svg")` writes it.

        Raises:
            ConfigError: matplotlib is not installed.
            InvalidInput: nothing can be drawn yet.
        """
        from tuner.presentation.pictures import study_picture

        return study_picture(self.report(), self.tried(), self.pareto())
