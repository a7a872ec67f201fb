"""`jouletune packrat measure`: Packrat against the fat instance on this machine, measured."""

from __future__ import annotations

import csv
import os
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.options import AsJson

if TYPE_CHECKING:
    from rich.progress import Progress

    from policies.packrat.packing import Group
    from tuner.cli.packings import Compared, ModelBench

MODELS = "resnet50,mobilenet,bert,gpt2"
COLUMNS = (
    *("model", "instances", "threads", "batch_size"),
    *("latency_s", "latency_stderr_s", "memory_bytes"),
)


def measure(
    models: Annotated[
        str, typer.Option(metavar="A,B,…", help="Reference models to measure.")
    ] = MODELS,
    batches: Annotated[str, typer.Option(metavar="A,B,…", help="Batch sizes.")] = "1,2,4,8,16",
    threads: Annotated[
        int, typer.Option(metavar="T", help="Cores to use; 0: all that this process may.")
    ] = 0,
    windows: Annotated[int, typer.Option(metavar="N", min=2, help="Windows of each kind.")] = 5,
    window_s: Annotated[float, typer.Option(metavar="S", min=0.05, help="Seconds of one.")] = 1.0,
    most_foreign: Annotated[
        float,
        typer.Option(metavar="SHARE", min=0.0, help="Share of the cores that others may use."),
    ] = 0.05,
    seed: Annotated[int, typer.Option(metavar="N", help="Of weights and inputs.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE.csv", help="Keep the profile, for `packrat plan --profile`."),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE.png", help="Draw latency against batch size; one per model."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Profile models on this machine, plan for every batch size, and measure the plan.

    A plan is chosen only where it is confirmed against the fat instance (all threads, the whole
    batch); both are then measured once more, in turns. Windows in which others computed are thrown
    away and measured again.
    """
    from tuner.cli.output import echo_json

    found = _measured(
        _names(models), _sizes(batches), threads, Windows(windows, window_s, most_foreign), seed
    )
    if out is not None:
        _write(out, found)
    if plot is not None:
        _draw(plot, found)
    if as_json:
        echo_json(summary(found))
    else:
        _show(found)


@dataclass(frozen=True, slots=True)
class Windows:
    """How many windows of each kind, how long, and what share of the cores others may use."""

    count: int
    seconds: float
    most_foreign: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShown:
    """What one model showed; `memory_bytes` is what its largest instance took."""

    model: str
    bench: ModelBench
    compared: tuple[Compared, ...]
    memory_bytes: int

    @property
    def error_median(self) -> float | None:
        """The median error of predicting plans that were left out of the fit, None for under two."""
        from policies.packrat.interference import fit
        from policies.packrat.profile import Profile

        bench = self.bench
        return fit(Profile(dict(bench.points)), bench.plans, bench.threads).error_median


def summary(found: Sequence[ModelShown]) -> dict[str, object]:
    """Return everything that was found, as one JSON object."""
    speedups = [c.speedup for shown in found for c in shown.compared]
    errors = [e for shown in found if (e := shown.error_median) is not None]
    return {
        "threads": found[0].bench.threads,
        "speedup_mean": statistics.fmean(speedups),
        "speedup_max": max(speedups),
        "slower_than_fat": sum(c.is_slower for shown in found for c in shown.compared),
        "prediction_error_median_percent": 100.0 * statistics.median(errors) if errors else None,
        "models": [
            {
                "model": shown.model,
                "points": len(shown.bench.points),
                "points_of_full_profile": len(shown.bench.cells),
                "prediction_error_median_percent": _percent(shown.error_median),
                "rejected_windows": shown.bench.timed.rejected,
                "disturbed_windows": shown.bench.timed.disturbed,
                "foreign_worst": shown.bench.timed.worst,
                "batches": shown.compared,
            }
            for shown in found
        ],
    }


def _measured(
    models: Sequence[str], batches: tuple[int, ...], threads: int, windows: Windows, seed: int
) -> list[ModelShown]:
    """Measure every model, with a bar. Raises InvalidInput, ActuationError."""
    from rich.console import Console
    from rich.progress import Progress

    cores = sorted(os.sched_getaffinity(0))
    used = cores[: threads or len(cores)]
    if len(used) < threads:
        from tuner.core import ConfigError

        raise ConfigError(
            f"--threads is {threads}, and this process may use {len(cores)} cores",
            hint="ask for fewer",
        )
    with Progress(console=Console(stderr=True), transient=True) as progress:
        return [_model(name, batches, used, windows, seed, progress) for name in models]


def _model(
    name: str,
    batches: tuple[int, ...],
    cores: Sequence[int],
    windows: Windows,
    seed: int,
    progress: Progress,
) -> ModelShown:
    from agents.workloads.reference.catalogue import model
    from agents.workloads.reference.instance import Recipe
    from agents.workloads.reference.slab import inputs
    from agents.workloads.reference.timing import Timer
    from tuner.cli.packings import ModelBench, Quiet, Shapes, Shown

    which = model(name)
    recipe = Recipe(which, seed, which.width, inputs(which, seed), max(batches))
    with Timer(recipe, cores, Path("/proc/stat")) as timer:

        def window(shapes: Shapes) -> Shown:
            sample = timer.window(shapes, windows.seconds)
            return Shown(sample.latency_s, sample.stderr_s, sample.foreign)

        task = progress.add_task(name, total=None)

        def tell(what: str) -> None:
            progress.update(task, description=f"{name}: {what}", advance=1)

        timed = Quiet(window, windows.most_foreign)
        bench = ModelBench(len(cores), batches, windows.count, timed, tell)
        progress.update(task, total=len(bench.cells) + 2 * windows.count * len(batches))
        bench.profile()
        bench.side_by_side()
        compared = tuple(bench.compare(batch) for batch in batches)
        progress.remove_task(task)
        return ModelShown(
            model=name, bench=bench, compared=compared, memory_bytes=timer.own_bytes()
        )


def _names(models: str) -> list[str]:
    """Return the models asked for. Raises InvalidInput where there is no such model."""
    from agents.workloads.reference.catalogue import model

    return [model(name.strip()).name for name in models.split(",")]


def _sizes(batches: str) -> tuple[int, ...]:
    """Return the batch sizes, ascending. Raises ConfigError where they are no such numbers."""
    from tuner.core import ConfigError

    try:
        sizes = {int(text) for text in batches.split(",")}
    except ValueError:
        sizes = {0}
    if min(sizes) < 1:
        raise ConfigError(
            f"--batches cannot be {batches!r}", hint="write whole numbers from 1, like 1,2,4"
        )
    return tuple(sorted(sizes))


def _write(path: Path, found: Sequence[ModelShown]) -> None:
    """Keep the points and the plans measured side by side. Raises StoreError."""
    from tuner.core import StoreError

    try:
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(COLUMNS)
            for shown in found:
                writer.writerows(_csv_rows(shown))
    except OSError as error:
        raise StoreError(
            f"cannot write {path}: {error.strerror}", hint="choose another --out"
        ) from None


def _csv_rows(shown: ModelShown) -> Iterator[tuple[object, ...]]:
    last = shown.memory_bytes
    for (threads, items), point in sorted(shown.bench.points.items()):
        yield (shown.model, 1, threads, items, point.latency_s, point.stderr_s, last)
    for w in shown.bench.plans:
        yield (shown.model, w.instances, w.threads, w.batch, w.latency_s, w.stderr_s, last)


def _draw(path: Path, found: Sequence[ModelShown]) -> None:
    """Draw each model into a file of its own. Raises ConfigError, StoreError."""
    from policies.packrat.profile import Profile
    from tuner.cli.packrat_plot import draw
    from tuner.cli.plans import Asked
    from tuner.cli.profiles import Measured

    for shown in found:
        bench = shown.bench
        measured = Measured(shown.model, Profile(dict(bench.points)), tuple(bench.plans))
        own = path if len(found) == 1 else path.with_stem(f"{path.stem}-{shown.model}")
        draw(own, Asked(measured, bench.threads, max(bench.batches), mixed=True))


def _show(found: Sequence[ModelShown]) -> None:
    """Print what each batch size gained, and how far it can be trusted."""
    from tuner.cli.output import console, table

    out = console()
    rows = [row for shown in found for row in _rows(shown)]
    heads = ("model", ">batch", "chosen", ">fat takes", ">chosen takes", ">predicted", ">speed-up")
    out.print(table(*heads, rows=rows))
    compared = [c for shown in found for c in shown.compared]
    speedups = [c.speedup for c in compared]
    slower = sum(c.is_slower for c in compared)
    lines = [
        f"speed-up  mean {statistics.fmean(speedups):.2f}, at most {max(speedups):.2f}; "
        f"{slower or 'none'} of {len(compared)} slower than the fat instance beyond noise"
    ]
    errors = [e for shown in found if (e := shown.error_median) is not None]
    if errors:
        error = 100.0 * statistics.median(errors)
        lines.append(f"predicted median error {error:.1f} % on plans left out of the fit")
    lines += [line for shown in found for line in _doubts(shown)]
    for line in lines:
        out.print(f"  {line}", soft_wrap=True)


def _rows(shown: ModelShown) -> Iterator[tuple[str, ...]]:
    for c in shown.compared:
        yield (
            shown.model,
            str(c.batch),
            "the fat one" if c.is_fat else _named(c.plan),
            f"{1000.0 * c.fat_latency_s:.1f} ± {1000.0 * c.fat_stderr_s:.1f} ms",
            "–" if c.is_fat else f"{1000.0 * c.latency_s:.1f} ± {1000.0 * c.stderr_s:.1f} ms",
            "–" if c.is_fat else f"{1000.0 * c.predicted_latency_s:.1f} ms",
            "1" if c.is_fat else f"{c.speedup:.2f} ± {c.speedup_stderr:.2f}",
        )


def _doubts(shown: ModelShown) -> Iterator[str]:
    """Yield how much was profiled and disturbed, and which packings were not confirmed."""
    bench = shown.bench
    yield (
        f"{shown.model:<9} {len(bench.points)} of {len(bench.cells)} points profiled; "
        f"{bench.timed.rejected} windows thrown away for foreign load, "
        f"{bench.timed.disturbed} kept in spite of it (worst {bench.timed.worst:.0%})"
    )
    for c in shown.compared:
        if c.confirming is not None and not c.confirming.is_proven:
            yield (
                f"{shown.model:<9} batch {c.batch}: {_named(c.candidate)} promised to be faster and showed "
                f"{c.confirming.speedup:.3f} ± {c.confirming.stderr:.3f}: the fat one stays"
            )


def _named(plan: Sequence[Group]) -> str:
    return " + ".join(f"{g.instances}×⟨{g.threads},{g.batch}⟩" for g in plan)


def _percent(share: float | None) -> float | None:
    return None if share is None else 100.0 * share
