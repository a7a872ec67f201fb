"""The model reproduces measured cells, and is uncertain elsewhere."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import numpy as np
import pytest

from policies.speculation.grid import Cell, Choice
from policies.speculation.surface import CellObservation, outlook
from tests.unit.policies.speculation.machine import BATCHES, Decoder, cpu, gpu

GRID = tuple(Cell(b, Choice(s, ())) for b in BATCHES for s in range(9))


def step(batch: int, length: int, seconds: float, sd: float = 0.01) -> CellObservation:
    return CellObservation("step", Cell(batch, Choice(length, ())), math.log(seconds), sd)


def test_predictions_match_measurements_within_their_error() -> None:
    seen = [step(b, 0, 0.1 * b**0.3) for b in BATCHES]
    surface = outlook(GRID, seen)
    for one in seen:
        place = surface.index[one.cell]
        assert surface.mean[place] == pytest.approx(one.value, abs=0.02)
        assert math.sqrt(surface.cov[place, place]) <= 0.0101


def test_unmeasured_settings_are_more_uncertain() -> None:
    surface = outlook(GRID, [step(b, 0, 0.1) for b in BATCHES])
    sds = np.sqrt(np.diag(surface.cov))
    plain = [sds[surface.index[c]] for c in GRID if not c.choice.length]
    drafted = [sds[surface.index[c]] for c in GRID if c.choice.length]
    assert max(plain) < min(drafted)


def test_the_covariance_is_valid() -> None:
    surface = outlook(GRID, [step(1, 0, 0.1), step(8, 4, 0.3)])
    assert np.allclose(surface.cov, surface.cov.T)
    assert np.linalg.eigvalsh(surface.cov).min() > -1e-9


def test_plain_steps_of_many_requests_inform_about_longer_steps_of_few() -> None:
    flat = outlook(GRID, [step(b, 0, 0.1) for b in BATCHES])
    steep = outlook(GRID, [step(b, 0, 0.1 * b) for b in BATCHES])
    cell = Cell(1, Choice(7, ()))
    assert flat.mean[flat.index[cell]] < steep.mean[steep.index[cell]] - 0.3


def test_acceptance_gives_the_cost_of_a_token_at_every_shorter_length() -> None:
    def told(rate: float) -> float:
        tokens = [
            CellObservation(
                "tokens",
                Cell(1, Choice(s, ())),
                math.log(sum(rate**i for i in range(s + 1))),
                0.005,
            )
            for s in range(1, 5)
        ]
        surface = outlook(GRID, [*(step(b, 0, 0.1) for b in BATCHES), *tokens])
        return float(surface.mean[surface.index[Cell(4, Choice(4, ()))]])

    assert told(0.9) < told(0.3) - 0.5


@pytest.mark.parametrize("kind", [gpu, cpu])
def test_predictions_have_their_stated_uncertainty(
    kind: Callable[[random.Random], Decoder],
) -> None:
    misses = []
    for seed in range(20):
        machine = kind(random.Random(seed))
        draft = next(iter(machine.drafts.values()))
        seen = [step(b, 0, machine.verify_s(b, 0)) for b in BATCHES]
        for batch, length in ((1, 8), (4, 4), (16, 2), (32, 8)):
            whole = machine.verify_s(batch, length)
            whole += length * draft.draft_s * machine.drafting(batch)
            seen.append(step(batch, length, whole))
        tokens = [
            CellObservation("tokens", Cell(1, Choice(s, ())), math.log1p(draft.accepted(s)), 0.005)
            for s in range(1, 9)
        ]
        surface = outlook(GRID, [*seen, *tokens])
        for cell in GRID:
            place, setting = surface.index[cell], {"length": cell.choice.length}
            true = math.log(cell.batch / machine.throughput(cell.batch, setting))
            misses.append((surface.mean[place] - true) / math.sqrt(surface.cov[place, place]))
    spread = math.sqrt(float(np.mean(np.square(misses))))
    assert 0.2 < spread < 1.6


def test_like_drafts_inform_about_each_other_and_names_do_not() -> None:
    def other(drafts: tuple[object, object]) -> float:
        near, far = (Choice(2, (d,)) for d in drafts)  # type: ignore[arg-type]
        grid = (Cell(1, near), Cell(1, far))
        seen = [
            CellObservation("cost", grid[0], 0.0, 0.01),
            CellObservation("tokens", grid[0], math.log(2.9), 0.005),
        ]
        surface = outlook(grid, seen)
        return float(surface.cov[1, 1])

    assert other((0.01, 0.02)) < other(("a", "b"))
