"""Every port on one page: time, policies, devices, and the store, which is a port for each thing kept."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol, runtime_checkable

from tuner.core.access import AccessToken, AuditEntry
from tuner.core.decisions import Past, Suggestion
from tuner.core.devices import (
    Applied,
    Delivery,
    Device,
    Event,
    FleetStop,
    MetricSample,
    Notice,
    Observation,
    TunerReplica,
)
from tuner.core.goals import Limit
from tuner.core.knobs import Setting
from tuner.core.plans import ANYWHERE, Context
from tuner.core.readings import Reading
from tuner.core.studies import Revision, Situation, Study, UnreadableStudy
from tuner.core.trials import Lease, Outcome, Phase, Report, Trial, TrialCare, TrialState

__all__ = [
    "Actuator",
    "Audit",
    "Bus",
    "Clock",
    "Deliveries",
    "Devices",
    "Events",
    "DecidesSteps",
    "ExploresApart",
    "Leases",
    "Meter",
    "Now",
    "Observations",
    "Policy",
    "RefusesStudies",
    "SaysWhatItHeeds",
    "Stops",
    "Store",
    "Studies",
    "Tokens",
    "Trials",
    "Window",
]

Now = Callable[[], datetime]
"""Wall time in UTC, for display and for the tuner's own leases."""


class Clock(Protocol):
    """Monotonic time in seconds and waiting on it. Simulated devices bring their own."""

    def monotonic(self) -> float:
        """Return seconds since some fixed moment; never goes back."""
        ...

    def sleep(self, seconds: float) -> None:
        """Return once `seconds` have passed on this clock."""
        ...


class Policy(Protocol):
    """The judgement: a pure function of the past. Same past, same suggestion, also after a restart."""

    def suggest(self, past: Past) -> Suggestion:
        """Return what to do next: try a setting, wait, or be done with a plan."""
        ...


@runtime_checkable
class SaysWhatItHeeds(Protocol):
    """A policy that says which parts of a study it heeds: `objective`, `constraints`, `safety`.

    One that does not say heeds the first two: to heed `safety` it must predict what it tries. What a study
    asks for and its policy does not heed is refused when the study is made.
    """

    heeds: frozenset[str]


@runtime_checkable
class RefusesStudies(Protocol):
    """A policy that heeds a part of a study in some forms only, and says which it does not."""

    def refuse(self, study: Study) -> None:
        """Return quietly where all of a study is heeded. Raises InvalidInput: names what is not."""
        ...


@runtime_checkable
class DecidesSteps(Protocol):
    """A policy of continuous studies that judges steps by itself.

    Without `needs_baseline` none is measured, but where a limit is relative to it. `goals` are metrics
    whose constraint ends the study once its course has come to it: no setting is judged by them.
    """

    needs_baseline: bool
    goals: frozenset[str]


@runtime_checkable
class ExploresApart(Protocol):
    """A policy that may be asked while trials run, and whose like devices may so try one each.

    The running trials are in its past, without a measurement: it suggests none of them again, and what
    it suggests beside them is as safe as if it were never told how they end.
    """

    explores_apart: bool


class Actuator(Protocol):
    """Sets one part of a setting."""

    def read(self) -> Setting:
        """Return what is in force now, every knob of the part.

        Raises:
            ActuationError: it cannot be told.
        """
        ...

    def apply(self, setting: Setting) -> None:
        """Put the setting in force; afterwards `read()` agrees with it.

        Knobs the setting does not name stay as they are. Applying what is in force changes nothing.

        Raises:
            UnknownKnob, OutOfRange: the setting does not fit; nothing was changed.
            ActuationError: it could not be put in force; what `read()` says is true.
        """
        ...


class Window(Protocol):
    """An open measuring window."""

    def read(self) -> Reading:
        """Return what the window shows so far."""
        ...

    def stop(self) -> Reading:
        """Close the window and return what it showed. Closing twice returns the same.

        Raises:
            MeasurementError: the meter failed, or jumped backwards.
        """
        ...


class Meter(Protocol):
    """Measures one part. Never needs the rights that setting it needs."""

    def start(self) -> Window:
        """Open a window now.

        Raises:
            MeasurementError: the meter does not answer.
        """
        ...


