"""One trial on one device: journalled before any change, measured under its lease, and reported."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from agents.actuator_client.client import named
from agents.agent.surroundings import LoopStatus, Surroundings
from agents.holding.holder import Holder
from agents.target.capping import over_cap
from agents.target.measure import Measurer
from agents.target.observe import Ask
from agents.target.target import Target
from agents.tuner_link.lease import LeaseKeeper
from tuner.core import (
    POWER_CAP,
    Applied,
    Conflict,
    Level,
    Outcome,
    Phase,
    StoreError,
    TrialState,
    TuningError,
    render_setting,
)
from tuner.wire import Assignment, Renewal, TrialReport

log = logging.getLogger(__name__)

SAMPLED = (Phase.BASELINE, Phase.CONFIRMING, Phase.HOLDING)
"""The phases of windows whose raw values are kept: baseline, confirming and control windows."""


def restarts_workload(order: Assignment, target: Target) -> bool:
    """Return whether a trial restarts the workload under a load of ours, and changes no device."""
    workload = target.workload
    if workload is None or not order.context:  # a load that the order requests is ours
        return False
    sides = [workload, *(side for side in target.devices if side.restarts_workload)]
    own = {knob.name: knob for side in sides for knob in side.space.knobs}
    changed = {name for name, value in order.setting.items() if order.baseline[name] != value}
    if order.plan is not None:
        changed |= {n for row in order.plan.rows for n in row.setting if n in own}
    return changed <= own.keys() and any(own[name].cost.restart for name in changed)


@dataclass(frozen=True)
class TrialRunner:
    """Runs trials on a device; `check_stop` raises Conflict if a trial must end."""

    device: str
    bench: Measurer
    holder: Holder
    around: Surroundings
    attached: Mapping[str, str]
    standing: LoopStatus
    check_stop: Callable[[], None]

    def run(self, order: Assignment, restore: Callable[[], None]) -> TrialReport:
        """Run one trial, restore the device while the lease is still kept, and return the report."""
        log.info(
            "event=trial device=%s study=%s trial=%d attempt=%d setting=%r",
            self.device,
            order.study,
            order.trial,
            order.attempt,
            render_setting(order.setting),
        )
        renewal = Renewal(device=self.device, token=order.token, nonce=order.nonce)
        self.standing.applied = Applied(
            device=self.device,
            setting=order.setting,
            level=Level.TRIAL,
            at=self.around.now(),
            study=order.study,
            revision=order.revision,
        )
        monotonic = self.around.clock.monotonic
        with LeaseKeeper(self.around.link, renewal, order.lease_s, monotonic) as lease:
            with self.standing.leased(lease), self.holder.set_aside(lend=True):
                outcome = self._measured(order, lease)
            restore()
        log.info(
            "event=trial_ended device=%s study=%s trial=%d state=%s censored=%s reason=%r",
            self.device,
            order.study,
            order.trial,
            outcome.state,
            outcome.censored,
            outcome.reason,
        )
        return TrialReport.of(order, device=self.device, outcome=outcome)

    def _measured(self, order: Assignment, lease: LeaseKeeper) -> Outcome:
        """Return a trial's outcome; errors are outcomes, too."""

        def check() -> None:
            lease.check()
            self.check_stop()
            if caps.clipped(within) != within:
                raise Conflict("a power cap fell below the setting")

        caps, setting = self.bench.target.caps, dict(order.setting)
        ask = Ask(
            metrics=order.metrics,
            limits=order.limits,
            window_s=order.window_s,
            max_window_s=order.max_window_s,
            expected=order.expected,
            context=order.context,
            follows=order.follows,
            plan=order.plan,
            idle=True,
            baseline=caps.clipped(dict(order.baseline)) if order.follows else {},
            samples=order.phase in SAMPLED,
        )
        name = f"{self.device}/{order.study}/{order.trial}/{order.attempt}"
        within = caps.clipped(setting)
        if within != setting and setting != dict(order.baseline):
            reason = f"nothing was changed: {over_cap(setting, within)}"
            return Outcome(state=TrialState.CONTAMINATED, reason=reason)
        try:
            self.around.journal.record(
                self.device,
                self.bench.target,
                Level.TRIAL,
                self.around.host.boot,
                self.attached,
            )
        except (StoreError, Conflict) as error:
            return Outcome(state=TrialState.ABORTED, reason=f"nothing was changed: {error}")
        except TuningError as error:
            return Outcome(state=TrialState.FAILED, reason=f"nothing was changed: {error}")
        with named(name):
            outcome = self.bench.trial(within, ask, check, name)
        if (now := caps.clipped(within)) != within:
            reason = f"a power cap came into force: {over_cap(within, now)}"
            return Outcome(state=TrialState.CONTAMINATED, reason=reason)
        if within == setting or outcome.measurement is None:
            return outcome
        noted = {**outcome.measurement.sources, POWER_CAP: over_cap(setting, within)}
        return replace(outcome, measurement=replace(outcome.measurement, sources=noted))
