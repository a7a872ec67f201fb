"""A process that works out suggestions: a question a line on its standard input, an answer a line out.

It ends with its input, so that no tuner leaves one behind.
"""

from __future__ import annotations

import os
import signal
import sys

from tuner.suggesting.questions import answer


def main() -> None:
    """Decided until the input ends. Whatever a policy prints goes to stderr."""
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
