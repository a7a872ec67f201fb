"""Sets a service's knobs as its file describes, lets it reload its files, and reads each knob back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from agents.host.http.local_http import LocalHttp
from agents.host.processes.commands import run_argv
from agents.host.processes.service_process import ServiceProcess
from agents.target.side import Accepted
from agents.workloads.http.config import RenewalConfig
from agents.workloads.http.files import KnobInFile
from agents.workloads.http.knob_config import VALUE, SetCall, filled
from agents.workloads.http.reading import ReadValue, is_at, settle
from agents.workloads.http.table_fallback import TableFallback
from agents.workloads.http.units import KnobInUnit
from tuner.core import (
    NO_ANSWER,
    ActuationError,
    Clock,
    DeviceLost,
    Knob,
    MeasurementError,
    Plan,
    Setting,
    Space,
    Value,
    reraised,
)

log = logging.getLogger(__name__)
KnobT = TypeVar("KnobT", "HttpKnob", KnobInFile)

RESTART_S = 900.0
"""Timeout in s of a call that restarts a service: it finishes its requests and loads a large model."""

LOOK_S = 0.5
NOT_RESTARTED = "the service has not restarted"


@dataclass(frozen=True)
class ServiceRenewal:
    """Run the command or send the signal, and wait until the service serves again.

    It serves once it answers `ready`, if there is such a path. `started` returns the service's start time
    as it reports it, empty if it reports none. If it reports one, only a changed start time counts as a
    restart.
    """

    _config: RenewalConfig
    _ready: str
    _http: LocalHttp | None
    _process: ServiceProcess | None
    _started: Callable[[], str]
    _clock: Clock

    def run(self, *, anew: bool) -> None:
        """Reload; `anew` requires that this restarts the service.

        Raises:
            ActuationError: the command failed, or the service is not ready in time.
            DeviceLost: the process for the signal does not exist.
        """
        before = ""
        with suppress(
            ActuationError, DeviceLost
        ):  # if it is down, the next answer is a new start's
            before = self._started() if anew else ""
        end = self._clock.monotonic() + self._config.seconds
        if self._config.command:
            run_argv(self._config.command, self._config.seconds)
        else:
            assert self._process is not None
            self._process.signal(self._config.signal)
        while (missing := self._missing(before)) and self._clock.monotonic() < end:
            self._clock.sleep(LOOK_S)
        if missing:
            silent = f"the service {NO_ANSWER}: " if anew and missing != NOT_RESTARTED else ""
            raise ActuationError(
                f"{silent}{missing} {self._config.seconds:g} s after {self._config}",
                hint="check its log; if a start takes longer, set seconds in [restart]",
            )

    def _missing(self, before: str) -> str:
        """Return the condition that is not met yet; empty if all are."""
        try:
            if self._http is not None and self._ready:
                self._http.call("GET", self._ready)
            now = self._started()
        except (ActuationError, DeviceLost) as error:
            return error.message
        return NOT_RESTARTED if before and now == before else ""


class HttpKnob:
    """Set one knob of a service by a call, and read it back."""

    def __init__(
        self, http: LocalHttp, knob: Knob, call: SetCall, read: ReadValue, clock: Clock
    ) -> None:
        self.knob = knob
        self._http, self._set, self._clock = http, call, clock
        self.read = read

    def is_at(self, value: Value) -> bool:
        """Return whether this is the value in force. Raises ActuationError, DeviceLost."""
        return is_at(self.read, value)

    def set(self, value: Value) -> None:
        """Put a value in force and read it back, waiting as long as a change may take.

        Raises:
            ActuationError, DeviceLost: it was refused, or is not in force.
        """
        self.send(self.body(value), value)
        self.verify(value)

    def body(self, value: Value) -> Any:  # noqa: ANN401 - JSON
        """Return the body of the call for a value."""
        template = self._set.json
        return None if template is None else filled(template, {VALUE: value})

    def send(self, body: Any, value: Value) -> None:  # noqa: ANN401 - JSON
        """Send the call with a body. Raises ActuationError, DeviceLost."""
        call, within_s = self._set, RESTART_S if self.knob.cost.restart else None
        self._http.call(call.method, call.path_of(value), body, within_s)

    def verify(self, value: Value) -> None:
        """Read a value back, waiting as long as a change may take. Raises ActuationError, DeviceLost."""
        settle(self._http.url, self.knob, self.read, value, self._clock)

    def goes_with(self, other: HttpKnob) -> bool:
        """Return whether one call can set both knobs: to one path, as different keys of one JSON object."""
        mine, its = self._set.json, other._set.json
        if not (isinstance(mine, dict) and isinstance(its, dict)) or mine.keys() & its.keys():
            return False
        return (self._set.method, self._set.path) == (other._set.method, other._set.path)

    def unproven(self) -> str:
        """Return an empty text: the service reports the value in force, so it is known."""
        return ""


class ServiceKnobs:
    """Set all knobs of a service that change.

    The unit's properties come first: a restart does not undo them. Then come knobs in files, with one
    restart or reload for all of them, then calls that restart the service: a restart loses the
    values set by calls. Such calls to one path with different keys are merged into one call, for one
    restart. A service at a value that is not listed is set to a listed one like any other. A plan is
    given to the service as the table of the only knob with a table. `started` identifies the service's
    current start; None if that is unknown, and then restarts are not noticed.
    """

    def __init__(
        self,
        knobs: Sequence[HttpKnob | KnobInFile | KnobInUnit],
        restart: ServiceRenewal | None,
        reload: ServiceRenewal | None,
        close: Callable[[], None],
        demand_answer: Callable[[], None],
        started: Callable[[], str] | None,
        fallback: TableFallback | None,
    ) -> None:
        self._fallback = fallback
        if started is not None:
            self.incarnation = started
        self._knobs, self._restart, self._reload = tuple(knobs), restart, reload
        self._calls = [one for one in knobs if isinstance(one, HttpKnob)]
        self._files = [one for one in knobs if isinstance(one, KnobInFile)]
        self._units = [one for one in knobs if isinstance(one, KnobInUnit)]
        self.close, self.demand_answer = close, demand_answer
        self.space = Space(tuple(one.knob for one in knobs))

    def unproven(self) -> Mapping[str, str]:
        """Return why the value in force is unknown, for each knob without a proof.

        Raises:
            ActuationError: systemd does not answer.
        """
        reasons = {one.knob.name: one.unproven() for one in self._knobs}
        return {name: why for name, why in reasons.items() if why}

    def read(self) -> Setting:
        """Return the setting in force. Raises ActuationError, DeviceLost."""
        return {one.knob.name: one.read() for one in self._knobs}

    def apply(self, setting: Setting) -> None:
        """Put a setting in force; this ends a plan.

        Raises:
            UnknownKnob, OutOfRange: the setting is not in the space; nothing was changed.
            ActuationError, DeviceLost: it was refused, or is not in force.
        """
        changed = self._write(setting)
        self._renew(changed)
        self._verify(changed, setting)

    def follow(self, plan: Plan) -> bool:
        """Hand over a plan; return False if the service has no table for it.

        Raises:
            ActuationError, DeviceLost: the service did not accept it.
        """
        holders = [one for one in self._files if one.follows(plan)]
        if not holders:
            return False
        (holder,) = holders
        first = plan.rows[0].setting
        others = {name: first[name] for name in first if name != holder.knob.name}
        if any(row.setting[name] != value for row in plan.rows for name, value in others.items()):
            return False
        changed = self._write(others)
        handed = holder.write_plan(plan)
        self._renew([*changed, holder] if handed else changed)
        self._verify(changed, others)
        if handed:
            holder.verify_plan(plan)
        return True

    def _write(self, setting: Setting) -> list[KnobInFile]:
        """Write the files of changed knobs; return the files that the service has to read.

        Raises UnknownKnob, OutOfRange, ActuationError, DeviceLost.
        """
        self.space.check_named(setting)
        self._call(self._units, setting)
        changed = _elsewhere(self._files, setting)
        for file in changed:
            file.write(setting[file.knob.name])
        return changed

    def _verify(self, changed: Sequence[KnobInFile], setting: Setting) -> None:
        """Read back the files, then set the other knobs by calls. Raises ActuationError, DeviceLost."""
        for file in changed:
            file.verify(setting[file.knob.name])
        self._restarting([one for one in self._calls if one.knob.cost.restart], setting)
        self._call([one for one in self._calls if not one.knob.cost.restart], setting)

    def followed(self) -> Plan | None:
        """Return the plan in force, or None if a setting is. Raises ActuationError, DeviceLost."""
        plans = (one.plan() for one in self._files)
        return next((plan for plan in plans if plan is not None), None)

    def look(self, reference: Accepted) -> Accepted:
        """Switch to plain decoding while the followed table does not pay, and back.

        Raises:
            ActuationError, DeviceLost: the service does not answer, or did not accept it.
        """
        fallback, plan = self._fallback, self.followed()
        if fallback is None or plan is None:
            return reference
        before = fallback.plain
        with reraised(ActuationError, MeasurementError):
            plain = fallback.look(plan, reference)
        if plain is before:
            return fallback.reference
        what = "acceptance_collapsed" if plain else "drafting_tried_again"
        log.warning("event=%s knob=%s length=%s", what, fallback.knob.name, 0 if plain else "table")
        (holder,) = [one for one in self._files if one.knob.name == fallback.knob.name]
        holder.fall_back(plan, plain=plain)
        self._renew([holder])
        return fallback.reference

    def _call(self, knobs: Sequence[HttpKnob | KnobInUnit], setting: Setting) -> None:
        """Set the knobs that change. Raises ActuationError, DeviceLost."""
        for one in knobs:
            if one.knob.name in setting and not one.is_at(setting[one.knob.name]):
                one.set(setting[one.knob.name])

    def _restarting(self, knobs: Sequence[HttpKnob], setting: Setting) -> None:
        """Set knobs by calls that restart the service. Raises ActuationError, DeviceLost."""
        left = _elsewhere(knobs, setting)
        while left:
            together = left[:1]
            for one in left[1:]:
                if all(one.goes_with(other) for other in together):
                    together.append(one)
            values = {one: setting[one.knob.name] for one in together}
            bodies = [one.body(value) for one, value in values.items()]
            first, merged = together[0], {k: v for body in bodies[1:] for k, v in body.items()}
            first.send({**bodies[0], **merged} if merged else bodies[0], values[first])
            for one, value in values.items():
                one.verify(value)
            left = [one for one in left if one not in values]

    def _renew(self, changed: Sequence[KnobInFile]) -> None:
        """Let the service reload its files. Raises ActuationError, DeviceLost."""
        if not changed:
            return
        anew = any(file.knob.cost.restart for file in changed)
        renewal = self._restart if anew or self._reload is None else self._reload
        assert renewal is not None
        renewal.run(anew=anew)
        for file in changed:
            file.taken_up()


def _elsewhere(knobs: Iterable[KnobT], setting: Setting) -> list[KnobT]:
    """Return the knobs that are not at their values in a setting. Raises ActuationError, DeviceLost."""
    named = [one for one in knobs if one.knob.name in setting]
    return [one for one in named if not one.is_at(setting[one.knob.name])]
