"""The predictions for measured and unmeasured settings from the evidence of a study."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from tests.builders import asked, knob, setting, trial, window
from tuner.bo.beliefs import View, believe
from tuner.bo.encoding import Grid, enumerate_grid
from tuner.core import (
    Estimate,
    Kind,
    Limit,
    Measurement,
    MetricUnavailable,
    Objective,
    Phase,
    Quantity,
    Setting,
    Space,
    Study,
    Trial,
    Value,
    weigh,
)

CLOCKS = (500, 600, 700, 800, 900, 1000)
LADDER = Space((knob("gpu.clock_mhz", CLOCKS, 1000), knob("batch_size", (1,), 1)))
LATENCY = "latency_p99_ms"


@dataclass(frozen=True)
class Known:
    """The predictions by setting."""

    grid: Grid
    view: View

    def row(self, at: Setting) -> int:
        row = self.grid.row(at)
        assert row is not None
        return row

    def at(self, at: Setting, metric: str = "energy_j") -> tuple[float, float]:
        """Return the mean and deviation of a metric in its model's units, after the running trials."""
        place, column = self.view.where[metric]
        mixture = self.view.ahead.models[place].mixture
        mean, variance = (x[:, self.row(at), column] for x in (mixture.mean, mixture.variance))
        overall = float(mixture.weights @ mean)
        spread = float(mixture.weights @ (variance + (mean - overall) ** 2))
        return overall, float(np.sqrt(spread))

    def chance(self, at: Setting) -> float:
        return float(self.view.chance[self.row(at)])


def known(at: Study, trials: Sequence[Trial], running: Sequence[Setting] = ()) -> Known:
    evidence = weigh(at, trials)
    grid = enumerate_grid(at.space)
    return Known(grid, believe(at, evidence, grid, running))


def twice(at: Study, shown: Measurement) -> list[Trial]:
    return [trial(n, at.baseline, shown, phase=Phase.BASELINE) for n in (1, 2)]


def ladder(*constraints: str, **changes: object) -> Study:
    limits = constraints or (f"{LATENCY} <= 1.2x baseline",)
    return asked(20, space=LADDER, constraints=limits, **changes)


@pytest.mark.parametrize("unlimited", [0, False, "none"])
def test_a_request_limit_of_0_or_minus_1_gives_finite_predictions(unlimited: Value) -> None:
    at = asked(20, space=Space((knob("max_num_seqs", (unlimited, 16, 64), unlimited),)))
    view = known(at, twice(at, window(2.0, 100.0, rate=10.0))).view
    assert bool(torch.isfinite(view.cost).all())
    assert bool(torch.isfinite(view.chance).all())


def test_unmeasured_metrics_have_no_prediction() -> None:
    at = ladder("accuracy >= 0.5")
    with pytest.raises(MetricUnavailable, match="accuracy"):
        known(at, twice(at, window()))


def test_a_doubtful_limit_near_zero_is_as_doubtful_as_its_baseline() -> None:
    """The limit is 1.5 × (1.0 ± 0.14) dropped requests: 0 keeps it surely, however wrong the reading."""
    at = ladder("dropped <= 1.5x baseline")

    def shown(energy_j: float, dropped: float, stderr: float) -> Measurement:
        return window(energy_j, extra={"dropped": Estimate.of_mean(dropped, stderr, 50)})

    start = twice(at, shown(10.0, 1.0, 0.2))
    none, many = shown(6.0, 0.0, 0.01), shown(7.0, 100.0, 1.0)
    search = known(at, [*start, trial(3, setting(500), none), trial(4, setting(600), many)])
    assert search.chance(setting(500)) > 0.95
    assert search.chance(setting(600)) < 0.05


def test_a_multiple_of_the_baseline_is_one_where_no_logarithm_is_taken_either() -> None:
    at = ladder("dropped <= 1.5x baseline")
    counts = {500: 0.0, 600: 2.8, 700: 3.2}

    def shown(dropped: float) -> Measurement:
        return window(extra={"dropped": Estimate.of_mean(dropped, 0.01, 50)})

    seen = [trial(n, setting(mhz), shown(d)) for n, (mhz, d) in enumerate(counts.items(), 3)]
    search = known(at, [*twice(at, shown(2.0)), *seen])
    assert [round(search.chance(setting(mhz))) for mhz in (*counts, 1000)] == [1, 1, 0, 1]
    model = search.view.models[search.view.where["dropped"][0]]
    over = model.weights @ model.mean[:, search.row(setting(700)), model.margins[0]]
    assert float(over) == pytest.approx((3.2 - 1.5 * 2.0) / 2.0, rel=0.05), (
        "a share of the baseline"
    )


