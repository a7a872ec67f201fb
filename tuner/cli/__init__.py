"""The operator's side: one file per noun, and the entry point, which loads nothing else at first."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

CTRL_C = 130
"""The exit code after an interrupt, as of a shell."""
INTERRUPTED = b"error: interrupted\n"


def main() -> int:
    """Run `jouletune` and return its exit code, 130 after an interrupt at any time."""
    with importing():
        from tuner.cli.app import main as run
    try:
        return run()
    except (Exception, KeyboardInterrupt) as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, KeyboardInterrupt):
            cause = cause.__cause__ or cause.__context__  # a late import wraps it
        if cause is None:
            raise
        # Any other error may be of the clean-up: it is shown.
        of_import = isinstance(error, (KeyboardInterrupt, ImportError))
        also = "" if of_import else f"; then {type(error).__name__}: {error}"
        os.write(2, INTERRUPTED.replace(b"\n", f"{also}\n".encode("utf-8", "replace")))
        return CTRL_C


@contextmanager
def importing() -> Iterator[None]:
    """End the process at once if it is interrupted within the block, which has nothing to undo.

    An interrupted import ends with any error, such as one of a compiled module.
    """
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not behind nohup
    ours = ours and threading.current_thread() is threading.main_thread()
    if ours:
        signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(_number: int, _frame: object) -> NoReturn:
    """End the process with one line."""
    os.write(2, INTERRUPTED)
    os._exit(CTRL_C)
