"""What is believed before anything was measured."""

from __future__ import annotations

import pytest
import torch

from tests.builders import knob
from tuner.bo.encoding import Grid, enumerate_grid
from tuner.bo.physics import BaselineFacts
from tuner.bo.prior import Hypothesis, hypotheses, power_laws
from tuner.core import Kind, Space

CLOCK = knob("gpu.clock_mhz", (600, 800, 1000, 1200), 1000)
BATCH = knob("batch_size", (1, 2, 4), 2)
MODE = knob("mode", ("eager", "graph"), "graph")
GRID = enumerate_grid(Space((CLOCK, BATCH, MODE)))
CLOCKS = enumerate_grid(Space((CLOCK,)))
UNBATCHED = enumerate_grid(Space((CLOCK, MODE)))
BASELINE = GRID.settings.index({"gpu.clock_mhz": 1000, "batch_size": 2, "mode": "graph"})
ROWS = len(GRID.settings)
KINDS = (Kind.ENERGY, Kind.TIME, Kind.OTHER)


def believed() -> tuple[Hypothesis, ...]:
    return hypotheses(GRID, KINDS, (True, True, True))


def test_every_hypothesis_covers_every_metric_at_every_row() -> None:
    for prior in believed():
        assert prior.centres.shape[1] == prior.features.shape[1] == len(KINDS) * ROWS
        assert prior.centres.dtype == prior.features.dtype == torch.float64
        assert bool(torch.isfinite(prior.centres).all())
        assert bool(torch.isfinite(prior.features).all())


def test_nothing_is_believed_to_differ_from_the_baseline_at_the_baseline() -> None:
    for prior in believed():
        for place in range(len(KINDS)):
            at = place * ROWS + BASELINE
            assert float(prior.centres[:, at].abs().max()) < 1e-9
            assert float(prior.features[:, at].abs().max()) < 1e-9


def test_a_metric_whose_name_tells_nothing_follows_power_laws_alone() -> None:
    laws = power_laws(GRID, [True])
    for prior in believed():
        block = prior.features[:, 2 * ROWS :]
        assert not prior.centres[:, 2 * ROWS :].any()
        assert torch.allclose(block.T @ block, laws.T @ laws)


def test_where_no_name_tells_anything_power_laws_are_all_there_is() -> None:
    (only,) = hypotheses(GRID, (Kind.OTHER, Kind.OTHER), (True, True))
    assert not only.centres.any()
    assert torch.equal(only.features, power_laws(GRID, [True, True]))


def test_a_metric_that_is_no_factor_follows_no_physics() -> None:
    for prior in hypotheses(GRID, (Kind.ENERGY, Kind.TIME), (True, False)):
        assert not prior.centres[:, ROWS:].any()


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
    both = len(hypotheses(GRID, (Kind.ENERGY, Kind.TIME), (True, True)))
    assert len(hypotheses(grid, kinds, (True, True))) < both


def test_a_larger_batch_may_make_a_time_longer_or_shorter() -> None:
    at = ROWS + GRID.settings.index({"gpu.clock_mhz": 1000, "batch_size": 4, "mode": "graph"})
    laws = [p.centres[:, at].mean() for p in believed() if len(p.centres) > 1]
    assert float(min(laws)) < -0.1
    assert float(max(laws)) > 0.1


def test_in_every_law_energy_is_power_times_time() -> None:
    for prior in hypotheses(GRID, (Kind.ENERGY, Kind.POWER, Kind.RATE), (True,) * 3):
        energy, power, rate = prior.centres.reshape(-1, 3, ROWS).unbind(dim=1)
        assert torch.allclose(energy, power - rate, atol=1e-9)


def test_a_normal_distribution_has_the_moments_of_the_laws() -> None:
    _, drawn, normal = hypotheses(CLOCKS, (Kind.ENERGY, Kind.TIME), (True, True))
    centred = drawn.centres - drawn.centres.mean(dim=0)
    assert torch.allclose(normal.centres[0], drawn.centres.mean(dim=0))
    assert torch.allclose(
        normal.features.T @ normal.features, centred.T @ centred / len(drawn.centres), atol=1e-9
    )


