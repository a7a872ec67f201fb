"""A process that computes suggestions: one question per line of standard input, one line of answers each.

It ends when its input is closed, so that no tuner leaves a worker behind.
"""

from __future__ import annotations

import os
import signal
import sys

from tuner.suggesting.questions import answer


def main() -> None:
    """Answer questions until the input ends. All that a policy prints goes to stderr."""
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C is for the tuner, which then closes the input
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    for line in sys.stdin.buffer:
        output.write(answer(line) + b"\n")
        output.flush()


if __name__ == "__main__":
    main()