def test_the_baseline_is_surely_as_good_as_itself_however_badly_it_was_measured() -> None:
    """An absolute limit is a different case."""
    relative, absolute = (ladder(f"energy_j <= {bound}") for bound in ("1.05x baseline", "10.5"))
    shown = window(10.0, relative=0.2)
    assert known(relative, twice(relative, shown)).chance(setting()) > 0.999
    assert known(absolute, twice(absolute, shown)).chance(setting()) < 0.9


def test_a_window_that_was_cut_short_is_doubted() -> None:
    at, limit = ladder(), Limit(LATENCY, "<=", 120.0)
    start = twice(at, window())
    whole = known(at, [*start, trial(3, setting(500), window(8.0, 160.0))])
    cut = known(at, [*start, trial(3, setting(500), window(8.0, 160.0), broke=limit)])
    assert cut.at(setting(500), LATENCY)[1] > 3.0 * whole.at(setting(500), LATENCY)[1]


def accuracies(*falls: float) -> Known:
    """Return the predictions of a study that may lose at most 1.5 % of its accuracy.

    `falls` are the measured losses of the lowest clocks, as shares.
    """
    at = ladder("accuracy >= 0.985x baseline")

    def shown(accuracy: float) -> Measurement:
        return window(extra={"accuracy": Estimate.of_mean(accuracy, 0.0005, 1000)})

    seen = [
        trial(n, setting(mhz), shown(0.8 * (1.0 - fall)))
        for n, (mhz, fall) in enumerate(zip(CLOCKS, falls, strict=False), 3)
    ]
    return known(at, [*twice(at, shown(0.8)), *seen])


def test_a_metric_that_varies_by_permille_keeps_a_limit_of_a_percent() -> None:
    """Its chance would be one half if it moved as times do. This holds before the first trial, too."""
    sure = accuracies(0.001, -0.001, 0.0005)
    assert min(sure.chance(setting(mhz)) for mhz in (800, 900)) > 0.95
    assert accuracies().chance(setting(500)) < 0.95


def test_a_strongly_varying_metric_is_not_treated_as_nearly_constant() -> None:
    moved = accuracies(0.2, 0.001)
    assert (
        moved.at(setting(800), "accuracy")[1]
        > 3.0 * accuracies(0.001, 0.001).at(setting(800), "accuracy")[1]
    )
    assert accuracies(0.2, 0.15, 0.1).chance(setting(800)) < 0.5


def test_a_row_without_an_effect_leaves_doubt_about_the_others() -> None:
    doubts = [accuracies(*[0.0] * n).at(setting(900), "accuracy")[1] for n in (0, 1, 3)]
    assert doubts[0] > doubts[1] > doubts[2]


def repeats(spread: float, stated: float, count: int = 4) -> Known:
    """Return the predictions after this many windows of each of four clocks, with this scatter."""
    at, source = ladder(), np.random.default_rng(7)
    trials: list[Trial] = []
    for mhz in (1000, 900, 700, 500):
        for _ in range(count):
            error = 1.0 + spread * source.standard_normal()
            shown = window(error * mhz / 100.0, 1e5 / mhz, relative=stated)
            phase = Phase.BASELINE if mhz == 1000 else Phase.TUNING
            trials.append(trial(len(trials) + 1, setting(mhz), shown, phase=phase))
    return known(at, trials)


def test_reported_errors_that_are_too_small_are_noticed_from_repeats() -> None:
    """Windows that scatter three times as much as their errors count with a third of their certainty."""
    honest, bold, agreeing = repeats(0.02, 0.02), repeats(0.02, 0.006), repeats(0.006, 0.006)
    for mhz in (1000, 700, 500):
        right, wrong, exact = (k.at(setting(mhz))[1] for k in (honest, bold, agreeing))
        assert exact < 0.6 * wrong
        assert wrong == pytest.approx(right, rel=0.35)


def test_without_repeats_reported_errors_are_believed() -> None:
    sure, vague = (repeats(0.0, stated, count=1).at(setting())[1] for stated in (0.006, 0.02))
    assert sure == pytest.approx(0.006, rel=0.1)
    assert vague == pytest.approx(0.02, rel=0.1)


