"""Scores are on true values, with limits from the true baseline."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.builders import SPACE, setting
from tuner.cli.run.results import score
from tuner.core import Constraint, Objective, Setting

LIMIT = (Constraint.parse("latency_p99_ms <= 1.2x baseline"),)
ENERGY = Objective("energy_j")


def truth(at: Setting) -> Mapping[str, float]:
    clock, batch = float(at["gpu.clock_mhz"]), float(at["batch_size"])
    return {"energy_j": clock / (100.0 * batch), "latency_p99_ms": 100.0 + (1000.0 - clock) / 40.0
            + 100.0 * (batch - 1.0)}  # fmt: skip


def test_the_best_possible_is_the_best_that_keeps_the_limits() -> None:
    worth = score(SPACE, truth, ENERGY, LIMIT, setting(800))
    assert worth.oracle.setting == setting(400), "a larger batch would be cheaper, but too slow"
    assert worth.captured == pytest.approx(2.0 / 6.0)
    assert worth.saving_percent == pytest.approx(20.0)
    assert worth.feasible


def test_a_choice_beyond_the_limit_is_reported() -> None:
    worth = score(SPACE, truth, ENERGY, LIMIT, setting(400, 2))
    assert not worth.feasible
    assert worth.best.metrics["latency_p99_ms"] == pytest.approx(215.0)


def test_without_a_possible_saving_nothing_is_captured() -> None:
    worth = score(SPACE, lambda _: {"energy_j": 1.0, "latency_p99_ms": 1.0}, ENERGY, (), setting())
    assert worth.captured is None
    assert worth.saving_percent == 0.0


def test_an_objective_may_be_maximized() -> None:
    faster = Objective("latency_p99_ms", "maximize")
    worth = score(SPACE, truth, faster, (), setting(1000, 4))
    assert worth.oracle.setting == setting(400, 4)
    assert worth.captured == pytest.approx(300.0 / 315.0)
