"""`python -m tests.bench VERB`: the benches; each tells its options with `--help`."""

from __future__ import annotations

import sys

from tests.bench.federated.command import main as federated

if __name__ == "__main__":
    sys.argv[1:2] = []
    federated()