def test_the_doubt_is_about_the_metric_whose_windows_disagree() -> None:
    bold, agreeing = repeats(0.02, 0.006), repeats(0.006, 0.006)
    for mhz in (1000, 500):
        one, other = (k.at(setting(mhz), LATENCY)[1] for k in (bold, agreeing))
        assert one == pytest.approx(other, rel=0.05)


def started() -> tuple[Study, list[Trial]]:
    at = ladder()
    shown = [trial(3, setting(900), window(9.0, 105.0)), trial(4, setting(800), window(8.2, 111.0))]
    return at, [*twice(at, window()), *shown]


def test_running_trials_reduce_uncertainty_without_moving_the_mean() -> None:
    at, trials = started()
    free, pending = known(at, trials), known(at, trials, [setting(600)])
    for metric in ("energy_j", LATENCY):
        for mhz, share in ((600, 0.5), (500, 0.95), (700, 0.95)):
            before, after = (k.at(setting(mhz), metric) for k in (free, pending))
            assert after[1] < share * before[1]
            assert after[0] == pytest.approx(before[0], abs=0.2 * before[1])


def test_while_a_trial_runs_another_setting_is_worth_trying() -> None:
    at, trials = started()
    free = known(at, trials)
    best = float(free.view.cost[list(free.view.measured)].min())
    promised = free.view.gain(best)
    row = int(promised.argmax())
    pending = known(at, trials, [free.grid.settings[row]])
    assert float(pending.view.ahead.gain(best)[row]) < float(promised[row])
    assert pending.view.measured.keys() == free.view.measured.keys()


def test_running_settings_outside_the_space_change_nothing() -> None:
    at, trials = started()
    free, pending = known(at, trials), known(at, trials, [setting(123)])
    assert torch.equal(free.view.cost, pending.view.cost)
    assert torch.equal(free.view.chance, pending.view.chance)


def test_a_repeated_running_setting_is_equally_certain() -> None:
    at, trials = started()
    free, pending = known(at, trials), known(at, trials, [setting(800)])
    assert pending.at(setting(800))[1] < free.at(setting(800))[1]


def score(maximized: bool) -> View:
    """Return the predictions if a score is maximised, or its inverse minimised."""
    quantity = {"score": Quantity("", kind=Kind.RATE if maximized else Kind.TIME)}
    limit = f"score {'>=' if maximized else '<='} {0.8 if maximized else 1.0 / 0.8!r}x baseline"
    aim = Objective("score", "maximize" if maximized else "minimize")
    at = ladder(limit, f"{LATENCY} <= 1.2x baseline", objective=aim, quantities=quantity)

    def shown(value: float, latency_ms: float) -> Measurement:
        value = value if maximized else 1.0 / value
        return window(10.0, latency_ms, extra={"score": Estimate(value, 0.01 * value)})

    seen = [trial(3, setting(900), shown(5.5, 104.0)), trial(4, setting(600), shown(7.0, 130.0))]
    return known(at, [*twice(at, shown(5.0, 100.0)), *seen]).view


def test_maximizing_mirrors_minimizing() -> None:
    up, down = score(maximized=True), score(maximized=False)
    assert torch.allclose(up.cost, down.cost, atol=1e-6)
    assert torch.allclose(up.cost_sd, down.cost_sd, atol=1e-6)
    assert torch.allclose(up.chance, down.chance, atol=1e-6)
    assert torch.allclose(up.gain(-0.1), down.gain(-0.1), atol=1e-6)
    assert float(up.cost[CLOCKS.index(600)]) < -0.2


def test_predictions_are_in_the_metrics_own_units() -> None:
    at, trials = started()
    search = known(at, trials)
    predicted = search.view.predicted(search.row(setting(800)))
    assert predicted["energy_j"].mean == pytest.approx(8.2, rel=0.02)
    assert predicted[LATENCY].mean == pytest.approx(111.0, rel=0.02)
    assert 0.0 < predicted["energy_j"].sd < 0.2


def test_the_objectives_model_comes_first() -> None:
    """Although physics links other metrics, an accuracy has a separate model."""
    aim = Objective("accuracy", "maximize")
    at = ladder(f"{LATENCY} <= 1.2x baseline", "energy_j <= 12", objective=aim)
    shown = window(extra={"accuracy": Estimate.of_mean(0.8, 0.0005, 1000)})
    view = known(at, twice(at, shown)).view
    assert view.where == {"accuracy": (0, 0), LATENCY: (1, 0), "energy_j": (1, 1)}
    assert [model.margins.start for model in view.models] == [1, 0]
    assert [len(model.margins) for model in view.models] == [0, 2]
