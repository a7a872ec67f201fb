"""A real task to train by federated averaging: handwritten digits, or a larger one made by a recipe.

The model is a network of one hidden layer in numpy, small enough that a hundred clients train in a
fraction of a second; the training is real, its cost on a phone is modelled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tuner.core import InvalidInput

Array = NDArray[np.float64]
Weights = tuple[Array, ...]
"""The weights and biases of both layers."""

HIDDEN = 32
RATE = 0.1
TESTED = 0.2
MADE_SAMPLES, MADE_FEATURES, MADE_CLASSES, MADE_CENTRES = 12_000, 32, 10, 3
MADE_SPREAD, MADE_WRONG = 1.2, 0.05
"""Of the made task: the standard deviation of samples about their centre, and the share of wrong labels."""


@dataclass(frozen=True)
class TrainingTask:
    """Samples for training, and others for testing."""

    name: str
    features: Array
    labels: NDArray[np.int64]
    test_features: Array
    test_labels: NDArray[np.int64]

    @property
    def classes(self) -> int:
        """The number of labels."""
        return int(self.labels.max()) + 1

    def accuracy(self, weights: Weights) -> float:
        """Return the share of correctly predicted test samples."""
        predicted = _forward(weights, self.test_features)[1].argmax(axis=1)
        return float((predicted == self.test_labels).mean())

    def own_accuracy(self, weights: Weights, samples: NDArray[np.int64]) -> float:
        """Return the share of correctly predicted training samples among these."""
        predicted = _forward(weights, self.features[samples])[1].argmax(axis=1)
        return float((predicted == self.labels[samples]).mean())


def digits(seed: int) -> TrainingTask:
    """Return scikit-learn's 1,797 handwritten digits of 8 × 8 pixels, a fifth of them for testing."""
    from sklearn.datasets import load_digits  # an extra's

    pixels, labels = load_digits(return_X_y=True)
    return _split("digits", pixels / 16.0, labels.astype(np.int64), seed)


def made(seed: int) -> TrainingTask:
    """Return a task of 12,000 samples made by a recipe.

    Ten classes of three centres each, normal in 32 dimensions. Samples are normal about a centre of their
    class; a share of the labels is replaced by random ones.
    """
    rng = np.random.default_rng([seed, 3])
    labels = rng.integers(MADE_CLASSES, size=MADE_SAMPLES)
    centres = rng.normal(size=(MADE_CLASSES, MADE_CENTRES, MADE_FEATURES))
    about = centres[labels, rng.integers(MADE_CENTRES, size=MADE_SAMPLES)]
    features = about + MADE_SPREAD * rng.normal(size=about.shape)
    wrong = rng.random(MADE_SAMPLES) < MADE_WRONG
    labels[wrong] = rng.integers(MADE_CLASSES, size=int(wrong.sum()))
    return _split("made", features, labels.astype(np.int64), seed)


TASKS: Mapping[str, Callable[[int], TrainingTask]] = {"digits": digits, "made": made}


def fresh_weights(task: TrainingTask, seed: int) -> Weights:
    """Return the initial weights of a training."""
    rng = np.random.default_rng([seed, 4])
    inputs = task.features.shape[1]
    return (
        rng.normal(scale=np.sqrt(2.0 / inputs), size=(inputs, HIDDEN)),
        np.zeros(HIDDEN),
        rng.normal(scale=np.sqrt(1.0 / HIDDEN), size=(HIDDEN, task.classes)),
        np.zeros(task.classes),
    )


def trained(
    task: TrainingTask,
    weights: Weights,
    samples: NDArray[np.int64],
    batch: int,
    epochs: int,
    seed: Sequence[int],
    steps: int = 0,
) -> Weights:
    """Return weights after stochastic gradient descent over some samples: see `trained_together`."""
    return trained_together(task, weights, [samples], batch, epochs, [seed], steps)[0]


