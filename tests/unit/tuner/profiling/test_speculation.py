from __future__ import annotations

import csv
import io
import math

from tuner.core import Estimate, Load, Measurement, Outcome, Phase, Setting, Trial, TrialState
from tuner.profiling.speculation import (
    DRAFT,
    LENGTH,
    RATE,
    SIGNAL,
    START,
    as_csv,
    measured_trial,
)

ACCEPTED = (0.8, 0.6, 0.45, 0.35)


def rate(batch: int, length: int) -> float:
    """Drafting pays at few requests, and costs from sixteen on."""
    step = 1.0 + 0.1 * length + 0.2 * batch * (1 + length)
    return batch * (1.0 + math.fsum(ACCEPTED[:length])) / step


def windows() -> list[Trial]:
    cells = [(b, s) for b in (1, 2, 4, 8, 16, 32) for s in (0, 2, 4)]
    trials = []
    for number, (batch, length) in enumerate(cells, 3):
        shown = {
            "throughput_per_s": Estimate.of_mean(
                rate(batch, length), 0.01 * rate(batch, length), 50
            )
        }
        for position in range(length):
            shown[f"accepted_at_{position + 1}"] = Estimate.of_mean(ACCEPTED[position], 0.01, 500)
        setting: Setting = {LENGTH: length, DRAFT: "wide"}
        load = {SIGNAL: float(batch)}
        seen = Measurement(
            estimates=shown, started_at=START, seconds=1.0, load=Load(1000), context=load
        )
        done = Outcome(state=TrialState.COMPLETED, measurement=seen)
        trials.append(measured_trial(number, setting, load, done, Phase.TUNING))
    return trials


def test_a_profile_has_a_row_with_the_estimates_of_each_window() -> None:
    written = list(csv.DictReader(io.StringIO(as_csv(windows()))))
    cells = [(float(row[SIGNAL]), int(row[LENGTH]), row[DRAFT]) for row in written]
    assert cells == [(t.context[SIGNAL], t.setting[LENGTH], "wide") for t in windows()]
    assert [float(row[RATE]) for row in written] == [t.shown[RATE].mean for t in windows()]
    assert float(written[5]["accepted_at_4"]) == ACCEPTED[3]
    assert written[3]["accepted_at_1"] == ""
