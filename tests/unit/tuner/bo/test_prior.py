"""The predictions before any measurement."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.builders import knob
from tuner.bo.encoding import Grid, enumerate_grid
from tuner.bo.prior import Hypothesis, no_law, physical_hypotheses, power_laws
from tuner.core import Kind, Space

CLOCK = knob("gpu.clock_mhz", (600, 800, 1000, 1200), 1000)
BATCH = knob("batch_size", (1, 2, 4), 2)
MODE = knob("mode", ("eager", "graph"), "graph")
GRID = enumerate_grid(Space((CLOCK, BATCH, MODE)))
CLOCKS = enumerate_grid(Space((CLOCK,)))
UNBATCHED = enumerate_grid(Space((CLOCK, MODE)))
BASELINE = GRID.settings.index({"gpu.clock_mhz": 1000, "batch_size": 2, "mode": "graph"})
ROWS = len(GRID.settings)
KINDS = (Kind.ENERGY, Kind.TIME)


def believed() -> tuple[Hypothesis, ...]:
    return physical_hypotheses(GRID, KINDS)


def covariance(features: Tensor) -> Tensor:
    return features.T @ features


def test_every_hypothesis_covers_every_metric_at_every_row() -> None:
    for priors, metrics in ((believed(), len(KINDS)), (no_law(GRID), 1)):
        for prior in priors:
            assert prior.centres.shape[1] == prior.features.shape[1] == metrics * ROWS
            assert prior.centres.dtype == prior.features.dtype == torch.float64
            assert bool(torch.isfinite(prior.centres).all())
            assert bool(torch.isfinite(prior.features).all())


def test_at_the_baseline_no_prior_differs_from_it() -> None:
    for priors, metrics in ((believed(), len(KINDS)), (no_law(GRID), 1)):
        for prior in priors:
            at = [place * ROWS + BASELINE for place in range(metrics)]
            assert float(prior.centres[:, at].abs().max()) < 1e-9
            assert float(prior.features[:, at].square().sum()) < 1e-9


def test_a_metric_with_an_unknown_name_follows_no_law() -> None:
    (only,) = no_law(GRID)
    assert not only.centres.any()
    assert not only.features.numel()


@pytest.mark.parametrize(
    ("grid", "kinds"),
    [
        (UNBATCHED, (Kind.ENERGY, Kind.TIME)),
        (GRID, (Kind.ENERGY, Kind.POWER)),
        (GRID, (Kind.ENERGY, Kind.RATE)),
    ],
)
def test_only_a_time_beside_a_batch_may_be_an_items_or_a_batchs(
    grid: Grid, kinds: tuple[Kind, ...]
) -> None:
    assert len(physical_hypotheses(grid, kinds)) < len(believed())


def test_a_larger_batch_may_make_a_time_longer_or_shorter() -> None:
    at = ROWS + GRID.settings.index({"gpu.clock_mhz": 1000, "batch_size": 4, "mode": "graph"})
    laws = [p.centres[:, at].mean() for p in believed() if len(p.centres) > 1]
    assert float(min(laws)) < -0.1
    assert float(max(laws)) > 0.1


def test_in_every_law_energy_is_power_times_time() -> None:
    for prior in physical_hypotheses(GRID, (Kind.ENERGY, Kind.POWER, Kind.RATE)):
        energy, power, rate = prior.centres.reshape(-1, 3, ROWS).unbind(dim=1)
        assert torch.allclose(energy, power - rate, atol=1e-9)


def test_power_laws_are_sure_near_the_baseline_and_vague_far_away() -> None:
    clocks = enumerate_grid(Space((knob("gpu.clock_mhz", (250, 500, 900, 1000), 1000),)))
    spread = power_laws(clocks, 1).square().sum(dim=0)
    assert spread.tolist() == sorted(spread, reverse=True)
    assert float(spread[0]) > 10.0 * float(spread[2])
    assert float(spread[-1]) == 0.0


def test_power_laws_of_several_metrics_know_nothing_of_each_other() -> None:
    shared = covariance(power_laws(GRID, 2))
    assert not shared[:ROWS, ROWS:].any()
    one = covariance(power_laws(GRID, 1))
    assert torch.equal(shared[:ROWS, :ROWS], one)
    assert torch.equal(shared[ROWS:, ROWS:], one)


def test_a_space_of_one_setting_has_no_uncertainty() -> None:
    alone = enumerate_grid(Space((knob("gpu.clock_mhz", (1000,), 1000),)))
    assert power_laws(alone, 2).shape == (0, 2)
    for prior in (*physical_hypotheses(alone, KINDS), *no_law(alone)):
        assert float(prior.centres.abs().max()) < 1e-9
        assert not prior.features.any()


def test_whose_time_a_latency_is_does_not_change_the_energy() -> None:
    _, item, step = believed()
    assert not torch.equal(item.centres, step.centres)
    assert torch.equal(item.centres[:, :ROWS], step.centres[:, :ROWS])


MODES = knob("mode", ("eager", "graph", "fused", "lazy"), "graph")
NAMED = enumerate_grid(Space((CLOCK, MODES)))


def named(mhz: int, mode: str) -> int:
    return NAMED.settings.index({"gpu.clock_mhz": mhz, "mode": mode})


@pytest.mark.parametrize("metric", range(2))
def test_the_effect_of_one_word_does_not_inform_about_another(metric: int) -> None:
    """In any order: no name lies between two others."""
    away = [metric * len(NAMED.settings) + named(1000, m) for m in ("eager", "fused", "lazy")]
    for prior in physical_hypotheses(NAMED, KINDS):
        among = covariance(prior.features)[away][:, away]
        assert torch.allclose(among, among.diagonal().diag(), atol=1e-12)
        assert bool((among.diagonal() > 0.01).all())
        assert torch.allclose(among.diagonal(), among[0, 0])


def test_an_unknown_word_has_no_law() -> None:
    for prior in physical_hypotheses(NAMED, KINDS):
        for half in prior.centres.reshape(-1, 2, len(NAMED.settings)).unbind(dim=1):
            for mode in ("eager", "fused", "lazy"):
                assert torch.equal(half[:, named(800, mode)], half[:, named(800, "graph")])


def test_a_words_effect_on_time_holds_for_energy_and_at_any_clock() -> None:
    _, laws = physical_hypotheses(NAMED, KINDS)
    energy, latency = laws.features.reshape(-1, 2, len(NAMED.settings)).unbind(dim=1)
    fused = named(1000, "fused")
    assert float(energy[:, fused] @ latency[:, fused]) > 0.0
    assert torch.equal(latency[:, fused], latency[:, named(600, "fused")])


ODD = knob("draft_tokens", (0, 2, 3, 4, 8), 3)
DRAFTED = enumerate_grid(Space((CLOCK, ODD)))


def row(mhz: int, tokens: int) -> int:
    return DRAFTED.settings.index({"gpu.clock_mhz": mhz, "draft_tokens": tokens})


def test_an_unknown_knobs_effect_does_not_inform_about_known_ones() -> None:
    """In one world each of its values has an arbitrary effect, and the clock that of a clock."""
    odd = physical_hypotheses(DRAFTED, KINDS)[1]
    count = len(DRAFTED.settings)
    energy, latency = odd.centres.reshape(-1, 2, count).unbind(dim=1)
    for tokens in (0, 2, 3, 4, 8):
        assert torch.equal(latency[:, row(800, tokens)], latency[:, row(800, 3)])
    assert bool((latency[:, row(800, 3)] > -1e-9).all())
    assert not torch.equal(energy[:, row(800, 3)], energy[:, row(1000, 3)])
    free = odd.features[:, count:]
    for tokens in (0, 2, 3, 4, 8):
        assert torch.equal(free[:, row(800, tokens)], free[:, row(1000, tokens)])
    assert not free[:, row(800, 3)].any()


def test_an_unknown_knob_may_be_worse_to_both_sides() -> None:
    odd = physical_hypotheses(DRAFTED, KINDS)[1]
    free = odd.features[:, len(DRAFTED.settings) :]
    less, more = free[:, row(1000, 2)], free[:, row(1000, 4)]
    assert float(less @ more) == 0.0, "what two tokens do tells nothing of four"
    assert float(more @ free[:, row(1000, 8)]) > 0.0, "what four do tells of eight"
    assert float(less.norm()) > 0.1


def test_a_long_ladder_of_an_unknown_role_is_modelled_in_few_steps() -> None:
    grid = enumerate_grid(Space((CLOCK, knob("odd", tuple(range(1, 200)), 199))))
    odd = physical_hypotheses(grid, KINDS)[1]
    assert len(odd.features) < 50
    width = odd.features.square().sum(dim=0)[len(grid.settings) :]
    far, near = width.max(), width.median()
    assert 0.0 < float(near) < float(far) < 0.5


def test_where_every_knob_is_known_no_world_is_added() -> None:
    assert len(physical_hypotheses(CLOCKS, KINDS)) < len(physical_hypotheses(DRAFTED, KINDS))
    assert len(physical_hypotheses(CLOCKS, KINDS)) == len(physical_hypotheses(NAMED, KINDS))


def test_a_prior_is_worked_out_once() -> None:
    assert physical_hypotheses(CLOCKS, KINDS) is physical_hypotheses(CLOCKS, KINDS)


THREADS = replace(knob("threads", (2, 4, 6, 8, 12, 16), 16), breaks=(4.0, 8.0))


def test_breaks_add_laws_in_which_the_response_changes_there() -> None:
    broken = enumerate_grid(Space((THREADS,)))
    plain = enumerate_grid(Space((replace(THREADS, breaks=()),)))
    plain_priors, more = physical_hypotheses(plain, KINDS), physical_hypotheses(broken, KINDS)
    assert [p.name for p in more[len(plain_priors) :]] == ["laws with the host's topology"]
    assert all(torch.equal(a.centres, b.centres) for a, b in zip(plain_priors, more, strict=False))
    laws = more[-1].centres.reshape(-1, 2, 6)
    assert float(laws[:, :, -1].abs().max()) < 1e-9
    # Some law jumps at four threads, where the second socket opens, and is even on both sides of it.
    power = laws[:, 0] - laws[:, 1]
    steps = power.diff(dim=1)
    assert float((steps[:, 1] - steps[:, 0]).max()) > 0.05


@pytest.mark.parametrize("breaks", [(1.0,), (16.0,), (32.0, 64.0)])
def test_breaks_outside_the_values_and_of_other_knobs_add_nothing(
    breaks: tuple[float, ...],
) -> None:
    for one in (replace(THREADS, breaks=breaks), replace(BATCH, breaks=(2.0,)), MODE):
        grid = enumerate_grid(Space((one,)))
        assert grid.breaks == ((),)