class Studies(Protocol):
    """Studies with all their revisions. Values in, values out; safe from many threads."""

    def add(self, study: Study, who: str, why: str) -> None:
        """Store a new study as revision 1.

        Raises:
            Conflict: the id is taken.
            DeviceBusy: one of its devices belongs to another active study.
        """
        ...

    def get(self, study: str) -> Study:
        """Return a study as it is now. Raises NotFound."""
        ...

    def list(
        self,
        *,
        device: str | None = None,
        among: Collection[str] | None = None,
        active: bool = False,
    ) -> Sequence[Study]:
        """Return the readable studies, oldest first: of a device, of these ids, the active ones."""
        ...

    def stored(
        self,
        *,
        device: str | None = None,
        among: Collection[str] | None = None,
        active: bool = False,
    ) -> Sequence[Study | UnreadableStudy]:
        """Return all studies as `list` does, in their places also those that cannot be read."""
        ...

    def stopped(self) -> Sequence[str]:
        """Return the ids of the studies that are over, oldest first."""
        ...

    def of(self, device: str) -> Study | None:
        """Return the active study that has a device, None where none does that can be read."""
        ...

    def situation(self, device: str) -> Situation:
        """Return what a device's next order goes by. Raises NotFound: it is not registered."""
        ...

    def windows_s(self, devices: Collection[str]) -> Mapping[str, float]:
        """Return how long a window of each of these is, in seconds; without those no active study has."""
        ...

    def active(self) -> Mapping[str, int]:
        """Return the revision of each study that is not over, by its id, oldest first."""
        ...

    def ids(self, device: str | None = None, workload: str | None = None) -> Sequence[str]:
        """Return the ids of the studies of a device, of a workload, or of both; oldest first."""
        ...

    def holding(self) -> Sequence[str]:
        """Return the ids of the studies that hold a plan, oldest first."""
        ...

    def revise(self, study: Study, who: str, why: str, at: datetime) -> Study:
        """Store the study as the revision after the one it carries, and return it so.

        Raises:
            NotFound: there is no such study.
            StaleRevision: somebody else revised it since; read it again.
            DeviceBusy: it became active again and a device is taken.
        """
        ...

    def revisions(self, study: str) -> Sequence[Revision]:
        """Return every revision, first to last. Raises NotFound."""
        ...

    def latest(self, study: str) -> Revision:
        """Return the last revision. Raises NotFound."""
        ...

    def delete(self, study: str) -> None:
        """Remove an inactive study with its trials, reports and observations.

        Raises:
            NotFound: there is no such study.
            Conflict: it is still active.
        """
        ...


class Trials(Protocol):
    """The trials of studies. Numbers count up from 1 per study; a final trial never changes."""

    def begin(
        self,
        study: str,
        setting: Setting,
        phase: Phase,
        why: str,
        at: datetime,
        context: Context = ANYWHERE,
        seen: tuple[int, int] | None = None,
        device: str = "",
    ) -> Trial:
        """Store a RUNNING trial under the next number and return it: of one device, or of all.

        `seen` is the revision and the number of trials of the study that the step was decided by:
        of several who decide by the same, one begins a trial.

        Raises:
            NotFound: there is no such study.
            StaleRevision: it is not as it was seen any more; look again.
        """
        ...

    def restart(self, study: str, number: int, at: datetime) -> Trial:
        """Count a further attempt of a running trial. Raises NotFound, IllegalTransition."""
        ...

    def end(self, study: str, number: int, outcome: Outcome, at: datetime) -> Trial:
        """Give a trial its one final state. Raises NotFound, IllegalTransition."""
        ...

    def list(self, study: str, first: int = 1) -> Sequence[Trial]:
        """Return the trials of a study by number, from the first on; empty for an unknown study."""
        ...

    def tried(self, study: str, setting: Setting) -> Sequence[Trial]:
        """Return the trials of a study at a setting by number; empty for an unknown study."""
        ...

    def latest(
        self,
        last: int,
        skip: int = 0,
        studies: Collection[str] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        state: TrialState | None = None,
        device: str | None = None,
    ) -> Sequence[tuple[str, Trial]]:
        """Return trials with their study, latest start first: of these studies, or of all.

        The first `skip` are left out; `until` itself is not included. With a device, without those that
        another tried alone.
        """
        ...

    def count(self, study: str) -> int:
        """Return how many trials a study has; 0 for an unknown study."""
        ...

    def running(self, study: str) -> Sequence[Trial]:
        """Return the trials of a study that have not ended, by number."""
        ...

    def at_work(self) -> Sequence[TrialCare]:
        """Return every trial that has not ended, by study and number, with the leases on it."""
        ...

    def report(self, report: Report) -> bool:
        """Keep a report; False where the same (study, trial, device, token, nonce) is kept already.

        Raises:
            NotFound: there is no such trial.
        """
        ...

    def reports(self, study: str, number: int) -> Sequence[Report]:
        """Return every report on a trial, late ones too, in order of arrival."""
        ...

    def states(self, study: str, number: int) -> Sequence[tuple[TrialState, int, datetime]]:
        """Return the trial's history: state, attempt, and when it came to that."""
        ...


