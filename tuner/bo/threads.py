"""Thread pools of the numeric libraries."""

from __future__ import annotations

from collections.abc import MutableMapping

POOLS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def limit_threads(environ: MutableMapping[str, str]) -> None:
    """Give every numeric library one thread, unless the environment says otherwise already.

    For the composition root, before anything imports numpy or torch: the libraries read these
    variables once, when they are loaded. Two pools that spin against each other make fits of this
    size several times slower, and sums split over threads differ in their last digits. Who starts
    child processes that should use more threads clears the variables for them.
    """
    for name in POOLS:
        environ.setdefault(name, "1")
