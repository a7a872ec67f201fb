"""The contents of the frozen databases: written through the store, and read back through it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from unittest.mock import patch

from db import Store
from db.history import HistoryQuestion, history, pareto
from tests.builders import START, applied, completed, device, setting, study, window
from tests.contracts.stored import applied_to, trial_states
from tuner.core import (
    AccessRole,
    AccessToken,
    Applied,
    Better,
    Constraint,
    Context,
    Device,
    Event,
    FleetStop,
    Level,
    Limit,
    Metric,
    Mode,
    Objective,
    Observation,
    Origin,
    Outcome,
    Phase,
    Plan,
    Quantity,
    Report,
    Row,
    Setting,
    Signal,
    Study,
    Terms,
    Trial,
    TrialState,
    digest_of,
)
from tuner.service.operations import Operations
from tuner.study.loop import Loop

AGENT, AGENT_TOKEN = "agent@edge", "the token of agent@edge"
ENROL_TOKEN = "a token that enrols one agent"
HELD, STEPPED = "0a1b2c3d", "9f8e7d6c"
"""The study that holds a plan of three rows, and the continuous one."""
NONCE = "ab" * 16
LIMIT = Limit("latency_p99_ms", "<=", 120.0)
TOKENS_PER_J = Quantity("1/J", Better.MORE)
SIGNAL = Signal("requests_in_system", askable=True)

PLAN = Plan(
    (
        Row(1.5, setting(1000), gain=1.0),
        Row(3.0, setting(600), gain=0.25, at=2.0),
        Row(math.inf, setting(800, 4), gain=0.125, at=4.0),
    ),
    by="requests_in_system",
    hysteresis=0.2,
)


def at(minute: float) -> datetime:
    return START + timedelta(minutes=minute)


def described(name: str) -> Device:
    """Return a device with a declared metric, a signal, and a reason for a missing knob."""
    own = Metric("tokens_per_j", Origin.SIMULATED, quantity=TOKENS_PER_J)
    return device(
        name,
        agent=AGENT,
        metrics=(*device().metrics, own),
        signals=(SIGNAL,),
        cannot={"fan_rpm": "it has no fan"},
        versions={"jouletune": "0.1.0"},
    )


DEVICES = (described("sim@edge"), described("sim2@edge"))

MISSED = replace(
    completed(),
    measurement=window(5.0, 200.0, seconds=1.5, context={"requests_in_system": 4.0}),
    broke=LIMIT,
    reason="latency_p99_ms was 200, the limit is <= 120",
)
UNBOUNDED = replace(
    window().estimates["latency_p99_ms"], n=40, low=-math.inf, high=math.inf, mean=101.5
)
SHORT = Outcome(
    state=TrialState.INCONCLUSIVE,
    measurement=replace(
        window(extra={"latency_p99_ms": UNBOUNDED}),
        throttled=("sw_power_cap",),
        foreign=0.03125,
        overhead_s=2.5,
        sources={"energy_j": "the simulated meter"},
    ),
    reason="40 requests in the longest window",
)
LOADED: Context = {"requests_in_system": 2.0}

TRIALS: tuple[tuple[Phase, Setting, Context, Outcome], ...] = (
    (Phase.BASELINE, setting(1000), {}, completed(10.0, 100.0)),
    (Phase.BASELINE, setting(1000), {}, completed(10.1, 101.0)),
    (Phase.TUNING, setting(800), {}, completed(8.0, 105.0)),
    (Phase.TUNING, setting(600), LOADED, completed(6.0, 110.0)),
    (Phase.TUNING, setting(400), {"requests_in_system": 4.0}, MISSED),
    (Phase.TUNING, setting(400, 2), {}, Outcome(state=TrialState.FAILED, reason="no such clock")),
    (Phase.TUNING, setting(800, 2), {}, Outcome(state=TrialState.ABORTED, reason="paused by ann")),
    (Phase.TUNING, setting(800, 4), {}, Outcome(state=TrialState.CONTAMINATED, reason="foreign")),
    (Phase.TUNING, setting(600, 4), {}, SHORT),
    (Phase.CONFIRMING, setting(600), LOADED, completed(6.05, 111.0)),
    (Phase.CONFIRMING, setting(1000), LOADED, completed(10.0, 99.0)),
)
"""The trials of the holding study: every final state, and a window cut short for its limit."""


def fill(store: Store) -> None:
    """Fill an empty store, as a tuner would."""
    for found in DEVICES:
        store.devices.put(found)
    with patch("secrets.token_hex", lambda size: NONCE[: 2 * size]):
        _held(store)
        _stepped(store)
    for level, minute in ((Level.ORIGINAL, 0.0), (Level.TRIAL, 4.0)):
        store.devices.apply(replace(applied("sim@edge", level), at=at(minute)))
    store.devices.apply(
        Applied(
            device="sim@edge",
            setting=setting(600),
            level=Level.HOLD,
            at=at(32.0),
            study=HELD,
            revision=store.studies.get(HELD).revision,
        )
    )
    _log(store)
    _tokens(store)
    store.stops.order(FleetStop(at=at(50.0), who="ann", why="the fans are being cleaned"))
    store.stops.report("sim@edge", back=True)


def _held(store: Store) -> None:
    """Add the study that went from its baseline to a hold, with a pause."""
    made = study(
        Phase.BASELINE,
        ("latency_p99_ms <= 1.2x baseline", "tokens_per_j >= 0.5"),
        ("sim@edge",),
        id=HELD,
        policy="packrat",
        seed=7,
        quantities={"tokens_per_j": TOKENS_PER_J},
        signals=(SIGNAL,),
    )
    store.studies.add(made, "ann", "created")
    for number, (phase, where, load, outcome) in enumerate(TRIALS, 1):
        trial = _begun(store, made, where, phase, load, at(2.0 * number))
        if outcome.state is TrialState.CONTAMINATED:
            trial = store.trials.restart(HELD, number, at(2.0 * number + 0.5))
        _ended(store, made, trial, outcome, at(2.0 * number + 1.0))
    made = store.studies.revise(made.moved(Phase.TUNING), "tuner", "baseline known", at(5.0))
    made = store.studies.revise(made.moved(Phase.PAUSED), "ann", "lunch", at(15.0))
    made = store.studies.revise(made.resumed(), "ann", "", at(16.0))
    made = replace(made, constraints=(Constraint.parse("latency_p99_ms <= 1.2x baseline"),))
    made = store.studies.revise(made, "bob", "constraints changed", at(17.0))
    made = replace(made.moved(Phase.CONFIRMING, PLAN), phase_since=10)
    made = store.studies.revise(made, "tuner", "three loads were looked at", at(20.0))
    made = replace(made.moved(Phase.HOLDING, PLAN), phase_since=12)
    store.studies.revise(made, "tuner", "confirmed", at(30.0))
    for minute in (35.0, 36.0):
        store.observations.add_all(
            [
                Observation(
                    study=HELD,
                    device="sim@edge",
                    setting=setting(600),
                    measurement=replace(window(6.0, 109.0, context=LOADED), started_at=at(minute)),
                    at=at(minute + 0.25),
                )
            ]
        )


def _stepped(store: Store) -> None:
    """Add the continuous study, whose last trial is running under a lease."""
    made = study(
        Phase.TUNING,
        ("latency_p99_ms <= 120",),
        ("sim2@edge",),
        id=STEPPED,
        objective=Objective("energy_j"),
        terms=Terms(trials=6, window_s=10.0, max_window_s=30.0, mode=Mode.CONTINUOUS),
        created_at=at(40.0),
    )
    store.studies.add(made, "bob", "")
    baseline = _begun(store, made, setting(1000), Phase.BASELINE, {}, at(41.0))
    _ended(store, made, baseline, completed(10.0, 100.0), at(42.0))
    running = store.trials.begin(
        STEPPED, setting(800), Phase.TUNING, "one step down", at(43.0), LOADED
    )
    store.leases.grant("sim2@edge", STEPPED, running, f"{AGENT}/start-1", at(60.0))


def _begun(
    store: Store, of: Study, where: Setting, phase: Phase, load: Context, began: datetime
) -> Trial:
    return store.trials.begin(of.id, where, phase, f"{phase} at {dict(load)}", began, load)


def _ended(store: Store, of: Study, trial: Trial, outcome: Outcome, when: datetime) -> None:
    """End a trial by its agent's report, and store a second report that came too late."""
    (name,) = of.devices
    lease = store.leases.grant(name, of.id, trial, f"{AGENT}/start-1", when)
    report = Report(
        study=of.id,
        trial=trial.number,
        device=name,
        attempt=trial.attempt,
        token=lease.token,
        nonce=lease.nonce,
        outcome=outcome,
        received_at=when,
    )
    store.trials.report(report)
    store.trials.end(of.id, trial.number, outcome, when)
    store.leases.release(name, lease.token)
    if trial.number == 1:
        late = replace(outcome, reason="sent again")
        store.trials.report(
            replace(report, token=lease.token + 100, outcome=late, late=True, received_at=when)
        )


