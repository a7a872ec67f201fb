"""Profile a reference model on this machine, plan every batch size, and measure the plans."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from agents.workloads.reference.allocators import allocators
from agents.workloads.reference.catalogue import Model
from agents.workloads.reference.instance import Recipe
from agents.workloads.reference.slab import inputs
from tuner.profiling.packrat import timing
from tuner.profiling.packrat.packings import Comparison, ModelBench, Shapes
from tuner.profiling.turns import QuietTimer, TimedBatches

COLUMNS = (
    *("model", "instances", "threads", "batch_size"),
    *("latency_s", "latency_stderr_s", "memory_bytes"),
)


@dataclass(frozen=True, slots=True)
class Windows:
    """The number of windows of each kind, their seconds, and the largest foreign share of the cores."""

    count: int
    seconds: float
    most_foreign: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelResult:
    """The measurements of one model; `memory_bytes` is the memory of its largest instance."""

    model: str
    bench: ModelBench
    comparisons: tuple[Comparison, ...]
    memory_bytes: int

    @property
    def prediction_errors(self) -> list[float]:
        """The relative error (predicted − measured) / measured of each chosen plan's latency.

        A plan's own windows had no part in its prediction.
        """
        return [e for c in self.comparisons if (e := c.prediction_error) is not None]


def measure_model(
    which: Model,
    batches: tuple[int, ...],
    cores: Sequence[int],
    windows: Windows,
    seed: int,
    progress: Callable[[str, int], None],
) -> ModelResult:
    """Profile one model and compare its best packing of each batch size with the fat instance.

    `progress` is called before each step with its description and the number of steps expected.

    Raises:
        ActuationError: an instance could not be started.
    """
    recipe = Recipe(which, seed, which.width, inputs(which, seed), max(batches))
    allocator = next(iter(allocators()), "")
    with timing.Timer(recipe, cores, Path("/proc/stat")) as timer:

        def window(shapes: Shapes) -> TimedBatches:
            return timer.window(shapes, windows.seconds, allocator)

        def step(activity: str) -> None:
            progress(
                f"{which.name}: {activity}", len(bench.cells) + 2 * windows.count * len(batches)
            )

        timed = QuietTimer(window, windows.most_foreign)
        bench = ModelBench(len(cores), batches, windows.count, timed, step)
        bench.profile()
        bench.side_by_side()
        comparisons = tuple(bench.compare(batch) for batch in batches)
        return ModelResult(
            model=which.name,
            bench=bench,
            comparisons=comparisons,
            memory_bytes=timer.own_bytes(allocator),
        )


def summary(results: Sequence[ModelResult]) -> dict[str, object]:
    """Return all measurements as one JSON object."""
    speedups = [c.speedup for result in results for c in result.comparisons]
    errors = [e for result in results for e in result.prediction_errors]
    return {
        "threads": results[0].bench.threads,
        "speedup_mean": statistics.fmean(speedups),
        "speedup_max": max(speedups),
        "slower_than_fat": sum(c.is_slower for result in results for c in result.comparisons),
        **_error_percents(errors),
        "models": [
            {
                "model": result.model,
                "points": len(result.bench.points),
                "points_of_full_profile": len(result.bench.cells),
                **_error_percents(result.prediction_errors),
                "rejected_windows": result.bench.timed.rejected,
                "disturbed_windows": result.bench.timed.disturbed,
                "foreign_worst": result.bench.timed.worst,
                "batches": result.comparisons,
            }
            for result in results
        ],
    }


def as_csv(results: Sequence[ModelResult]) -> str:
    """Return the points and the plans measured side by side as CSV."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for result in results:
        writer.writerows(_csv_rows(result))
    return out.getvalue()


def _csv_rows(result: ModelResult) -> Iterator[tuple[object, ...]]:
    """Yield a model's points, then its plans measured side by side, as values of `COLUMNS`."""
    last = result.memory_bytes
    for (threads, items), point in sorted(result.bench.points.items()):
        yield (result.model, 1, threads, items, point.latency_s, point.stderr_s, last)
    for w in result.bench.plans:
        yield (result.model, w.instances, w.threads, w.batch, w.latency_s, w.stderr_s, last)


def _error_percents(errors: Sequence[float]) -> dict[str, float | None]:
    """Return the median size of prediction errors, the least and the greatest in %; None without errors."""
    percents = [100.0 * error for error in errors]
    return {
        "prediction_error_median_percent": statistics.median(map(abs, percents))
        if percents
        else None,
        "prediction_error_least_percent": min(percents, default=None),
        "prediction_error_most_percent": max(percents, default=None),
    }
