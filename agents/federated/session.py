"""A federation's side of the wire: it asks the tuner for each round's setting, and reports the round."""

from __future__ import annotations

import json
import logging
import math
import secrets
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from agents.federated.ports import RoundOutcome
from agents.tuner_link.client import TunerClient
from agents.tuner_link.lease import LeaseKeeper
from agents.tuner_link.spool import Report
from tuner import files
from tuner.core import (
    Applied,
    Clock,
    Context,
    Device,
    Estimate,
    InvalidInput,
    Level,
    Load,
    Measurement,
    Now,
    Outcome,
    ProtocolMismatch,
    Setting,
    Space,
    StoreError,
    TrialState,
    TuningError,
    Unauthorised,
    render_setting,
)
from tuner.wire import Assignment, HoldOrder, HoldReport, Poll, Renewal, StepReport, TrialReport

log = logging.getLogger(__name__)

PATIENCE_S = 15.0
"""How long a round waits for a tuner that has nothing to say yet."""
POLL_S = 5.0
STATE = "federation.json"
GOAL = "accuracy"
"""The metric that a study's goal is of."""
FINAL = (InvalidInput, ProtocolMismatch, Unauthorised)
"""What says that the tuner does not want this federation."""


@dataclass(frozen=True, slots=True)
class _Latest:
    """What the latest round was set to, and by which study: kept over a restart."""

    study: str
    setting: Setting


class FederationSession:
    """Asks for settings and reports rounds; used by one thread.

    With the tuner away a round runs at the latest setting, and is reported later as a step of the
    federation's own. A round that was given out and not reported, as its server was killed, is given
    out again. `start` is a new word at each start.

    `begin` raises Unauthorised, ProtocolMismatch or InvalidInput where the tuner has never wanted this
    federation: trying again would not help.
    """

    def __init__(
        self, link: TunerClient, device: Device, folder: Path, clock: Clock, now: Now, start: str
    ) -> None:
        self._link, self._device, self._clock, self._now = link, device, clock, now
        self._agent = f"{device.agent}/{start}"
        self._file = folder / STATE
        self._latest = self._kept()
        self._order: Assignment | HoldOrder | None = None
        self._lease = ExitStack()
        self._registered = self._reached = False

    @property
    def space(self) -> Space:
        """The knobs of a round."""
        return self._device.space

    @property
    def ended(self) -> str:
        """Why the training is over, as of the last `begin`; empty while it continues.

        A hold of a study that has a goal means that it is reached.
        """
        order = self._order
        reached = isinstance(order, HoldOrder) and GOAL in order.metrics
        return f"study {order.study} has reached its goal" if reached and order else ""

    def begin(self, context: Context) -> Setting:
        """Return the coming round's setting; where the tuner is away, the latest one's."""
        self._lease.close()
        self._order = None
        try:
            self._order = self._next_order(context)
        except TuningError as error:
            if isinstance(error, FINAL) and not self._reached and not self._latest.study:
                raise
            log.warning(
                "event=round_without_tuner federation=%s why=%r", self._device.id, str(error)
            )
        if isinstance(self._order, Assignment):
            self._keep(_Latest(self._order.study, self._order.setting))
            self._lease.enter_context(self._renewed(self._order))
        elif self._order is not None:
            plan = self._order.plan
            self._keep(_Latest(self._order.study, plan.rows[plan.row(context)].setting))
        return self._latest.setting

    def end(self, outcome: RoundOutcome) -> None:
        """Report a round; what cannot be sent now is kept, and sent later."""
        self._lease.close()
        report = self._report(outcome)
        if report is None:
            log.warning("event=round_not_told federation=%s why='no study yet'", self._device.id)
            return
        self._link.keep(report)
        self._deliver()

    def close(self) -> None:
        """Send what is left, and let go."""
        self._lease.close()
        self._deliver()

    def _next_order(self, context: Context) -> Assignment | HoldOrder | None:
        """Return what the tuner says within some seconds. Raises what it refuses with."""
        self._link.deliver()
        if not self._registered:
            self._link.register(self._device)
            self._registered = self._reached = True
        until = self._clock.monotonic() + PATIENCE_S
        while True:
            order = self._link.next(self._device.id, self._poll(context))
            if isinstance(order, Assignment | HoldOrder):
                return order
            if self._clock.monotonic() >= until:
                log.info("event=no_order federation=%s why=%r", self._device.id, order.why)
                return None
            self._clock.sleep(1.0)

    def _poll(self, context: Context) -> Poll:
        applied = Applied(
            device=self._device.id,
            setting=self._latest.setting,
            level=Level.ORIGINAL,
            at=self._now(),
        )
        finite = {name: value for name, value in context.items() if math.isfinite(value)}
        return Poll(agent=self._agent, applied=applied, context=finite, wait_s=POLL_S)

    def _renewed(self, order: Assignment) -> LeaseKeeper:
        renewal = Renewal(device=self._device.id, token=order.token, nonce=order.nonce)
        return LeaseKeeper(self._link, renewal, order.lease_s)

    def _report(self, outcome: RoundOutcome) -> Report | None:
        """Return a round as a trial's end, a window of the held setting, or a step of one's own."""
        order, ended = self._order, self._outcome(outcome)
        if isinstance(order, Assignment):
            return TrialReport(
                device=self._device.id,
                study=order.study,
                trial=order.trial,
                attempt=order.attempt,
                token=order.token,
                nonce=order.nonce,
                outcome=ended,
            )
        if isinstance(order, HoldOrder):
            return HoldReport(
                device=self._device.id,
                study=order.study,
                revision=order.revision,
                setting=self._latest.setting,
                measurement=ended.measurement,
            )
        if not self._latest.study:
            return None
        return StepReport(
            device=self._device.id,
            study=self._latest.study,
            key=secrets.token_hex(8),
            setting=self._latest.setting,
            outcome=ended,
        )

    def _outcome(self, outcome: RoundOutcome) -> Outcome:
        if outcome.failed:
            return Outcome(state=TrialState.FAILED, reason=outcome.failed)
        shown = {
            name: Estimate.of_mean(value, 0.0, origin=outcome.origin)
            for name, value in outcome.metrics.items()
            if math.isfinite(value)
        }
        measurement = Measurement(
            estimates=shown,
            started_at=self._now(),
            seconds=max(1e-3, outcome.seconds),
            load=Load(int(outcome.metrics.get("participated", 0))),
            context={k: v for k, v in outcome.context.items() if math.isfinite(v)},
        )
        return Outcome(state=TrialState.COMPLETED, measurement=measurement)

    def _deliver(self) -> None:
        try:
            self._link.deliver()
        except TuningError as error:
            log.warning("event=reports_kept federation=%s why=%r", self._device.id, str(error))

    def _keep(self, latest: _Latest) -> None:
        """Note the latest setting; a disk that refuses costs only what a restart would know."""
        if latest == self._latest:
            return
        self._latest = latest
        try:
            files.write(self._file, json.dumps([latest.study, dict(latest.setting)]))
        except StoreError as error:
            log.warning("event=setting_not_kept why=%r", str(error))
        log.info("event=round_set setting=%r", render_setting(latest.setting))

    def _kept(self) -> _Latest:
        try:
            study, setting = json.loads(self._file.read_text(encoding="utf-8"))
            self._device.space.check(setting)
        except (OSError, ValueError, TypeError, AttributeError, TuningError):
            return _Latest("", self._device.space.default)
        return _Latest(str(study), setting)
