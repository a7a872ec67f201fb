"""Serve a mixture of experts whose weights are on disk: buffer of experts, and experts per token."""

import argparse
import json
import os
import tempfile
import time
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
gate = rng.standard_normal((WIDTH, EXPERTS), dtype=numpy.float32) / 8
gate += numpy.linspace(3.0, 0.0, EXPERTS, dtype=numpy.float32) / WIDTH  # some experts are preferred
table = rng.standard_normal((EXPERTS, WIDTH, WIDTH)).astype(numpy.float32) / WIDTH**0.5
tokens = rng.standard_normal((given.tokens, WIDTH), dtype=numpy.float32) + 0.5
kept: OrderedDict[int, numpy.ndarray] = OrderedDict()
loads, results = 0, numpy.zeros_like(tokens)
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

    began = time.process_time()
    for start in range(0, given.tokens, given.batch):
        part = tokens[start : start + given.batch]
        scores = part @ gate
        shares = numpy.exp(scores - scores.max(1, keepdims=True))
        shares /= shares.sum(1, keepdims=True)
        chosen = numpy.argsort(-shares, axis=1)[:, : given.top]
        for number in sorted(set(chosen.flatten().tolist())):
            rows = numpy.flatnonzero((chosen == number).any(1))
            answer = shares[rows, number, None] * (part[rows] @ expert(number))
            results[start + rows] += answer
    cpu_ms = 1000 * (time.process_time() - began) / given.tokens
some = tokens[::16]
shares = numpy.exp(some @ gate - (some @ gate).max(1, keepdims=True))
shares /= shares.sum(1, keepdims=True)
whole = numpy.einsum("te,tw,ewv->tv", shares, some, table)
error = numpy.linalg.norm(results[::16] - whole, axis=1) / numpy.linalg.norm(whole, axis=1)
memory_mb = given.buffer * 4 * WIDTH * WIDTH / 2**20
document = {"cpu_ms": cpu_ms, "loads": loads, "memory_mb": memory_mb}
print(json.dumps({**document, "quality": 1.0 - float(error.mean())}))