def trained_together(
    task: TrainingTask,
    weights: Weights,
    owned: Sequence[NDArray[np.int64]],
    batch: int,
    epochs: int,
    seeds: Sequence[Sequence[int]],
    steps: int = 0,
) -> list[Weights]:
    """Return weights after stochastic gradient descent over each client's samples, in orders by seed.

    `epochs`, or, where `steps` is above 0, that many steps, over the samples repeatedly. All
    clients take each step at once.

    Raises:
        InvalidInput: a batch or a number of epochs below 1, or a negative number of steps.
    """
    if batch < 1 or epochs < 1 or steps < 0:
        raise InvalidInput(f"cannot train with batches of {batch} in {epochs} epochs")
    plans = [_plan(own, batch, epochs, seed, steps) for own, seed in zip(owned, seeds, strict=True)]
    order = sorted(range(len(plans)), key=lambda i: -len(plans[i]))
    lengths = np.array([len(plans[i]) for i in order])
    width = max(plan.shape[1] for plan in plans)
    places = np.full((lengths[0], len(plans), width), -1)
    for column, i in enumerate(order):
        places[: lengths[column], column, : plans[i].shape[1]] = plans[i]
    mask = places >= 0
    rates = RATE * mask / np.maximum(1, mask.sum(axis=2, keepdims=True))
    targets = np.eye(task.classes)[task.labels]
    stacked = [np.repeat(w[None] if w.ndim > 1 else w[None, None], len(plans), 0) for w in weights]
    for number, (now, rate) in enumerate(zip(places, rates, strict=True)):
        active = int(np.searchsorted(-lengths, -number))
        own = [w[:active] for w in stacked]
        now = now[:active]
        _steps(own, task.features[now], targets[now], rate[:active, :, None])
    back = np.argsort(order)
    layers = [w if old.ndim > 1 else w[:, 0] for w, old in zip(stacked, weights, strict=True)]
    return [tuple(layer[i] for layer in layers) for i in back]


def averaged(updates: Sequence[tuple[Weights, int]]) -> Weights:
    """Return the mean of weights, each weighed by its samples (FedAvg, arXiv 1602.05629).

    Raises:
        InvalidInput: there are none.
    """
    total = sum(samples for _, samples in updates)
    if not total:
        raise InvalidInput("no update to average")
    layers = zip(*(weights for weights, _ in updates), strict=True)
    shares = [samples / total for _, samples in updates]
    return tuple(
        np.sum([share * layer for share, layer in zip(shares, layers_, strict=True)], axis=0)
        for layers_ in layers
    )


def _forward(weights: Weights, features: Array) -> tuple[Array, Array]:
    first, first_bias, second, second_bias = weights
    hidden = np.maximum(0.0, features @ first + first_bias)
    return hidden, hidden @ second + second_bias


def _plan(
    samples: NDArray[np.int64], batch: int, epochs: int, seed: Sequence[int], steps: int
) -> NDArray[np.int64]:
    """Return the samples of each step, one row per step; -1 fills smaller batches."""
    rng = np.random.default_rng(list(seed))
    per = -(-len(samples) // batch)
    batch = min(batch, len(samples))
    passes = -(-steps // per) if steps else epochs
    indices = np.full((passes, per * batch), -1)
    for one in indices:
        one[: len(samples)] = rng.permutation(samples)
    return indices.reshape(-1, batch)[: steps or None]


def _steps(weights: Sequence[Array], features: Array, targets: Array, rates: Array) -> None:
    """Change the weights of some clients by one step each; each sample has its own rate."""
    first, first_bias, second, second_bias = weights
    hidden = np.maximum(0.0, features @ first + first_bias)
    shares = hidden @ second + second_bias
    shares -= shares.max(axis=2, keepdims=True)
    np.exp(shares, out=shares)
    shares /= shares.sum(axis=2, keepdims=True)
    shares -= targets
    shares *= rates
    back = (shares @ second.transpose(0, 2, 1)) * (hidden > 0.0)
    second -= hidden.transpose(0, 2, 1) @ shares
    second_bias -= shares.sum(axis=1, keepdims=True)
    first -= features.transpose(0, 2, 1) @ back
    first_bias -= back.sum(axis=1, keepdims=True)


def _split(name: str, features: Array, labels: NDArray[np.int64], seed: int) -> TrainingTask:
    order = np.random.default_rng([seed, 5]).permutation(len(labels))
    tested = int(TESTED * len(labels))
    test, train = order[:tested], order[tested:]
    return TrainingTask(name, features[train], labels[train], features[test], labels[test])
