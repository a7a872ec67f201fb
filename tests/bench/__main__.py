"""`python -m tests.bench VERB`: the benches; `--help` lists the options of each."""

from __future__ import annotations

import faulthandler
import signal
import sys
from types import FrameType

from tests.bench.commands import commands
from tuner.cli.app import main


def ended(number: int, _frame: FrameType | None) -> None:
    """End the bench with a message. Raises SystemExit."""
    raise SystemExit(f"the bench was ended by {signal.Signals(number).name}; it has no result")


if __name__ == "__main__":
    faulthandler.enable()
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, ended)
    sys.exit(main(root=commands, name="python -m tests.bench"))
