"""Draw a study from what `jouletune run --json` prints: `study.py REPORT.json PICTURE.svg`.

Energy against latency, one mark a window; the limit, the baseline and the confirmed setting.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from matplotlib import rcParams
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

ENERGY, LATENCY = "energy_j", "latency_p99_ms"
COLOURS = {"feasible": "tab:green", "infeasible": "tab:red", "unsure": "tab:orange"}


def main(report: Path, picture: Path) -> None:
    """Draw the report into the picture. Two runs of the same report give the same file."""
    told = json.loads(report.read_text())
    rcParams.update({"svg.hashsalt": "jouletune", "svg.fonttype": "none"})
    figure = Figure(figsize=(7.5, 4.2), layout="constrained")
    FigureCanvasSVG(figure)
    axes = figure.add_subplot()
    (limit,) = (found["value"] for found in told["study"]["limits"] if found["metric"] == LATENCY)
    axes.axvspan(limit, 1e6, color="tab:red", alpha=0.06)
    axes.axvline(limit, color="tab:red", linestyle="--", label=f"limit {limit:.1f} ms")
    tried = [t for t in told["trials"] if t["phase"] == "tuning" and t["metrics"]]
    for verdict, colour in COLOURS.items():
        points = [point(t["metrics"]) for t in tried if t["verdict"] == verdict]
        if points:
            label = f"tried: {verdict} ({len(points)})"
            axes.scatter(*zip(*points, strict=True), color=colour, alpha=0.7, label=label)
    for name, marker, colour in (("baseline", "s", "black"), ("best", "*", "tab:blue")):
        x, y = point(told[name]["metrics"])
        axes.plot(
            x, y, marker, markersize=11, color=colour, label=f"{name}: {y:.0f} mJ, {x:.1f} ms"
        )
    latencies = [point(t["metrics"])[0] for t in tried]
    axes.set_xlim(0.0, 1.05 * max(1.2 * limit, *latencies))
    axes.set_ylim(0.0, 1.1 * max(point(t["metrics"])[1] for t in [*tried, told["baseline"]]))
    axes.set_xlabel("latency p99, ms")
    axes.set_ylabel("energy per item, mJ")
    mean, stderr = (100.0 * told["saving"][part] for part in ("mean", "stderr"))
    saved = f"{mean:.1f} ± {stderr:.1f} % less energy"
    axes.set_title(f"{told['board']}: {saved}", fontsize=11)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, loc="lower left")
    figure.savefig(picture, format="svg", metadata={"Date": None})


def point(metrics: dict[str, Any]) -> tuple[float, float]:
    """Return a window's latency in milliseconds and energy in millijoules per item."""
    return metrics[LATENCY]["mean"], 1000.0 * metrics[ENERGY]["mean"]


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
