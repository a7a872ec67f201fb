"""Read rows of an embedding table on disk with skewed access: cache, deduplication, look-ahead."""

import argparse
import json
import os
import tempfile
import time
from collections import OrderedDict

import numpy

words = argparse.ArgumentParser()
words.add_argument("--cache", type=int, default=0, help="rows that are kept in memory")
words.add_argument("--deduplicate", type=int, default=0, help="read a row once per batch")
words.add_argument("--lookahead", type=int, default=0, help="batches whose rows are not dropped")
words.add_argument("--batches", type=int, default=200)
given = words.parse_args()
ROWS, WIDTH, BATCH = 40_000, 64, 512
rng = numpy.random.default_rng(0)
accesses = (rng.zipf(1.2, (given.batches, BATCH)) * 7919) % ROWS
kept: OrderedDict[int, numpy.ndarray] = OrderedDict()
reads = 0
with tempfile.NamedTemporaryFile() as file:
    rng.random((ROWS, WIDTH), dtype=numpy.float32).tofile(file)
    file.flush()

    def row(number: int, needed: set[int]) -> numpy.ndarray:
        """Return one row, from the cache or from the file."""
        global reads
        if number in kept:
            kept.move_to_end(number)
            return kept[number]
        reads += 1
        data = os.pread(file.fileno(), 4 * WIDTH, 4 * WIDTH * number)
        value = numpy.frombuffer(data, numpy.float32)
        if given.cache:
            kept[number] = value
            while len(kept) > given.cache:
                oldest = next((n for n in kept if n not in needed), next(iter(kept)))
                del kept[oldest]
        return value

    total, began = 0.0, time.process_time()
    for batch in range(given.batches):
        ahead = accesses[batch + 1 : batch + 1 + given.lookahead]
        needed = set(ahead.flatten().tolist()) if given.cache else set()
        numbers = accesses[batch].tolist()
        if given.deduplicate:
            rows = {number: row(number, needed) for number in set(numbers)}
            total += float(sum(rows[number][0] for number in numbers))
        else:
            total += float(sum(row(number, needed)[0] for number in numbers))
    cpu_us = 1e6 * (time.process_time() - began) / (given.batches * BATCH)
memory_mb = len(kept) * 4 * WIDTH / 2**20
print(json.dumps({"cpu_us": cpu_us, "reads": reads, "memory_mb": memory_mb}))
