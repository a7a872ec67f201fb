"""Fine-tuning beside inference is admitted only if the SLO is kept with certainty."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import pytest

from agents.devices.simulated.noise import quantile_factor
from agents.devices.simulated.presets import ORIN, TX2, Preset
from policies.polythrottle.admission import (
    LEAST_FREEDOM,
    NOTHING,
    Admission,
    Demand,
    Mix,
    MixWindow,
    admit,
    predict,
)
from tuner.core import Estimate, InvalidInput, Limit, MeasurementError

INFERENCE = Demand(7.0, 26.0)
JOBS = (NOTHING, Demand(60.0, 40.0), Demand(200.0, 40.0), Demand(120.0, 15.0), Demand(200.0, 80.0))
BATCHES = (4, 8, 16)


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


@dataclass(frozen=True)
class Board:
    """A board's physics: an inference and one step of a job in turn, at its peak rates."""

    preset: Preset
    flop_per_s: float
    bytes_per_s: float

    @property
    def inference(self) -> Demand:
        work = self.preset.work("efficientnet")
        flop = work.compute_ms / 1000.0 * self.flop_per_s
        return Demand(flop / 1e9, flop / (work.memory_ms / 1000.0 * self.bytes_per_s))

    def p99_ms(self, mix: Mix) -> float:
        work, beside = self.preset.work("efficientnet"), mix.beside
        moved = beside.gflop / beside.flop_per_byte if beside.gflop else 0.0
        both = replace(
            work,
            compute_fixed_ms=work.compute_fixed_ms + 1e12 * beside.gflop / self.flop_per_s,
            memory_fixed_ms=work.memory_fixed_ms + 1e12 * moved / self.bytes_per_s,
        )
        point = self.preset.point({**self.preset.space.default, "batch_size": mix.batch})
        return 1000.0 * self.preset.chip.settled(both, point)[0].step_s * quantile_factor(0.99)

    def windows(self, jobs: tuple[Demand, ...], rng: random.Random) -> list[MixWindow]:
        """Return a window of every batch size beside every job, each with an error of 1 %."""
        mixes = [Mix(self.inference, batch, job) for batch in BATCHES for job in jobs]
        means = [self.p99_ms(mix) * rng.gauss(1.0, 0.01) for mix in mixes]
        errors = [Estimate.of_mean(mean, 0.01 * mean, 500) for mean in means]
        return [MixWindow(mix, error) for mix, error in zip(mixes, errors, strict=True)]


BOARDS = {"tx2": Board(TX2, 0.666e12, 59.7e9), "orin": Board(ORIN, 5.33e12, 204.8e9)}


@pytest.mark.parametrize("name", BOARDS)
@pytest.mark.parametrize("seed", range(3))
def test_admitted_fine_tuning_truly_keeps_the_slo(name: str, seed: int) -> None:
    board, rng = BOARDS[name], random.Random(seed)
    scale = board.flop_per_s / BOARDS["tx2"].flop_per_s
    jobs = tuple(Demand(j.gflop * scale, j.flop_per_byte) for j in JOBS)
    windows = board.windows(jobs, rng)
    admitted = refused = 0
    for _ in range(300):
        demand = Demand(rng.uniform(60.0, 200.0) * scale, rng.uniform(15.0, 80.0))
        mix = Mix(board.inference, rng.choice(BATCHES), demand)
        truth = board.p99_ms(mix)
        slo = Limit("latency_p99_ms", "<=", truth * rng.uniform(0.9, 1.5))
        answer = admit(windows, mix, slo, running=False)
        admitted += answer.admitted
        refused += not answer.admitted
        assert not answer.admitted or truth <= slo.value
    assert admitted >= 30
    assert refused >= 30