class Leases(Protocol):
    """At most one lease per device; tokens only grow, also over releases and restarts."""

    def grant(
        self, device: str, study: str, trial: Trial, agent: str, expires_at: datetime
    ) -> Lease:
        """Give the device's lease to a trial, replacing whatever lease there was.

        It has a greater token than any before and a nonce that nobody can guess.

        Raises:
            NotFound: there is no such trial.
        """
        ...

    def get(self, device: str) -> Lease | None:
        """Return the device's lease, None where there is none."""
        ...

    def renew(self, device: str, token: int, nonce: str, expires_at: datetime) -> Lease:
        """Put off the end of the lease that has this token and nonce. Raises NotFound, StaleToken."""
        ...

    def release(self, device: str, token: int) -> None:
        """End the lease that has this token; quietly nothing where it is not in force."""
        ...


class Devices(Protocol):
    """Devices as last registered, and what was applied to them."""

    def put(self, device: Device) -> None:
        """Store a device, replacing its former description."""
        ...

    def get(self, device: str) -> Device:
        """Return a device. Raises NotFound."""
        ...

    def agent(self, device: str) -> str:
        """Return the agent that registered a device. Raises NotFound."""
        ...

    def list(self) -> Sequence[Device]:
        """Return all devices by id."""
        ...

    def apply(self, applied: Applied) -> None:
        """Note what a device is set to, where that differs from the last note; tell other processes."""
        ...

    def applied(self, device: str) -> Sequence[Applied]:
        """Return what a device was set to, latest first."""
        ...

    def standing(self) -> Mapping[str, Applied]:
        """Return what each device is set to, by its id; without those of which nothing is known."""
        ...

    def refuse(self, device: str, why: str) -> None:
        """Note why a device takes no orders; empty: it takes them. Quietly nothing where it is unknown."""
        ...

    def refusals(self, devices: Collection[str] | None = None) -> Mapping[str, str]:
        """Return why (these) devices take no orders, by id; without those that do and unknown ones."""
        ...

    def heard_at(self) -> Mapping[str, datetime]:
        """Return when each device was last heard of, by its id, as it was stored."""
        ...

    def seen(self, at: Mapping[str, datetime]) -> None:
        """Note when devices were last heard of; unknown ones are left out."""
        ...

    def forget(self, device: str) -> None:
        """Remove a device and what was applied to it; its studies and its lease's token stay.

        Raises:
            NotFound: there is no such device.
            DeviceBusy: an active study has it.
        """
        ...


class Observations(Protocol):
    """Windows measured while holding."""

    def add(self, observation: Observation) -> bool:
        """Keep an observation; False where the same study, device and start is kept already.

        Raises:
            NotFound: there is no such study.
        """
        ...

    def add_all(self, observations: Sequence[Observation]) -> Sequence[bool]:
        """Keep observations in one transaction, all or none; say of each what `add` says.

        Raises:
            NotFound: one is of a study that is not there.
        """
        ...

    def list(self, study: str, last: int | None = None) -> Sequence[Observation]:
        """Return the (last) observations of a study, oldest first."""
        ...

    def oldest(self) -> datetime | None:
        """Return when the first of all was made, None where there is none."""

    def samples(
        self, study: str, metric: str, since: datetime, last: int | None = None
    ) -> Sequence[MetricSample]:
        """Return the (last) windows begun since a time that show a metric, by their start."""
        ...

    def broken(self, study: str, limits: Sequence[Limit]) -> int:
        """Return how many windows of a study prove by themselves that they broke a limit."""
        ...

    def prune(self, before: datetime) -> int:
        """Delete those made before a time and return how many."""
        ...


class Events(Protocol):
    """The operator's log."""

    def add(self, event: Event) -> Event:
        """Keep an event, publish that there is one, and return it with its id."""
        ...

    def add_all(self, events: Sequence[Event]) -> Sequence[Event]:
        """Keep events at once or none, publish that there are, and return them with their ids."""
        ...

    def after(
        self, event: int, most: int | None, study: str | None = None, device: str | None = None
    ) -> Sequence[Event]:
        """Return at most so many (None: all) of the events with a greater id, by id."""
        ...

    def newest(self) -> int:
        """Return the greatest id there is, 0 where there is no event."""
        ...

    def list(
        self, study: str | None = None, device: str | None = None, last: int | None = None
    ) -> Sequence[Event]:
        """Return the (last) events, oldest first, of one study or device where asked."""
        ...

    def oldest(self) -> datetime | None:
        """Return when the first of all was, None where there is none."""
        ...

    def prune(self, before: datetime) -> int:
        """Delete those before a time but the newest, after which ids count on; return how many."""
        ...


