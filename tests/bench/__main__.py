"""`python -m tests.bench VERB`: the benches; each tells its options with `--help`."""

from __future__ import annotations

import sys

from tests.bench.commands import commands
from tuner.cli.app import main

if __name__ == "__main__":
    sys.exit(main(root=commands, name="python -m tests.bench"))
