"""The search uses the declared role of a knob and quantity of a metric, never their names."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from agents.devices.simulated.presets import ORIN, TX2, Preset
from jouletune_bench.replay.table import Surface, load_surface
from policies import load_policy
from tests.builders import asked, trial, window
from tuner.core import (
    Constraint,
    Done,
    Estimate,
    Measurement,
    Objective,
    Past,
    Phase,
    Quantity,
    Role,
    Setting,
    Space,
    Study,
    Try,
    Wait,
    quantity_of,
    setting_key,
)

Measure = Callable[[Setting], Measurement]
SHOWN = ("energy_j", "latency_p99_ms", "power_w", "throughput_per_s")


def made_up(space: Space) -> Measure:
    """Return windows of a device that is slower and uses less energy at lower values of its knobs."""

    def measure(at: Setting) -> Measurement:
        places = [(k.index(at[k.name]) + 1) / len(k.values) for k in space.knobs]
        slow = 1.0 + 0.3 * (len(places) - sum(places)) / len(places)
        return window(10.0 / slow**2, 100.0 * slow)

    return measure


def of_table(table: Surface) -> Measure:
    """Return windows with the values of a table and the errors of real windows."""

    def measure(at: Setting) -> Measurement:
        means = table.row(at)
        shown = {m: Estimate.of_mean(x, 0.01 * x, 10) for m, x in means.items()}
        return replace(window(), estimates=shown)

    return measure


def suggested(study: Study, measure: Measure) -> list[Setting]:
    """Return the first suggestions of a study."""
    policy = load_policy("polythrottle")
    first = measure(study.baseline)
    trials = [trial(n, study.baseline, first, phase=Phase.BASELINE) for n in (1, 2)]
    settings: list[Setting] = []
    for number in range(3, 9):
        answer = policy.suggest(Past(study=study, trials=tuple(trials)))
        assert not isinstance(answer, Wait)
        if isinstance(answer, Done):
            break
        assert isinstance(answer, Try)
        settings.append(answer.setting)
        trials.append(trial(number, answer.setting, measure(answer.setting)))
    return settings


def suggested_renamed(
    study: Study, measure: Measure, declared: Mapping[str, Quantity]
) -> list[Setting]:
    """Return the suggestions for meaningless names, translated back to the real names."""
    knobs = {k.name: f"x{n}" for n, k in enumerate(study.space.knobs)}
    back = {x: name for name, x in knobs.items()}
    metrics = {name: f"y{n}" for n, name in enumerate(declared)}

    def renamed(at: Setting) -> Setting:
        return {knobs[name]: value for name, value in at.items()}

    def measured(at: Setting) -> Measurement:
        seen = measure({back[x]: value for x, value in at.items()})
        return replace(seen, estimates={metrics[m]: e for m, e in seen.estimates.items()})

    space = Space(
        tuple(replace(k, name=knobs[k.name]) for k in study.space.knobs),
        tuple(renamed(at) for at in study.space.only),
    )
    plain = replace(
        study,
        space=space,
        objective=replace(study.objective, metric=metrics[study.objective.metric]),
        constraints=tuple(replace(c, metric=metrics[c.metric]) for c in study.constraints),
        quantities={metrics[name]: quantity for name, quantity in declared.items()},
    )
    return [{back[x]: v for x, v in at.items()} for at in suggested(plain, measured)]


@pytest.mark.parametrize("preset", [ORIN, TX2], ids=lambda preset: preset.name)
def test_a_made_up_device_is_tuned_the_same_under_other_names_of_knobs_and_metrics(
    preset: Preset,
) -> None:
    study = asked(20, space=Space(preset.knobs))
    measure = made_up(study.space)
    suggestions = suggested(study, measure)
    assert len(suggestions) > 2
    declared = {name: quantity_of(name) for name in SHOWN}
    assert suggested_renamed(study, measure, declared) == suggestions


@pytest.mark.surfaces
@pytest.mark.parametrize("spec", ["zeus_nsdi23.csv", "nornir_leo.csv"])
def test_a_measured_surface_is_tuned_the_same_under_other_column_names(
    spec: str, tables: Path
) -> None:
    table = first_surface(tables / spec)
    study = asked(
        20,
        space=table.space,
        objective=Objective(table.objective),
        constraints=(),
        quantities=table.quantities,
    )
    study = replace(study, constraints=(Constraint(table.constrained, "<=", 1.2, relative=True),))
    suggestions = suggested(study, of_table(table))
    assert len(suggestions) > 2
    assert suggested_renamed(study, of_table(table), table.quantities) == suggestions


@pytest.fixture
def tables() -> Path:
    """The folder of measured surfaces."""
    beside = Path(__file__).parents[5] / "shared" / "data" / "surfaces"
    folder = Path(os.environ.get("JOULETUNE_SURFACES", beside))
    if not folder.is_dir():
        pytest.skip("no measured surfaces: set JOULETUNE_SURFACES to their folder")
    return folder


def first_surface(path: Path) -> Surface:
    """Return the first surface of a table."""
    names = dict.fromkeys(
        line.split(",")[0] for line in path.read_text(encoding="utf-8").splitlines()[1:]
    )
    return load_surface(f"{path}#{next(iter(names))}")


def test_without_a_role_it_is_tuned_otherwise() -> None:
    """Without this difference the tests above could not fail."""
    knobs = tuple(replace(k, role=Role.UNKNOWN) for k in ORIN.knobs)
    declared, unknown = (asked(20, space=Space(k)) for k in (ORIN.knobs, knobs))
    measure = made_up(declared.space)
    assert suggested(declared, measure) != suggested(unknown, measure)


def test_without_a_quantity_it_is_tuned_otherwise() -> None:
    study = asked(20, space=Space(ORIN.knobs))
    measure = made_up(study.space)
    nothing = dict.fromkeys(SHOWN, Quantity("", signed=True))
    suggestions = [setting_key(at) for at in suggested(study, measure)]
    plain = [setting_key(at) for at in suggested_renamed(study, measure, nothing)]
    assert suggestions != plain
