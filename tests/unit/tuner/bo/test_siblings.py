from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from tests.builders import baseline, past, setting, study, surface, trial
from tests.contracts.posteriors import posterior
from tuner.bo.beliefs import View, believe
from tuner.bo.encoding import enumerate_grid
from tuner.bo.explore import explore
from tuner.bo.siblings import MOST_TRUST, coordinates, sibling_hypotheses
from tuner.bo.suggest import search_of, suggest
from tuner.core import (
    NO_MEMORY,
    Closeness,
    Posterior,
    Sibling,
    SiblingMemory,
    Trial,
    Try,
    setting_key,
    weigh,
)

SAME = Closeness.BOARD_AND_WORKLOAD
METRICS = ("energy_j", "latency_p99_ms")
GRID = enumerate_grid(study().space)


def told(energy: float = 1.0, latency: float = 1.0, name: str = "s1") -> Posterior:
    """Return a posterior of the true surface, its logarithms multiplied."""
    base = surface(study().baseline).estimates
    home = GRID.rows[setting_key(study().baseline)]
    order = [home, *(n for n in range(len(GRID.settings)) if n != home)]
    columns = coordinates(GRID)
    means = [
        tuple(
            factor * math.log(surface(GRID.settings[n]).estimates[metric].mean / base[metric].mean)
            for n in order
        )
        for metric, factor in zip(METRICS, (energy, latency), strict=True)
    ]
    none = tuple(tuple(0.0 for _ in row) for row in means)
    points = tuple(tuple(column[n] for column in columns) for n in order)
    return posterior(name, points=points, means=tuple(means), directions=(none,))


def memory(*posteriors: Posterior, trusted: float = 0.9) -> SiblingMemory:
    siblings = tuple(Sibling(p, SAME) for p in posteriors)
    return SiblingMemory(repr((posteriors, trusted)), siblings, {SAME: trusted})


def viewed(trials: list[Trial], remembered: SiblingMemory) -> View:
    evidence = weigh(study(), trials)
    return believe(study(), evidence, GRID, memory=remembered)


def test_a_posterior_predicts_its_own_space() -> None:
    (one,) = sibling_hypotheses(GRID, METRICS, memory(told()), 3)
    true = [surface(s).estimates["energy_j"].mean for s in GRID.settings]
    base = surface(study().baseline).estimates["energy_j"].mean
    expected = torch.tensor([math.log(value / base) for value in true], dtype=torch.float64)
    assert torch.allclose(one.centres[0, : len(true)], expected, atol=0.02)
    assert one.odds == pytest.approx(27.0) and one.siblings == ("s1",)


def test_several_are_one_by_one_and_mixed_and_trusted_within_bounds() -> None:
    each, mixed = sibling_hypotheses(GRID, METRICS, memory(told(), told(2.0, name="s2")), 3)
    assert (len(each.centres), len(mixed.centres)) == (2, 1)
    surest = sibling_hypotheses(GRID, METRICS, memory(told(), trusted=1.0), 1)
    assert surest[0].odds == pytest.approx(MOST_TRUST / (1.0 - MOST_TRUST))


@pytest.mark.parametrize(
    "changes",
    [{"metrics": ("energy_j", "latency_p50_ms")}, {"knobs": told().knobs[:1]}],
    ids=["a metric less", "a knob less"],
)
def test_one_that_does_not_cover_the_study_is_no_hypothesis(changes: dict[str, object]) -> None:
    fields = {"points": told().points, "means": told().means, "directions": told().directions}
    other = posterior(**{**fields, **changes})  # type: ignore[arg-type]
    assert not sibling_hypotheses(GRID, METRICS, memory(other), 3)


def test_siblings_change_nothing_before_a_window_agrees() -> None:
    claims = memory(told(3.0, 0.0), trusted=0.95)
    trials = baseline(study())
    before, cold = viewed(trials, claims), viewed(trials, NO_MEMORY)
    assert torch.allclose(before.chance, cold.chance)
    assert torch.allclose(before.cost, cold.cost)


def test_siblings_that_a_window_contradicts_change_nothing_and_fade() -> None:
    claims = memory(told(3.0, 0.0), trusted=0.95)
    slower = setting(600)
    trials = [*baseline(study()), trial(3, slower, surface(slower))]
    after, cold = viewed(trials, claims), viewed(trials, NO_MEMORY)
    assert torch.allclose(after.chance, cold.chance)
    mixture = after.models[0].mixture
    assert mixture.siblings_share < 0.5 < mixture.siblings_prior


@pytest.mark.parametrize("steeper", [1.0, 1.3], ids=["milder limits", "harder limits"])
def test_siblings_that_a_window_confirms_weigh_more_and_never_raise_a_chance(
    steeper: float,
) -> None:
    right = memory(told(1.0, steeper), told(1.02, 1.02 * steeper, "s2"), trusted=0.5)
    slower = setting(800)
    trials = [*baseline(study()), trial(3, slower, surface(slower))]
    after, cold = viewed(trials, right), viewed(trials, NO_MEMORY)
    mixture = after.models[0].mixture
    assert mixture.siblings_share > 0.8 > mixture.siblings_prior
    assert mixture.siblings_agree
    assert not torch.allclose(after.cost, cold.cost)
    assert (after.chance <= cold.chance).all()
    assert (after.chance < cold.chance - 0.02).any()


@pytest.mark.parametrize(
    "wrong", [told(energy=-3.0), told(latency=5.0)], ids=["no gain", "a limit broken"]
)
def test_siblings_that_see_no_saving_elsewhere_end_no_search(wrong: Posterior) -> None:
    known, rule = [study().baseline, setting(800)], {"unmoved"}
    trials = [*baseline(study()), trial(3, known[1], surface(known[1]))]
    right, rows = told(), [GRID.rows[setting_key(study().baseline)]]
    rows += [n for n in range(len(GRID.settings)) if n != rows[0]]
    means = tuple(
        tuple(near[n] if GRID.settings[row] in known else far[n] for n, row in enumerate(rows))
        for near, far in zip(right.means, wrong.means, strict=True)
    )
    about = replace(past(study(), trials), memory=memory(replace(right, means=means)))
    search = search_of(about)
    alone = search.view.alone
    assert search.view.models[0].mixture.siblings_agree and alone is not None
    own = explore(replace(search, view=alone), rule)
    answer = suggest(about, without=rule)
    assert isinstance(answer, Try) and own is not None and answer.setting == own.setting
    assert answer.setting not in known and "1 sibling, weight" in answer.why
