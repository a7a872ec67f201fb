"""Train with a share of the backward pass: only the samples of the greatest loss, or the last layers."""

import argparse
import json
import time
from itertools import pairwise

import numpy

words = argparse.ArgumentParser()
words.add_argument("--share", type=float, default=1.0, help="of a batch that is learnt from")
words.add_argument("--layers", type=int, default=3, help="last layers trained in odd steps")
words.add_argument("--steps", type=int, default=96)
given = words.parse_args()
BATCH, SIZES = 256, (256, 384, 384, 10)
rng = numpy.random.default_rng(0)
images = rng.standard_normal((10240, SIZES[0]), dtype=numpy.float32)
labels = (images @ rng.standard_normal((SIZES[0], SIZES[-1]))).argmax(1)
weights = [
    rng.standard_normal((a, b), dtype=numpy.float32) * (2.0 / a) ** 0.5 for a, b in pairwise(SIZES)
]
moves = [numpy.zeros_like(weight) for weight in weights]


def forward(rows: numpy.ndarray) -> list[numpy.ndarray]:
    """Return the inputs of all layers, and the scores at the end."""
    passed = [rows]
    for number, weight in enumerate(weights, 1):
        result = passed[-1] @ weight
        passed.append(numpy.maximum(result, 0.0) if number < len(weights) else result)
    return passed


began = time.process_time()
for step in range(given.steps):
    rows = numpy.arange(BATCH) + BATCH * (step % 32)
    passed = forward(images[rows])
    wrong = numpy.exp(passed[-1] - passed[-1].max(1, keepdims=True))
    wrong /= wrong.sum(1, keepdims=True)
    if given.share < 1.0:
        right = wrong[numpy.arange(BATCH), labels[rows]]
        worst = numpy.argsort(right)[: int(given.share * BATCH)]
        rows, wrong, passed = rows[worst], wrong[worst], [one[worst] for one in passed]
    wrong[numpy.arange(len(rows)), labels[rows]] -= 1.0
    first = len(weights) - given.layers if step % 2 else 0
    for layer in range(len(weights) - 1, first - 1, -1):
        gradient = passed[layer].T @ wrong / len(rows)
        if layer > first:
            wrong = (wrong @ weights[layer].T) * (passed[layer] > 0.0)
        moves[layer] = 0.9 * moves[layer] + gradient
        weights[layer] -= 0.02 * moves[layer]
cpu_ms = 1000 * (time.process_time() - began) / given.steps
accuracy = float((forward(images[8192:])[-1].argmax(1) == labels[8192:]).mean())
print(json.dumps({"cpu_ms": cpu_ms, "accuracy": accuracy}))
