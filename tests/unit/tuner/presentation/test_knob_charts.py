"""Charts of knobs: measured effects, parallel coordinates, and a model's predictions."""

from __future__ import annotations

from tests.builders import setting
from tests.unit.tuner.cli.worlds import held
from tuner.core import BelievedSetting, Explanation, KnobSlice, Limit, Prediction
from tuner.presentation.knob_charts import (
    importance,
    importance_bars,
    knob_effects,
    knob_slices,
    parallel,
    varying_knobs,
)
from tuner.wire import ExplanationView

CLOCKS = (400, 600, 800)


def point(clock: int, energy: float, latency: float, refused: str = "") -> BelievedSetting:
    predicted = {
        "energy_j": Prediction(mean=energy, sd=0.1),
        "latency_p99_ms": Prediction(mean=latency, sd=1.0),
    }
    return BelievedSetting(
        setting=setting(clock), predicted=predicted, chance=0.9, refused=refused, measured=True
    )


def model() -> ExplanationView:
    points = (
        point(400, 3.0, 130.0),
        point(600, 2.0, 110.0, "nothing to gain"),
        point(800, 4.0, 105.0),
    )
    batches = tuple(point(600, energy, 110.0) for energy in (2.0, 2.5))
    slices = (
        KnobSlice(knob="gpu.clock_mhz", values=CLOCKS, points=points),
        KnobSlice(knob="batch_size", values=(1, 2), points=batches),
    )
    return ExplanationView(
        study="s1", policy="p", explained=True, metrics=("energy_j", "latency_p99_ms"),
        limits=(Limit("latency_p99_ms", "<=", 120.0),),
        explanation=Explanation(text="", through=setting(600), slices=slices),
    )  # fmt: skip


def test_importance_is_the_share_of_the_predicted_effect_largest_first() -> None:
    shares = importance(model().explanation, "energy_j")
    assert shares == {"gpu.clock_mhz": 0.8, "batch_size": 0.2}
    assert list(shares) == ["gpu.clock_mhz", "batch_size"]
    (bars,) = importance_bars(shares)["data"]
    assert bars["x"] == [20.0, 80.0] and bars["y"][-1] == "gpu.clock_mhz"
    assert importance(Explanation(text="no model"), "energy_j") == {}


def test_red_marks_only_broken_limits_and_the_held_setting_is_a_star() -> None:
    charts = dict(knob_slices(model(), setting(600)))
    for name in ("gpu.clock_mhz and energy_j", "gpu.clock_mhz and latency_p99_ms"):
        traces = {t["name"]: t for t in charts[name]["data"]}
        assert traces["breaks a limit"]["x"] == [400]
        assert traces["held"]["x"] == [600]
        assert traces["held"]["marker"]["symbol"] == "star"
        assert traces["measured"]["x"] == [800]


def test_the_held_setting_is_never_marked_as_broken_by_a_prediction() -> None:
    for _, chart in knob_slices(model(), setting(400)):
        marks = {t["name"]: t for t in chart["data"] if t["mode"] == "markers"}
        if "held" in marks:
            assert marks["held"]["x"] == [400]
            assert 400 not in marks.get("breaks a limit", {"x": []})["x"]


def test_a_prediction_is_drawn_in_the_unit_that_fits() -> None:
    chart = dict(knob_slices(model()))["gpu.clock_mhz and energy_j"]
    assert chart["layout"]["yaxis"]["title"]["text"] == "energy_j (J)"


def test_each_varied_knob_has_a_chart_and_each_trial_a_line() -> None:
    verbs, study = held()
    report, trials = verbs.report(study), verbs.trials(study)
    assert varying_knobs(trials) == ["gpu.clock_mhz"]
    assert [name for name, _ in knob_effects(report, trials)] == ["gpu.clock_mhz"]
    chart = parallel(report, trials)
    assert chart is not None
    assert chart["layout"]["xaxis"]["ticktext"] == ["gpu.clock_mhz", "energy_j", "latency_p99_ms"]
    lines = sum(trace["x"].count(None) for trace in chart["data"])
    assert lines == len(trials)
    assert all(0.0 <= y <= 1.0 for t in chart["data"] for y in t["y"] if y is not None)
    assert parallel(report, trials[:1]) is None
