"""Sets a service's knobs as its file describes, each read back."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agents.host.local_http import LocalHttp
from agents.workloads.http.files import KnobInFile
from agents.workloads.http.knob_config import ReadCall, SetCall
from agents.workloads.http.reading import HttpReading
from agents.workloads.http.restart import ServiceRestart
from agents.workloads.http.template import VALUE, filled
from tuner.core import ActuationError, Clock, DeviceLost, Knob, Plan, Setting, Space, Value

LOOK_S = 0.1


class HttpKnob:
    """Sets and reads one knob of a service by calls."""

    def __init__(
        self, http: LocalHttp, knob: Knob, calls: tuple[SetCall, ReadCall], clock: Clock
    ) -> None:
        self.knob = knob
        self._http, self._clock = http, clock
        self._set, read = calls
        self._reading = HttpReading(http, knob, read)
        self.read = self._reading.read

    def is_at(self, value: Value) -> bool:
        """Return whether this is the value in force. Raises ActuationError, DeviceLost."""
        return self._reading.is_at(value)

    def set(self, value: Value) -> None:
        """Put a value in force and read it back, for as long as a change may take.

        Raises:
            ActuationError, DeviceLost: it was refused, or is not in force.
        """
        call = self._set
        self._http.call(call.method, call.path, filled(call.template, {VALUE: value}))
        end = self._clock.monotonic() + self.knob.cost.seconds
        while True:
            try:
                now: object = self.read()
            except (ActuationError, DeviceLost) as error:  # a change may restart it
                if self._clock.monotonic() >= end:
                    raise
                now = error.message
            if now == value:
                return
            if self._clock.monotonic() >= end:
                raise ActuationError(
                    f"{self._http.url} took {self.knob.name}={value} but is at {now}",
                    hint="its log may say why; where a change takes time, say it as `seconds`",
                )
            self._clock.sleep(LOOK_S)


class HttpKnobs:
    """Sets all knobs of a service, those that change.

    Those in files come first, with one restart for all of them, then calls that restart it: a restart
    loses what calls have set. A service that is at a value of its own making is put to a listed one like
    any other. A plan goes to the service as the table of the one knob that has one.
    """

    def __init__(
        self,
        http: LocalHttp,
        knobs: Sequence[HttpKnob | KnobInFile],
        restart: ServiceRestart | None,
    ) -> None:
        self._knobs, self._restart = tuple(knobs), restart
        self._calls = [one for one in knobs if isinstance(one, HttpKnob)]
        self._files = [one for one in knobs if isinstance(one, KnobInFile)]
        self.close = http.close
        self.space = Space(tuple(one.knob for one in knobs))

    def read(self) -> Setting:
        """Return what is in force. Raises ActuationError, DeviceLost."""
        return {one.knob.name: one.read() for one in self._knobs}

    def apply(self, setting: Setting) -> None:
        """Put a setting in force, which ends a plan.

        Raises:
            UnknownKnob, OutOfRange: it does not fit; nothing was changed.
            ActuationError, DeviceLost: it was refused, or is not in force.
        """
        for name, value in setting.items():
            self.space.knob(name).index(value)
        changed = [
            one
            for one in self._files
            if one.knob.name in setting and not one.is_at(setting[one.knob.name])
        ]
        for file in changed:
            file.write(setting[file.knob.name])
        self._renew(changed)
        for file in changed:
            file.verify(setting[file.knob.name])
        wanted = [one for one in self._calls if one.knob.name in setting]
        wanted.sort(key=lambda one: not one.knob.cost.restart)
        for call in wanted:
            if not call.is_at(setting[call.knob.name]):
                call.set(setting[call.knob.name])

    def follow(self, plan: Plan) -> bool:
        """Hand over a plan; False where the service has no table for it.

        Raises:
            ActuationError, DeviceLost: the service did not take it.
        """
        holders = [one for one in self._files if one.follows(plan)]
        if not holders:
            return False
        (holder,) = holders
        first = plan.rows[0].setting
        others = {name: first[name] for name in first if name != holder.knob.name}
        if any(row.setting[name] != value for row in plan.rows for name, value in others.items()):
            return False
        self.apply(others)
        if holder.write_plan(plan):
            self._renew([holder])
        return True

    def followed(self) -> Plan | None:
        """Return the plan in force, None where a setting is. Raises ActuationError, DeviceLost."""
        plans = (one.plan() for one in self._files)
        return next((plan for plan in plans if plan is not None), None)

    def _renew(self, changed: Sequence[KnobInFile]) -> None:
        """Have the service take up its files. Raises ActuationError, DeviceLost."""
        if not changed:
            return
        assert self._restart is not None
        self._restart.run(anew=any(file.knob.cost.restart for file in changed))
        for file in changed:
            file.taken_up()


class RestartableHttpKnobs(HttpKnobs):
    """Sets the knobs of a service that tells when it was started."""

    def __init__(
        self,
        http: LocalHttp,
        knobs: Sequence[HttpKnob | KnobInFile],
        restart: ServiceRestart | None,
        started: Callable[[], str],
    ) -> None:
        super().__init__(http, knobs, restart)
        self._started = started

    def incarnation(self) -> str:
        """Return another word after each start. Raises ActuationError, DeviceLost."""
        return self._started()
