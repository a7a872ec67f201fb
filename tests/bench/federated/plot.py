"""Pictures of a comparison: accuracy over energy and time, B, E and K over rounds, energy by class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from tuner.core import StoreError

ROUNDS = 60
"""The number of shown rounds of the settings."""


def draw(path: Path, comparison: Mapping[str, Any]) -> None:
    """Draw one federation's comparison, as the bench prints it, into a file.

    Raises:
        StoreError: it cannot be written.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 8), layout="constrained")
    (energy, seconds), (settings, classes) = figure.subplots(2, 2)
    for axes, key, label in ((energy, "energy_j", "energy, kJ"), (seconds, "seconds", "time, h")):
        _accuracy(axes, comparison, key, 1000.0 if key == "energy_j" else 3600.0)
        axes.set_xlabel(label)
    _settings(settings, comparison["settings"][:ROUNDS])
    _classes(classes, comparison["curves"]["fedgpo"])
    figure.suptitle(f"{comparison['title']} (modelled energy, real training)")
    try:
        figure.savefig(path, dpi=90)
    except OSError as error:
        raise StoreError(
            f"cannot write {path}: {error.strerror}", hint="name another file"
        ) from None


def _accuracy(axes: Any, comparison: Mapping[str, Any], key: str, unit: float) -> None:  # noqa: ANN401
    for name, curve in comparison["curves"].items():
        axes.plot([p[key] / unit for p in curve], [p["accuracy"] for p in curve], label=name)
    axes.axhline(comparison["target"], color="grey", linestyle=":", label="target")
    axes.set_xscale("log")
    axes.set_ylabel("accuracy")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)


def _settings(axes: Any, rounds: Sequence[Mapping[str, float]]) -> None:  # noqa: ANN401
    names = [
        name for name in rounds[0] if name == "participants" or name.endswith((".mid", ".all"))
    ]
    for name in names:
        axes.step(range(1, len(rounds) + 1), [one[name] for one in rounds], label=name, where="mid")
    axes.set_yscale("log", base=2)
    axes.set_xlabel("round")
    axes.set_title("fedgpo's settings", fontsize=9)
    axes.legend(fontsize=7)
    axes.grid(alpha=0.3)


def _classes(axes: Any, curve: Sequence[Mapping[str, float]]) -> None:  # noqa: ANN401
    names = [name for name in curve[0] if name.startswith("energy_") and name != "energy_j"]
    sums = [list(accumulate(point[name] / 1000.0 for point in curve)) for name in names]
    labels = [name.removeprefix("energy_").removesuffix("_j") for name in names]
    axes.stackplot(range(1, len(curve) + 1), *sums, labels=labels)
    axes.set_xlabel("round")
    axes.set_ylabel("energy, kJ")
    axes.set_title("fedgpo's energy by class", fontsize=9)
    axes.legend(fontsize=7, loc="upper left")
    axes.grid(alpha=0.3)