class Tokens(Protocol):
    """Access tokens by name, of which each has at most one that is not revoked."""

    def add(self, token: AccessToken, using: str = "") -> bool:
        """Store a token; False where the same is stored already.

        With `using` the enrolment token of that name is used up by it, in the same transaction.

        Raises:
            Conflict: another token has the name, and is not revoked.
            Unauthorised: the enrolment token is used already.
        """
        ...

    def rotate(self, token: AccessToken) -> bool:
        """Store a token in place of one of its name and role; False where the same is stored already.

        Raises:
            Conflict: a token of another role has the name, and is not revoked.
        """
        ...

    def of(self, digest: str) -> AccessToken | None:
        """Return the token of a digest, None where there is none."""
        ...

    def named(self, name: str) -> AccessToken | None:
        """Return the token of a name, None where there is none."""
        ...

    def list(self) -> Sequence[AccessToken]:
        """Return all tokens by name."""
        ...

    def revoke(self, name: str, at: datetime) -> None:
        """Note that a token counts no more. Raises NotFound: there is none, or it was revoked."""
        ...


class Replicas(Protocol):
    """The tuners at work on one database, each by its own word."""

    def tell(self, replica: TunerReplica) -> None:
        """Keep what a tuner tells of itself, in the place of what it told before."""
        ...

    def list(self) -> Sequence[TunerReplica]:
        """Return all by id, also those that told nothing for long."""
        ...

    def prune(self, before: datetime) -> int:
        """Delete those that have told nothing since a time and return how many."""
        ...


class Deliveries(Protocol):
    """How far each destination of notifications has been told of the events."""

    def get(self, destination: str, /) -> Delivery | None:
        """Return how far it is, None for a new one."""
        ...

    def put(self, delivery: Delivery, /) -> None:
        """Keep how far it is."""
        ...

    def list(self) -> Sequence[Delivery]:
        """Return all by the destination's name."""
        ...

    def forget(self, destination: str, /) -> None:
        """Remove a destination that there is no more; quietly nothing where it is unknown."""
        ...


class Audit(Protocol):
    """Who changed what, and what was refused."""

    def add(self, entry: AuditEntry) -> None:
        """Keep an entry."""
        ...

    def list(self, last: int | None = None, who: str | None = None) -> Sequence[AuditEntry]:
        """Return the (last) entries, oldest first, of one token where asked."""
        ...

    def prune(self, before: datetime) -> int:
        """Delete those before a time and return how many."""
        ...


class Stops(Protocol):
    """The one order to stop the whole fleet, while there is one."""

    def current(self) -> FleetStop | None:
        """Return the order in force, None where there is none."""
        ...

    def order(self, stop: FleetStop) -> FleetStop:
        """Put an order in force and return it; where there is one already, that one."""
        ...

    def report(self, device: str, *, back: bool) -> None:
        """Note whether a device is at its original setting; nothing where no order is in force."""
        ...

    def lift(self) -> bool:
        """End the order and return whether there was one."""
        ...


class Bus(Protocol):
    """Tells everybody at work on one store that there may be something new. Safe from many threads."""

    def publish(self, notice: Notice) -> None:
        """Tell every subscriber, in this process at once, in others soon; never raises."""
        ...

    def subscribe(self, listener: Callable[[Notice], None]) -> Callable[[], None]:
        """Have `heard` called with every notice, from any thread; return what ends that."""
        ...

    def listen(self) -> None:
        """Hear other processes, too, until the store is closed. Once more is no other."""
        ...

    def leads(self) -> bool:
        """Return whether this process does what one alone of those that listen does for all."""
        ...

    def lag_s(self) -> float | None:
        """Return how long a notice lately took to be heard; None where other processes are not heard."""
        ...


class Store(Protocol):
    """All of the memory behind one URL. Raises StoreError where the database does not answer."""

    @property
    def studies(self) -> Studies:
        """Studies and their revisions."""
        ...

    @property
    def trials(self) -> Trials:
        """Trials, reports and status history."""
        ...

    @property
    def leases(self) -> Leases:
        """Who may run what now."""
        ...

    @property
    def devices(self) -> Devices:
        """Devices and what is applied."""
        ...

    @property
    def observations(self) -> Observations:
        """Windows of holds."""
        ...

    @property
    def events(self) -> Events:
        """The operator's log."""
        ...

    @property
    def tokens(self) -> Tokens:
        """Who may ask."""
        ...

    @property
    def deliveries(self) -> Deliveries:
        """Who has been told of what."""
        ...

    @property
    def audit(self) -> Audit:
        """Who changed what."""
        ...

    @property
    def stops(self) -> Stops:
        """The order to stop everything."""
        ...

    @property
    def replicas(self) -> Replicas:
        """Which tuners are at work."""
        ...

    @property
    def bus(self) -> Bus:
        """What is new."""
        ...

    def ping(self) -> None:
        """Return quietly when the store answers. Raises StoreError."""
        ...

    def check_writable(self) -> None:
        """Return quietly once the store has kept something new. Raises StoreError: says why not."""
        ...

    def close(self) -> None:
        """Let go of connections."""
        ...
