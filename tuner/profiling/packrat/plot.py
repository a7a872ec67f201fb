"""Plot a profile: latency by batch size of the fat and the best single instance, and of plans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.core import ConfigError, InvalidInput, StoreError
from tuner.drawing import empty

if TYPE_CHECKING:
    from tuner.profiling.packrat.plans import PlanRequest


def draw(path: Path, request: PlanRequest) -> None:
    """Draw the latency of batches of 1, 2, 4 … items, up to the larger of the request and the profile.

    Raises:
        ConfigError: matplotlib is not installed, or does not support the file's suffix.
        StoreError: the file cannot be written.
    """
    figure = empty(7.0, 4.5)
    axes = figure.add_subplot()
    profile, threads = request.measured.profile, request.threads
    batches = _batches(request)
    lines = {
        f"one instance, {threads} threads": lambda b: profile.fat(threads, b),
        "best single instance": lambda b: profile.single(threads, b),
        "Packrat, predicted": lambda b: _predicted(request, b),
    }
    for (label, value), marker in zip(lines.items(), "osD", strict=True):
        x, y = _available(batches, value)
        axes.plot(x, y, marker=marker, label=label)
    best = _measured(request)
    if best:
        axes.scatter(list(best), list(best.values()), marker="x", color="black", zorder=3,
                     label="several instances, measured")  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set_xticks(batches, [str(b) for b in batches])
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("{x:g}")
    axes.set_xlabel("items in the batch")
    axes.set_ylabel("latency of the batch (ms)")
    axes.set_title(f"{request.measured.model} on {threads} threads")
    axes.grid(alpha=0.3)
    axes.legend()
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise StoreError(
            f"cannot write {path}: {error.strerror}", hint="choose another --plot"
        ) from None
    except ValueError as error:
        raise ConfigError(f"cannot draw {path}: {error}", hint="name a .png file") from None


def _batches(request: PlanRequest) -> list[int]:
    """Return the powers of two up to the larger of the requested and the largest profiled batch."""
    most = max(request.batch, request.measured.profile.batches[-1])
    return [2**k for k in range(most.bit_length())]


def _available(
    batches: Sequence[int], seconds: Callable[[int], float | None]
) -> tuple[list[int], list[float]]:
    """Return the batch sizes that have a value, and the values in milliseconds."""
    values = {b: s for b in batches if (s := seconds(b)) is not None}
    return list(values), [1000.0 * s for s in values.values()]


def _predicted(request: PlanRequest, batch: int) -> float | None:
    """Return the predicted latency of the best packing in seconds, None if no packing fits."""
    try:
        return request.packing(batch).latency_s
    except InvalidInput:
        return None


def _measured(request: PlanRequest) -> dict[int, float]:
    """Return the lowest measured latency of several instances in milliseconds, by the items of the plan."""
    best: dict[int, float] = {}
    for window in request.measured.windows:
        if window.instances * window.threads <= request.threads:
            items = window.instances * window.batch
            best[items] = min(1000.0 * window.latency_s, best.get(items, float("inf")))
    return dict(sorted(best.items()))
