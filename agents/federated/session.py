"""A federation's session with its tuner: it requests a setting for each round, and reports the round."""

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
"""The longest wait of a round for an order of the tuner, in seconds."""
POLL_S = 5.0
STATE = "federation.json"
GOAL = "accuracy"
"""The metric of a study's goal."""
FINAL = (InvalidInput, ProtocolMismatch, Unauthorised)
"""The errors with which the tuner refuses this federation; a retry would not help."""


@dataclass(frozen=True, slots=True)
class _Latest:
    """The latest round's setting and study, which are stored for a restart."""

    study: str
    setting: Setting


class FederationSession:
    """Requests settings and reports rounds; for use by one thread.

    If the tuner does not answer, a round runs at the latest setting and is reported later, as a step
    outside the study's trials. A trial that was never reported, because the federation's server was
    killed, is assigned again. `start` is a text that differs at each start of the server.

    `begin` raises Unauthorised, ProtocolMismatch or InvalidInput if the tuner refuses the federation and
    has never accepted it, because a retry would not help.
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
        """The reason why the training is over, as of the last `begin`; empty while it continues.

        A study with a goal holds a setting only after it has reached the goal.
        """
        order = self._order
        reached = isinstance(order, HoldOrder) and GOAL in order.metrics
        return f"study {order.study} has reached its goal" if reached and order else ""

    def begin(self, context: Context) -> Setting:
        """Return the setting of the next round; that of the latest round if the tuner does not answer."""
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
        """Report a round; a report that cannot be sent now is stored and sent later."""
        self._lease.close()
        report = self._report(outcome)
        if report is None:
            log.warning("event=round_not_told federation=%s why='no study yet'", self._device.id)
            return
        self._link.keep(report)
        self._deliver()

    def close(self) -> None:
        """Stop the renewal of the lease, and send the stored reports."""
        self._lease.close()
        self._deliver()

    def _next_order(self, context: Context) -> Assignment | HoldOrder | None:
        """Return the tuner's order, None without one within `PATIENCE_S` seconds. Raises TuningError."""
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
        """Return the request for an order, with the latest setting and the finite part of the state."""
        applied = Applied(
            device=self._device.id,
            setting=self._latest.setting,
            level=Level.ORIGINAL,
            at=self._now(),
        )
        finite = {name: value for name, value in context.items() if math.isfinite(value)}
        return Poll(agent=self._agent, applied=applied, context=finite, wait_s=POLL_S)

    def _renewed(self, order: Assignment) -> LeaseKeeper:
        """Return the keeper that renews a trial's lease while its round runs."""
        renewal = Renewal(device=self._device.id, token=order.token, nonce=order.nonce)
        return LeaseKeeper(self._link, renewal, order.lease_s)

    def _report(self, outcome: RoundOutcome) -> Report | None:
        """Return the report of a round: a trial, a window of the held setting, or a step outside trials.

        Returns None if no study has set a round yet.
        """
        order, ended = self._order, self._outcome(outcome)
        if isinstance(order, Assignment):
            return TrialReport.of(order, device=self._device.id, outcome=ended)
        if isinstance(order, HoldOrder):
            return HoldReport.of(
                order,
                device=self._device.id,
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
        """Return a round's result as a trial's outcome."""
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
        """Send the stored reports; log a failure, after which they stay stored."""
        try:
            self._link.deliver()
        except TuningError as error:
            log.warning("event=reports_kept federation=%s why=%r", self._device.id, str(error))

    def _keep(self, latest: _Latest) -> None:
        """Store the latest setting. If the disk refuses, only a restart lacks it, so log the error."""
        if latest == self._latest:
            return
        self._latest = latest
        try:
            files.write(self._file, json.dumps([latest.study, dict(latest.setting)]))
        except StoreError as error:
            log.warning("event=setting_not_kept why=%r", str(error))
        log.info("event=round_set setting=%r", render_setting(latest.setting))

    def _kept(self) -> _Latest:
        """Return the stored setting; the default one if there is no valid file."""
        try:
            study, setting = json.loads(self._file.read_text(encoding="utf-8"))
            self._device.space.check(setting)
        except (OSError, ValueError, TypeError, AttributeError, TuningError):
            return _Latest("", self._device.space.default)
        return _Latest(str(study), setting)