def _log(store: Store) -> None:
    for event in (
        Event(at=at(0.0), kind="tuner_started", text="version 0.1.0"),
        Event(at=at(30.0), kind="phase", text="holding: confirmed", study=HELD, device="sim@edge"),
        Event(at=at(50.0), kind="stop", text="stop-all by ann – “fans”"),
    ):
        store.events.add(event)


def _tokens(store: Store) -> None:
    def token(name: str, role: AccessRole, secret: str, **changes: Any) -> AccessToken:  # noqa: ANN401
        return AccessToken(
            name=name, role=role, digest=digest_of(secret), created_at=START, **changes
        )

    store.tokens.add(token("ann", AccessRole.OPERATOR, "ann's token"))
    store.tokens.add(token("bob", AccessRole.OPERATOR, "bob's token"))
    store.tokens.revoke("bob", at(45.0))
    store.tokens.add(token("enrol-1", AccessRole.ENROL, "used", expires_at=at(1440.0)))
    store.tokens.add(token(AGENT, AccessRole.AGENT, AGENT_TOKEN), using="enrol-1")
    store.tokens.add(token("enrol-2", AccessRole.ENROL, ENROL_TOKEN, expires_at=at(1440.0)))


def everything(store: Store) -> Mapping[str, object]:
    """Return the contents of a store by kind, as stored and as operators see them."""
    studies = store.studies.list()
    verbs = Operations(Loop(store, _no_policy, lambda: at(55.0)))
    tells: dict[str, Callable[[str], object]] = {
        "revisions": store.studies.revisions,
        "trials": store.trials.list,
        "observations": store.observations.list,
        "samples": store.trials.samples,
        "front": lambda name: pareto(store, name),
        "report": verbs.report,
    }
    of_each: dict[str, object] = {
        f"{what} of {study.id}": tell(study.id) for study in studies for what, tell in tells.items()
    }
    of_trials = dict[str, object]()
    for kept, trial in ((s, t) for s in studies for t in store.trials.list(s.id)):
        of = f"of trial {trial.number} of {kept.id}"
        of_trials[f"states {of}"] = trial_states(store, kept.id, trial.number)
        of_trials[f"reports {of}"] = store.trials.reports(kept.id, trial.number)
    of_devices = dict[str, object]()
    for found in store.devices.list():
        of_devices[f"applied of {found.id}"] = applied_to(store, found.id)
        of_devices[f"lease of {found.id}"] = store.leases.get(found.id)
        of_devices[f"observed of {found.id}"] = store.observations.observed(found.id, START, 9)
    return {
        "studies": studies,
        **of_each,
        **of_trials,
        "devices": store.devices.list(),
        **of_devices,
        "events": store.events.list(),
        "tokens": store.tokens.list(),
        "refusals": store.devices.refusals(),
        "audit": store.audit.list(),
        "deliveries": store.deliveries.list(),
        "replicas": store.replicas.list(),
        "budget groups": store.budgets.groups(),
        "budget members": store.budgets.members(),
        "stop": store.stops.current(),
        "releases": store.stops.released(),
        "history": history(store, HistoryQuestion()),
    }


def _no_policy(name: str) -> Any:  # noqa: ANN401
    raise AssertionError(f"nobody asks the policy {name} here")
