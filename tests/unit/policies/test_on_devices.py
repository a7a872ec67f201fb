"""The savings of the policies on devices with known true values, with the loop's own steps."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import pytest

from agents.devices.catalogue import known_truth, open_device, oracle
from agents.target.side import Side
from policies import load_policy
from tests.builders import START, past, study
from tuner.core import (
    Limit,
    Measurement,
    Outcome,
    Phase,
    Setting,
    Study,
    Terms,
    Trial,
    TrialState,
    setting_key,
)
from tuner.study.lifecycle import next_step
from tuner.study.moves import Assign, Move

WINDOW_S = 10.0


@dataclass
class Bench:
    """One device tuned by one policy, without agent or network, until something is held."""

    spec: str
    policy: str
    seed: int
    metric: str = "latency_p99_ms"
    slack: float = 1.2
    trials: list[Trial] = field(default_factory=list)

    def __post_init__(self) -> None:
        truth = known_truth(self.spec)
        assert truth is not None
        self.truth = truth
        self.device = open_device(self.spec, seed=self.seed, state_dir=None)
        self.start = self.truth(self.device.space.default)
        self.limit = Limit(self.metric, "<=", self.slack * self.start[self.metric])

    def hold(self) -> Setting:
        """Tune to the end and return what is held."""
        at = study(
            Phase.BASELINE,
            constraints=(f"{self.metric} <= {self.slack}x baseline",),
            space=self.device.space,
            seed=self.seed,
            terms=Terms(trials=20),
        )
        policy = load_policy(self.policy)
        while at.phase is not Phase.HOLDING:
            step = next_step(past(at, self.trials), policy)
            if isinstance(step, Move):
                moved = at.moved(step.phase, step.plan)
                at = replace(moved, phase_since=len(self.trials) + 1)
            else:
                assert isinstance(step, Assign), step
                self.trials.append(self.measured(at, step.setting))
        assert at.plan is not None
        return at.plan.rows[0].setting

    def measured(self, at: Study, setting: Setting) -> Trial:
        number = len(self.trials) + 1
        begun = Trial(number=number, setting=setting, phase=at.phase, started_at=START)
        window = measure(self.device, setting)
        state = TrialState.COMPLETED if window is not None else TrialState.FAILED
        ended = START + timedelta(seconds=number * WINDOW_S)
        return begun.ended(Outcome(state=state, measurement=window), ended)

    def captured(self, setting: Setting) -> float:
        """Return a setting's true saving as a share of the largest one."""
        best = oracle(self.device.space, self.truth, study().objective, [self.limit])
        assert best is not None
        most = self.start["energy_j"] - self.truth(best)["energy_j"]
        return (self.start["energy_j"] - self.truth(setting)["energy_j"]) / most


def measure(device: Side, setting: Setting) -> Measurement | None:
    """Return one window on the device's own time; None if it failed."""
    assert device.clock is not None
    device.actuator.apply(setting)
    device.clock.sleep(device.settle_s)
    window = device.meter.start()
    device.clock.sleep(WINDOW_S)
    names = {m.name for m in device.metrics}
    shown = {name: e for name, e in window.stop().estimates.items() if name in names}
    if "energy_j" not in shown:
        return None
    return Measurement(estimates=shown, started_at=START, seconds=WINDOW_S)


@pytest.mark.parametrize("spec", ["simulated:a100", "simulated:orin"])
def test_polythrottle_captures_most_of_the_possible_saving_and_sobol_less(spec: str) -> None:
    shares = {}
    for policy in ("polythrottle", "sobol"):
        bench = Bench(spec, policy, seed=0)
        held = bench.hold()
        assert bench.limit.holds(bench.truth(held)["latency_p99_ms"])
        shares[policy] = bench.captured(held)
    assert shares["polythrottle"] >= 0.8
    assert shares["sobol"] < shares["polythrottle"]


def test_after_a_crash_the_same_steps_come_out() -> None:
    whole = Bench("simulated:orin", "polythrottle", 3)
    whole.hold()
    tuning = [t for t in whole.trials if t.phase is Phase.TUNING]
    cut = tuning[6].number
    at = replace(study(), space=whole.device.space, seed=3, terms=Terms(trials=20))
    step = next_step(past(at, whole.trials[: cut - 1]), load_policy("polythrottle"))
    assert isinstance(step, Assign)
    assert setting_key(step.setting) == setting_key(tuning[6].setting)


@pytest.mark.surfaces
@pytest.mark.parametrize("surface", ["zeus_nsdi23.csv", "perseus_sosp24.csv"])
def test_on_measured_tables_nothing_above_the_limit_is_held(surface: str) -> None:
    beside = Path(__file__).parents[3].parent / "shared" / "data" / "surfaces"
    folder = Path(os.environ.get("JOULETUNE_SURFACES", beside))
    if not folder.is_dir():
        pytest.skip("no measured surfaces: set JOULETUNE_SURFACES to their folder")
    rows = (folder / surface).read_text(encoding="utf-8").splitlines()[1:]
    name = rows[0].split(",")[0]
    bench = Bench(f"replay:{folder / surface}#{name}", "polythrottle", 0, "latency_ms", 1.25)
    held = bench.hold()
    assert bench.limit.holds(bench.truth(held)["latency_ms"])
    assert bench.captured(held) > 0.5
