"""Fine-tuning beside inference is admitted only if the SLO is kept with certainty."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from agents.devices.simulated import FineTuning, SimulatedDevice, attach
from agents.devices.simulated.noise import quantile_factor
from agents.devices.simulated.presets import PRESETS
from agents.target.side import Side
from policies.polythrottle.admission import (
    LEAST_FREEDOM,
    NOTHING,
    Admission,
    Demand,
    Mix,
    MixWindow,
    admit,
    predict,
    samples,
)
from tests.builders import START, setting, trial, window
from tuner.core import (
    Estimate,
    InvalidInput,
    Limit,
    Measurement,
    MeasurementError,
    Observation,
    Setting,
    Trial,
    TrialState,
)

INFERENCE = Demand(7.0, 26.0)
JOBS = (NOTHING, Demand(60.0, 40.0), Demand(200.0, 40.0), Demand(120.0, 15.0), Demand(200.0, 80.0))
BATCHES = (4, 8, 16)
SLO = Limit("latency_p99_ms", "<=", 250.0)


def law(mix: Mix) -> float:
    """Return the latency of a device that follows the model exactly."""
    beside = mix.beside
    return 20.0 + 12.0 * mix.batch + 1.8 * beside.gflop - 0.3 * beside.flop_per_byte


def seen(noise: float = 0.0, jobs: tuple[Demand, ...] = JOBS) -> list[MixWindow]:
    rng = random.Random(0)
    mixes = [Mix(INFERENCE, batch, job) for batch in BATCHES for job in jobs]
    return [
        MixWindow(m, Estimate.of_mean(law(m) + rng.gauss(0.0, noise), noise, 500)) for m in mixes
    ]


def test_a_linear_law_is_found_exactly() -> None:
    mix = Mix(INFERENCE, 8, Demand(100.0, 50.0))
    predicted = predict(seen(), mix)
    assert predicted.mean == pytest.approx(law(mix))
    assert predicted.stderr == pytest.approx(0.0, abs=1e-6)


def test_the_bound_covers_a_further_window_at_about_its_stated_rate() -> None:
    mix = Mix(INFERENCE, 8, Demand(150.0, 40.0))
    covered = 0
    for seed in range(400):
        rng = random.Random(seed)
        noisy = [
            MixWindow(s.mix, Estimate.of_mean(s.latency.mean + rng.gauss(0.0, 5.0), 0.0, 500))
            for s in seen()
        ]
        covered += law(mix) + rng.gauss(0.0, 5.0) <= predict(noisy, mix).high
    assert 0.92 <= covered / 400 <= 0.98


def test_the_windows_own_errors_are_included() -> None:
    agreeing = [MixWindow(s.mix, Estimate.of_mean(s.latency.mean, 6.0, 500)) for s in seen()]
    assert predict(agreeing, Mix(INFERENCE, 8, NOTHING)).stderr > 6.0


@pytest.mark.parametrize(
    ("windows", "mix", "reason"),
    [
        ([], Mix(INFERENCE, 8, JOBS[1]), "no window"),
        (seen()[:5], Mix(INFERENCE, 4, JOBS[1]), "too few: 1 more"),
        (seen(jobs=JOBS[:1]), Mix(INFERENCE, 8, JOBS[1]), "mix of this size"),
        (seen(), Mix(INFERENCE, 8, Demand(260.0, 40.0)), "mix of this size"),
        (seen(), Mix(INFERENCE, 32, JOBS[1]), "mix of this size"),
        (seen(jobs=JOBS[:2]), Mix(INFERENCE, 8, Demand(60.0, 20.0)), "vary the features"),
        (seen(), Mix(Demand(14.0, 26.0), 8, JOBS[1]), "mix of this size"),
    ],
)
def test_a_mix_without_evidence_is_not_predicted_and_not_admitted(
    windows: list[MixWindow], mix: Mix, reason: str
) -> None:
    with pytest.raises(MeasurementError, match=reason):
        predict(windows, mix)
    answer = admit(windows, mix, Limit("latency_p99_ms", "<=", 1e9), running=False)
    assert not answer.admitted
    assert reason in answer.why


def test_a_prediction_needs_windows_to_spare() -> None:
    alike = [MixWindow(Mix(INFERENCE, 8, NOTHING), Estimate.of_mean(100.0, 1.0, 500))]
    mix = alike[0].mix
    with pytest.raises(MeasurementError, match="too few"):
        predict(alike * LEAST_FREEDOM, mix)
    assert predict(alike * (LEAST_FREEDOM + 1), mix).mean == pytest.approx(100.0)


def test_the_upper_bound_decides_not_the_mean() -> None:
    mix = Mix(INFERENCE, 8, Demand(75.0, 40.0))
    predicted = predict(seen(noise=5.0), mix)
    between = Limit("latency_p99_ms", "<=", (predicted.mean + predicted.high) / 2.0)
    above = Limit("latency_p99_ms", "<=", predicted.high + 0.1)
    assert not admit(seen(noise=5.0), mix, between, running=False).admitted
    answer = admit(seen(noise=5.0), mix, above, running=False)
    assert answer.admitted
    assert answer.predicted == predicted


def test_no_fine_tuning_starts_while_another_runs() -> None:
    answer = admit(seen(), Mix(INFERENCE, 8, JOBS[1]), Limit("x", "<=", 1e9), running=True)
    assert answer == Admission(False, answer.why)
    assert "another fine-tuning request" in answer.why


@pytest.mark.parametrize("figure", [-1.0, float("nan"), float("inf")])
def test_an_absurd_demand_is_refused(figure: float) -> None:
    with pytest.raises(InvalidInput, match="finite numbers"):
        Demand(figure, 1.0)


def beside(share: float, gflop: float = 60.0) -> Measurement:
    figures = {
        "finetuning_share": share,
        "finetuning_gflop": gflop,
        "finetuning_flop_per_byte": 40.0,
    }
    return window(extra={name: Estimate.of_mean(value, 0.0) for name, value in figures.items()})


def test_only_windows_with_their_work_are_used() -> None:
    unbounded = window(extra={"latency_p99_ms": Estimate(100.0, 1.0, 10, 90.0)})
    taken = samples(
        [
            trial(1, setting(1000, 1)),
            trial(2, setting(1000, 2), beside(1.0)),
            trial(3, setting(800, 2), beside(1.0)),  # other clocks
            trial(4, setting(1000, 2), beside(0.5)),  # only part of the time
            trial(5, setting(1000, 2), unbounded),
            trial(6, setting(1000, 2), state=TrialState.CONTAMINATED),
            trial(7, setting(1000, 2), state=TrialState.RUNNING),
            trial(8, setting(1000, 2), beside(1.0), broke=SLO),
            Observation(
                study="s", device="d", setting=setting(1000, 4), measurement=beside(1.0), at=START
            ),
        ],
        INFERENCE,
        setting(1000, 4),
    )
    assert [s.mix for s in taken] == [
        Mix(INFERENCE, 1),
        Mix(INFERENCE, 2, Demand(60.0, 40.0)),
        Mix(INFERENCE, 4, Demand(60.0, 40.0)),
    ]


@dataclass
class Board:
    """A simulated board that serves, with windows of a study beside fine-tuning."""

    preset: str = "tx2"
    seed: int = 0
    device: SimulatedDevice = field(init=False)
    side: Side = field(init=False)
    inference: Demand = field(init=False)

    def __post_init__(self) -> None:
        preset = PRESETS[self.preset]
        self.device = SimulatedDevice(preset, "efficientnet", seed=self.seed)
        self.side = attach(self.device)
        flop, intensity = preset.roof.demand(self.device.work)
        self.inference = Demand(flop / 1e9, intensity)
        self.device.sleep(120.0)

    @property
    def held(self) -> Setting:
        return self.device.read()

    def job(self, demand: Demand, steps: int) -> FineTuning:
        return FineTuning(flop=demand.gflop * 1e9, intensity=demand.flop_per_byte, steps=steps)

    def profiled(self, jobs: tuple[Demand, ...], seconds: float = 30.0) -> list[Trial]:
        """Return complete windows at every batch size and beside every job."""
        trials: list[Trial] = []
        for batch in BATCHES:
            for demand in jobs:
                self.device.apply({"batch_size": batch})
                if demand != NOTHING:
                    self.device.fine_tune(self.job(demand, 10**6))
                trials.append(trial(len(trials) + 1, self.held, self.window(seconds)))
                self.device.fine_tuning = None
        self.device.apply({"batch_size": 8})
        return trials

    def window(self, seconds: float) -> Measurement:
        self.device.sleep(2.0)
        opened = self.side.meter.start()
        self.device.sleep(seconds)
        return Measurement(estimates=opened.stop().estimates, started_at=START, seconds=seconds)

    def truth(self, mix: Mix) -> float:
        """Return the true p99 latency of a mix."""
        preset = self.device.preset
        work = self.device.work
        if mix.beside != NOTHING:
            work = preset.roof.shared(work, self.job(mix.beside, 1))
        pace, _ = preset.chip.settled(work, preset.point({**self.held, "batch_size": mix.batch}))
        return 1000.0 * pace.step_s * quantile_factor(0.99)


REQUEST = Demand(200.0, 40.0)
"""About a training step of a ResNet-50 on eight images: three times forward, 8 GFLOP each."""


def test_fine_tuning_waits_until_the_slo_allows_it_and_then_comes_one_after_another() -> None:
    """PolyThrottle, appendix D: 60 s of requests, SLO 250 ms for 30 s, then 700 ms."""
    board = Board()
    windows = samples(board.profiled(JOBS), board.inference, board.held)
    assert len(windows) == len(JOBS) * len(BATCHES)
    mix = Mix(board.inference, 8, REQUEST)
    began = board.device.monotonic()
    starts: list[float] = []
    ends: list[float] = []
    refusals: dict[str, float] = {}
    latencies: list[tuple[float, float, float]] = []
    while (now := board.device.monotonic() - began) < 60.0:
        slo = Limit("latency_p99_ms", "<=", 250.0 if now < 30.0 else 700.0)
        running = board.device.fine_tuning is not None
        answer = admit(windows, mix, slo, running=running)
        if answer.admitted:
            board.device.fine_tune(board.job(REQUEST, 8))
            starts.append(now)
        else:
            refusals[answer.why] = now
        heard: list[float] = []
        board.device.listen(heard)
        board.device.sleep(0.5)
        board.device.unlisten(heard)
        if (answer.admitted or running) and board.device.fine_tuning is None:
            ends.append(board.device.monotonic() - began)
        latencies += [(now, slo.value, latency) for latency in heard]
    assert starts and min(starts) >= 30.0
    assert len(starts) >= 5
    assert all(end <= start for end, start in zip(ends, starts[1:], strict=False))
    assert len(ends) >= len(starts) - 1
    for value in (250.0, 700.0):
        half = sorted(latency for _, slo, latency in latencies if slo == value)
        assert len(half) >= 299
        assert half[int(0.99 * len(half))] <= value
    assert any("the limit is 250" in why for why in refusals)


def test_had_it_been_admitted_the_tighter_slo_would_have_been_broken() -> None:
    board = Board()
    board.device.fine_tune(board.job(REQUEST, 10**6))
    shown = board.window(60.0).estimates["latency_p99_ms"]
    assert SLO.verdict(shown).value == "infeasible"


@pytest.mark.parametrize("preset", ["tx2", "orin"])
@pytest.mark.parametrize("seed", range(3))
def test_admitted_fine_tuning_truly_keeps_the_slo(preset: str, seed: int) -> None:
    board = Board(preset, seed)
    scale = 1.0 if preset == "tx2" else PRESETS["orin"].roof.flop_per_s / 0.666e12
    jobs = tuple(Demand(j.gflop * scale, j.flop_per_byte) for j in JOBS)
    windows = samples(board.profiled(jobs, 40.0), board.inference, board.held)
    rng = random.Random(seed)
    admitted = refused = 0
    for _ in range(300):
        demand = Demand(rng.uniform(60.0, 200.0) * scale, rng.uniform(15.0, 80.0))
        mix = Mix(board.inference, rng.choice(BATCHES), demand)
        truth = board.truth(mix)
        slo = Limit("latency_p99_ms", "<=", truth * rng.uniform(0.9, 1.5))
        answer = admit(windows, mix, slo, running=False)
        admitted += answer.admitted
        refused += not answer.admitted
        assert not answer.admitted or truth <= slo.value
    assert admitted >= 30
    assert refused >= 30
