"""Draw what the search believes and decides in one study on a simulated board: `judgement.py PICTURE.svg`.

Columns: before anything was tried, and after some trials. Rows: latency with its limit, energy, and what
each clock is worth trying. In-process, seeded: two runs draw the same.
"""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import torch
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from agents.devices.simulated import truth
from tests.bench.fleet.device import DeviceModel
from tuner.bo.explore import Rules
from tuner.bo.search import Search
from tuner.bo.suggest import search_of, suggest
from tuner.core import (
    Constraint,
    Knob,
    Objective,
    Past,
    Phase,
    Setting,
    Space,
    Study,
    Terms,
    Trial,
    TrialState,
    Try,
)

BOARD, CLOCK = "a100", "gpu.clock_mhz"
LATENCY, ENERGY = "latency_p99_ms", "energy_j"
LOOKS = (0, 2, 5)
"""After so many trials it is drawn."""
START = datetime(2026, 1, 1, tzinfo=UTC)


def main(picture: Path) -> None:
    """Run a study over the clock alone and draw it."""
    model = DeviceModel(BOARD)
    device = model.described("gpu", "host", START)
    space = Space(tuple(k if k.name == CLOCK else fixed(k) for k in device.space.knobs))
    study = Study(
        id="picture",
        devices=("gpu",),
        workload=device.workload,
        space=space,
        objective=Objective(ENERGY),
        quantities=device.quantities,
        constraints=(Constraint.parse(f"{LATENCY} <= 1.2x baseline"),),
        policy="polythrottle",
        terms=Terms(trials=20),
        phase=Phase.TUNING,
        created_at=START,
    )
    rng = random.Random(0)
    trials: list[Trial] = []
    for _ in range(2):
        trials.append(measured(model, len(trials) + 1, study.baseline, Phase.BASELINE, rng))
    rcParams.update({"svg.hashsalt": "jouletune", "svg.fonttype": "none"})
    figure = Figure(figsize=(10.5, 7.0), layout="constrained")
    FigureCanvasSVG(figure)
    grid = figure.subplots(3, len(LOOKS), sharex=True, sharey="row")
    for spent in range(max(LOOKS) + 1):
        past = Past(study=study, trials=tuple(trials))
        answer = suggest(past)
        if spent in LOOKS:
            draw(grid[:, LOOKS.index(spent)], search_of(past), answer, spent)
        if not isinstance(answer, Try):
            break
        trials.append(measured(model, len(trials) + 1, answer.setting, Phase.TUNING, rng))
    figure.savefig(picture, format="svg", metadata={"Date": None})


def fixed(knob: Knob) -> Knob:
    """Return a knob that stays at its default."""
    return replace(knob, values=(knob.default,))


def measured(
    model: DeviceModel, number: int, setting: Setting, phase: Phase, rng: random.Random
) -> Trial:
    """Return a trial of a setting that ended well."""
    window = model.window(dict(setting), START, 10.0, rng)
    return Trial(
        number=number,
        setting=dict(setting),
        phase=phase,
        state=TrialState.COMPLETED,
        started_at=START,
        ended_at=START,
        measurement=window,
    )


def draw(axes: list[Axes], search: Search, answer: object, spent: int) -> None:
    """Draw one look: both metrics as believed, truly and as measured; the chance and the worth below."""
    clocks = [float(s[CLOCK]) for s in search.grid.settings]
    real = truth(BOARD)
    for axis, metric in zip(axes, (LATENCY, ENERGY), strict=False):
        told = [search.view.predicted(row)[metric] for row in range(len(clocks))]
        mean = [t.mean for t in told]
        low, high = ([max(0.0, t.mean + side * 2.0 * t.sd) for t in told] for side in (-1, 1))
        axis.fill_between(clocks, low, high, alpha=0.2, label="believed, ± 2 deviations")
        axis.plot(clocks, mean)
        axis.plot(clocks, [real(s)[metric] for s in search.grid.settings], "k:", label="true")
        for row, candidate in search.view.measured.items():
            axis.plot(clocks[row], candidate.estimates[metric].mean, "ko", markersize=5)
        axis.set_ylim(0.0, 3.0 * search.evidence.baseline[metric].mean)
    for limit in search.evidence.limits or ():
        axes[0].axhline(limit.value, color="tab:red", linestyle="--", label="limit")
    axes[0].set_title(f"after {spent} trials")
    rules = Rules(search)
    axes[2].plot(
        clocks, search.chance.tolist(), color="tab:green", label="chance to keep the limit"
    )
    worth = torch.where(search.allowed, rules.priced, 0.0).clamp_min(-0.1)
    axes[2].plot(clocks, worth.tolist(), color="tab:purple", label="gain net of risk")
    axes[2].axhline(0.0, color="black", linewidth=0.5)
    if isinstance(answer, Try):
        axes[2].axvline(float(answer.setting[CLOCK]), color="tab:orange", label="tried next")
    axes[2].set_xlabel("GPU clock, MHz")
    if spent == LOOKS[0]:
        axes[0].set_ylabel("latency p99, ms")
        axes[1].set_ylabel("energy per item, J")
        axes[2].set_ylabel("share of the baseline")
        for axis in axes:
            axis.legend(fontsize=7, loc="upper right")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
