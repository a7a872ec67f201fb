from __future__ import annotations

import numpy as np
import pytest

from jouletune_bench.fleet.task import (
    TrainingTask,
    averaged,
    digits,
    fresh_weights,
    made,
    trained,
    trained_together,
)
from tuner.core import InvalidInput

DIGITS = digits(0)


def test_the_tasks_are_as_documented() -> None:
    assert len(DIGITS.labels) + len(DIGITS.test_labels) == 1797
    assert (
        DIGITS.features.shape[1] == 64
        and 0.0 <= DIGITS.features.min() <= DIGITS.features.max() <= 1.0
    )
    other = made(0)
    assert len(other.labels) + len(other.test_labels) == 12_000
    counts = np.bincount(other.labels)
    assert len(counts) == 10 and counts.min() > 200


@pytest.mark.parametrize("task", [DIGITS, made(0)], ids=["digits", "made"])
def test_training_on_all_samples_learns(task: TrainingTask) -> None:
    start = fresh_weights(task, 0)
    weights = trained(task, start, np.arange(len(task.labels)), 16, 8, (0,))
    assert task.accuracy(start) < 0.3 < 0.6 < task.accuracy(weights)


def test_training_is_the_same_by_seed_and_leaves_its_start_unchanged() -> None:
    start = fresh_weights(DIGITS, 0)
    before = [layer.copy() for layer in start]
    some = np.arange(50)
    one, again, other = (trained(DIGITS, start, some, 8, 1, (seed,)) for seed in (1, 1, 2))
    assert all((a == b).all() for a, b in zip(one, again, strict=True))
    assert any((a != b).any() for a, b in zip(one, other, strict=True))
    assert all((a == b).all() for a, b in zip(start, before, strict=True))


def test_an_average_weighs_by_samples() -> None:
    zeros, ones = ((np.full(3, value),) for value in (0.0, 1.0))
    assert averaged([(zeros, 1), (ones, 3)])[0] == pytest.approx(0.75)
    with pytest.raises(InvalidInput):
        averaged([])


@pytest.mark.parametrize(("batch", "epochs"), [(0, 1), (8, 0)])
def test_a_training_without_a_batch_or_epochs_is_refused(batch: int, epochs: int) -> None:
    with pytest.raises(InvalidInput):
        trained(DIGITS, fresh_weights(DIGITS, 0), np.arange(5), batch, epochs, (0,))


def test_many_steps_pass_through_the_samples_repeatedly() -> None:
    start, some = fresh_weights(DIGITS, 0), np.arange(20)
    epoch = trained(DIGITS, start, some, 8, 1, (0,))
    steps = trained(DIGITS, start, some, 8, 1, (0,), steps=3)
    more = trained(DIGITS, start, some, 8, 1, (0,), steps=30)
    assert all((a == b).all() for a, b in zip(epoch, steps, strict=True))
    assert DIGITS.own_accuracy(more, some) > DIGITS.own_accuracy(start, some)
    with pytest.raises(InvalidInput):
        trained(DIGITS, start, some, 8, 1, (0,), steps=-1)


@pytest.mark.parametrize(("epochs", "steps"), [(3, 0), (1, 4)], ids=["epochs", "steps"])
def test_training_clients_together_gives_the_same_as_each_alone(epochs: int, steps: int) -> None:
    task = digits(0)
    began = fresh_weights(task, 0)
    owned = [np.arange(start, start + count) for start, count in ((0, 3), (9, 40), (60, 17))]
    orders = [(0, 7, number) for number in range(3)]
    together = trained_together(task, began, owned, 8, epochs, orders, steps)
    for own, order, weights in zip(owned, orders, together, strict=True):
        alone = trained(task, began, own, 8, epochs, order, steps)
        assert all(w.shape == v.shape for w, v in zip(weights, alone, strict=True))
        for layer, other in zip(weights, alone, strict=True):
            assert layer == pytest.approx(other, abs=1e-12)
