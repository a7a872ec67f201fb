"""Further frozen data of 0.3.0: raw samples, observed windows, released devices, clock ceilings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from db import Store
from tests.builders import setting, study, window
from tests.frozen.content import AGENT, LOADED, at, described
from tests.frozen.later import LATER_MESSAGES, MEMBER, RACK, fill_later
from tests.frozen.messages import MESSAGES
from tuner.core import (
    CapKnob,
    CeilingPower,
    FleetStop,
    Latencies,
    Measurement,
    MemberRecord,
    Observation,
    Outcome,
    Phase,
    TrialState,
    WindowSamples,
)
from tuner.wire import BudgetReport, HoldReport, Message, Registration, TrialReport

NAMED = "7e7e7e7e"
"""The study with a name, whose baseline has its raw values."""
WATCHED = "watched@edge"
SAMPLES = WindowSamples(
    clock_s=(100.0, 110.0),
    wall_s=(1.7e9, 1.7e9 + 10.0),
    seconds=(0.0, 5.0, 10.0),
    totals={"energy_j": (0.0, 40.5, 80.0), "items": (0.0, 250.0, 500.0)},
    ratios={"energy_j": ("energy_j", "items", 1.0)},
    latencies=Latencies(edges_ms=(50.0, 100.0), counts=(300, 195, 5)),
)
SAMPLED = Outcome(
    state=TrialState.COMPLETED,
    measurement=replace(
        window(10.0), samples=SAMPLES, sources={"one_witness": "energy_j: power is not sampled"}
    ),
)
CLOCK = CapKnob("gpu.clock_mhz", 600.0, default=1410.0, default_w=400.0)
CEILING = CeilingPower({CLOCK.name: 1000.0}, 250.5)


def _observed(minute: float) -> Measurement:
    return replace(window(6.0, context=LOADED), started_at=at(minute))


def fill_newer(store: Store) -> None:
    """Fill an empty store, as a tuner of 0.3.0 would."""
    fill_later(store)
    watched = replace(described(WATCHED), observed=True)
    for made in (watched, described("sim5@edge")):
        store.devices.put(made)
    store.observations.add_all(
        [
            Observation(
                study="",
                device=WATCHED,
                setting=setting(),
                measurement=_observed(minute),
                at=at(minute + 0.25),
            )
            for minute in (48.0, 49.0)
        ]
    )
    store.studies.add(
        study(Phase.BASELINE, (), ("sim5@edge",), id=NAMED, name="the night shift"), "ann", ""
    )
    store.trials.begin(NAMED, setting(1000), Phase.BASELINE, "baseline", at(49.0), {})
    store.trials.end(NAMED, 1, SAMPLED, at(50.0))
    store.stops.order(FleetStop(at=at(51.0), who="ann", why="a new fan", device="sim5@edge"))
    store.stops.report("sim5@edge", back=True)
    (event,) = RACK.events
    store.budgets.put_group(
        replace(RACK, name="clocks", reserve=0.2, declared=True, events=(replace(event, id="e-1"),))
    )
    store.budgets.put_member(
        MemberRecord(
            device="sim5@edge",
            knobs=(CLOCK,),
            power=MEMBER.power,
            group="clocks",
            admitted="clocks",
            ceilings=(CEILING,),
            exceeded=(replace(CEILING, watts=260.0),),
        )
    )
    store.budgets.put_member(replace(MEMBER, device="sim4@edge", group="", outside="clocks"))


def _newer_messages() -> dict[str, Message]:
    """Return messages with the fields that are new in 0.3.0."""
    trial, budget = MESSAGES["trial-report"], LATER_MESSAGES["budget-report"]
    held = MESSAGES["hold-report"]
    assert isinstance(trial, TrialReport)
    assert isinstance(budget, BudgetReport)
    return {
        "registration-of-an-observed-device": Registration(
            device=replace(described(WATCHED), observed=True)
        ),
        "observed-window": HoldReport(
            device=WATCHED, study="", revision=0, setting=setting(), measurement=_observed(50.0)
        ),
        "hold-report-of-a-time": held.model_copy(update={"speaks_s": 130.5}),
        "trial-report-with-samples": trial.model_copy(update={"outcome": SAMPLED}),
        "budget-report-of-a-clock": budget.model_copy(
            update={
                "agent": f"{AGENT}/start-2",
                "knobs": (CLOCK,),
                "above_w": 260.0,
                "above_at": dict(CEILING.at_most),
            }
        ),
    }


NEWER_MESSAGES: Mapping[str, Message] = {**LATER_MESSAGES, **_newer_messages()}
