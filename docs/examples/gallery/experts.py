"""Serve a mixture of experts whose weights are on disk: buffer of experts, and experts per token."""

import argparse
import json
import os
import tempfile
from collections import OrderedDict

import numpy

words = argparse.ArgumentParser()
words.add_argument("--buffer", type=int, default=1, help="experts in memory")
words.add_argument("--top", type=int, default=2, help="experts per token")
words.add_argument("--batch", type=int, default=8, help="tokens whose experts are grouped")
words.add_argument("--tokens", type=int, default=512)
given = words.parse_args()
EXPERTS, WIDTH = 16, 192
rng = numpy.random.default_rng(0)
gate = rng.standard_normal((WIDTH, EXPERTS), dtype=numpy.float32)
gate += numpy.linspace(3.0, 0.0, EXPERTS, dtype=numpy.float32) / WIDTH  # some experts are preferred
table = rng.standard_normal((EXPERTS, WIDTH, WIDTH)).astype(numpy.float32) / WIDTH**0.5
tokens = rng.standard_normal((given.tokens, WIDTH), dtype=numpy.float32) + 0.5
kept: OrderedDict[int, numpy.ndarray] = OrderedDict()
loads, error = 0, 0.0
with tempfile.NamedTemporaryFile() as file:
    table.tofile(file)
    file.flush()

    def expert(number: int) -> numpy.ndarray:
        """Return an expert's weights, read from disk unless they are in the buffer."""
        global loads
        if number in kept:
            kept.move_to_end(number)
            return kept[number]
        loads += 1
        size = 4 * WIDTH * WIDTH
        data = os.pread(file.fileno(), size, size * number)
        kept[number] = numpy.frombuffer(data, numpy.float32).reshape(WIDTH, WIDTH).copy()
        while len(kept) > given.buffer:
            kept.popitem(last=False)
        return kept[number]

    for start in range(0, given.tokens, given.batch):
        part = tokens[start : start + given.batch]
        scores = part @ gate
        shares = numpy.exp(scores - scores.max(1, keepdims=True))
        shares /= shares.sum(1, keepdims=True)
        chosen = numpy.argsort(-shares, axis=1)[:, : given.top]
        result = numpy.zeros_like(part)
        for number in sorted(set(chosen.flatten().tolist())):
            rows = numpy.flatnonzero((chosen == number).any(1))
            result[rows] += shares[rows, number, None] * (part[rows] @ expert(number))
        whole = numpy.einsum("te,tw,ewv->tv", shares[:1], part[:1], table)
        error += float(numpy.linalg.norm(result[:1] - whole) / numpy.linalg.norm(whole))
quality = 1.0 - error / -(-given.tokens // given.batch)
memory_mb = given.buffer * 4 * WIDTH * WIDTH / 2**20
document = {"tokens": given.tokens, "loads": loads, "quality": quality, "memory_mb": memory_mb}
print(json.dumps(document))
