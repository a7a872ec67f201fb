"""What a knob does is what is declared of it; what it is called is nobody's business."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agents.devices.simulated.presets import ORIN, TX2, Preset
from policies import load_policy
from tests.builders import START, asked, trial, window
from tuner.core import Done, Past, Phase, Setting, Space, Study, Try, Wait


def renamed(space: Space) -> Space:
    """Return the space with names that say nothing."""
    assert not space.only
    return Space(tuple(replace(k, name=f"x{n}") for n, k in enumerate(space.knobs)))


def suggested(study: Study) -> list[Setting]:
    """Return the first suggestions of a study of a made-up device, each knob's value in order."""
    policy = load_policy("polythrottle")
    trials = [trial(n, study.baseline, window(), phase=Phase.BASELINE) for n in (1, 2)]
    found: list[Setting] = []
    for number in range(3, 7):
        answer = policy.suggest(Past(study=study, trials=tuple(trials), now=START))
        assert not isinstance(answer, Wait)
        if isinstance(answer, Done):
            break
        assert isinstance(answer, Try)
        found.append(answer.setting)
        places = [k.index(answer.setting[k.name]) / len(k.values) for k in study.space.knobs]
        slow = 1.0 + 0.3 * (len(places) - sum(places)) / len(places)
        trials.append(trial(number, answer.setting, window(10.0 / slow**2, 100.0 * slow)))
    return found


@pytest.mark.parametrize("preset", [ORIN, TX2], ids=lambda preset: preset.name)
def test_a_knob_is_tuned_by_its_role_whatever_it_is_called(preset: Preset) -> None:
    space = Space(preset.knobs)
    names = {k.name: f"x{n}" for n, k in enumerate(space.knobs)}
    known = suggested(asked(20, space=space))
    plain = suggested(asked(20, space=renamed(space)))
    assert len(known) > 2
    assert plain == [{names[k]: v for k, v in s.items()} for s in known]


def test_without_a_role_it_is_tuned_otherwise() -> None:
    """Or the test above could not fail."""
    knobs = tuple(replace(k, role=type(k.role).UNKNOWN) for k in ORIN.knobs)
    declared, unknown = (asked(20, space=Space(k)) for k in (ORIN.knobs, knobs))
    assert suggested(declared) != suggested(unknown)