def test_power_laws_are_sure_near_the_baseline_and_vague_far_away() -> None:
    clocks = enumerate_grid(Space((knob("gpu.clock_mhz", (250, 500, 900, 1000), 1000),)))
    spread = power_laws(clocks, [True]).square().sum(dim=0)
    assert spread.tolist() == sorted(spread, reverse=True)
    assert float(spread[-1]) == 0.0


def test_power_laws_start_from_what_a_power_limit_does_and_from_nothing_else() -> None:
    limit = knob("gpu.power_limit_w", (100, 150, 200, 250, 300), 300)
    grid = enumerate_grid(Space((limit, BATCH)))
    plain = hypotheses(grid, (Kind.ENERGY, Kind.TIME, Kind.OTHER), (True, True, True))[0]
    energy, latency, accuracy = plain.centres.reshape(3, -1)
    at = {
        key: grid.settings.index({"gpu.power_limit_w": key[0], "batch_size": key[1]})
        for key in ((100, 2), (250, 2), (300, 2), (100, 4), (300, 4))
    }
    assert float(latency[at[100, 2]]) > 8.0 * float(latency[at[250, 2]]) > 0.0, "it binds suddenly"
    assert float(energy[at[250, 2]]) < 0.0
    assert float(latency[at[300, 4]]) == pytest.approx(0.0, abs=1e-9)
    assert float(latency[at[100, 4]]) == pytest.approx(float(latency[at[100, 2]]))
    assert not accuracy.any()


def test_power_laws_of_several_metrics_know_nothing_of_each_other() -> None:
    both = power_laws(GRID, [True, True])
    shared = both.T @ both
    assert not shared[:ROWS, ROWS:].any()
    assert power_laws(GRID, [False, False]).shape == (0, 2 * ROWS)


def test_what_is_known_of_whose_time_a_latency_is_leaves_its_laws_alone() -> None:
    both = believed()
    item, step = (
        hypotheses(GRID, KINDS, (True, True, True), BaselineFacts((known,)))
        for known in (False, True)
    )
    assert [len(found) for found in (both, item, step)] == [7, 4, 4]
    for found in (item, step):
        assert all(any(torch.equal(p.centres, q.centres) for q in both) for p in found)
    assert not torch.equal(item[1].centres, step[1].centres)
    assert torch.equal(item[1].centres[:, :ROWS], step[1].centres[:, :ROWS]), "energy is an item's"


ODD = knob("draft_tokens", (0, 2, 3, 4, 8), 3)
DRAFTED = enumerate_grid(Space((CLOCK, ODD)))


def row(mhz: int, tokens: int) -> int:
    return DRAFTED.settings.index({"gpu.clock_mhz": mhz, "draft_tokens": tokens})


def test_what_an_unknown_knob_does_says_nothing_of_the_known_ones() -> None:
    """In one world it does at each of its values what it likes, and the clock what clocks do."""
    odd = hypotheses(DRAFTED, (Kind.ENERGY, Kind.TIME), (True, True))[1]
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
    odd = hypotheses(DRAFTED, (Kind.ENERGY, Kind.TIME), (True, True))[1]
    free = odd.features[:, len(DRAFTED.settings) :]
    less, more = free[:, row(1000, 2)], free[:, row(1000, 4)]
    assert float(less @ more) == 0.0, "what two tokens do tells nothing of four"
    assert float(more @ free[:, row(1000, 8)]) > 0.0, "what four do tells of eight"
    assert float(less.norm()) > 0.1


def test_a_long_ladder_that_nobody_knows_goes_in_few_steps() -> None:
    grid = enumerate_grid(Space((CLOCK, knob("odd", tuple(range(1, 200)), 199))))
    odd = hypotheses(grid, (Kind.ENERGY, Kind.TIME), (True, True))[1]
    assert len(odd.features) <= 2 * 16
    assert float(odd.features.abs().max()) < 0.5


def test_where_every_knob_is_known_no_world_is_added() -> None:
    assert len(hypotheses(CLOCKS, (Kind.ENERGY, Kind.TIME), (True, True))) == 3
