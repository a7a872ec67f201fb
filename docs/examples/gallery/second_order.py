"""Train with a second-order method (K-FAC): how often its inverses are computed, with which memory."""

import argparse
import json
import time

import numpy

words = argparse.ArgumentParser()
words.add_argument("--interval", type=int, default=1, help="steps between two inversions; 0: SGD")
words.add_argument("--side", type=int, default=256, help="of the largest whole factor")
words.add_argument("--steps", type=int, default=60)
given = words.parse_args()
BATCH, WIDTH, CLASSES = 256, 256, 10
rng = numpy.random.default_rng(0)
images = rng.standard_normal((6144, WIDTH), dtype=numpy.float32)
images *= numpy.logspace(0, -1, WIDTH, dtype=numpy.float32)
labels = (images @ rng.standard_normal((WIDTH, CLASSES))).argmax(1)
weights = [
    rng.standard_normal((WIDTH, WIDTH), dtype=numpy.float32) / 16,
    rng.standard_normal((WIDTH, CLASSES), dtype=numpy.float32) / 16,
]
factors: dict[tuple[int, int], numpy.ndarray] = {}
inverses: dict[tuple[int, int], numpy.ndarray] = {}


def second_moment(rows: numpy.ndarray) -> numpy.ndarray:
    """Return the second moment of rows, its diagonal alone where the matrix would be too large."""
    whole = rows.shape[1] <= given.side
    return rows.T @ rows / BATCH if whole else (rows * rows).mean(0)


def inverted(matrix: numpy.ndarray) -> numpy.ndarray:
    """Return the damped inverse of a factor."""
    if matrix.ndim == 1:
        return 1.0 / (matrix + 0.03)
    return numpy.linalg.inv(matrix + 0.03 * numpy.eye(len(matrix), dtype=numpy.float32))


def scaled(inverse: numpy.ndarray, gradient: numpy.ndarray) -> numpy.ndarray:
    """Return an inverse factor times a gradient."""
    return inverse @ gradient if inverse.ndim == 2 else inverse[:, None] * gradient


began = time.process_time()
for step in range(given.steps):
    rows = numpy.arange(BATCH) + BATCH * (step % 20)
    inside = numpy.tanh(images[rows] @ weights[0])
    scores = inside @ weights[1]
    wrong = numpy.exp(scores - scores.max(1, keepdims=True))
    wrong /= wrong.sum(1, keepdims=True)
    wrong[numpy.arange(BATCH), labels[rows]] -= 1.0
    back = (wrong @ weights[1].T) * (1.0 - inside * inside)
    for layer, (before, after) in enumerate(((images[rows], back), (inside, wrong))):
        move = before.T @ after / BATCH
        if given.interval == 0:
            weights[layer] -= 0.3 * move
            continue
        for side, seen in enumerate((before, after)):
            old, new = factors.get((layer, side)), second_moment(seen)
            now = factors[layer, side] = new if old is None else 0.9 * old + 0.1 * new
            if step % given.interval == 0:
                inverses[layer, side] = inverted(now)
        move = scaled(inverses[layer, 1], scaled(inverses[layer, 0], move).T).T
        weights[layer] -= 0.05 * move / max(1.0, float(numpy.linalg.norm(move)) / 3.0)
cpu_ms = 1000 * (time.process_time() - began) / given.steps
scores = numpy.tanh(images[5120:] @ weights[0]) @ weights[1]
accuracy = float((scores.argmax(1) == labels[5120:]).mean())
memory_mb = sum(one.nbytes for one in (*factors.values(), *inverses.values())) / 2**20
print(json.dumps({"cpu_ms": cpu_ms, "accuracy": accuracy, "memory_mb": memory_mb}))
