from __future__ import annotations

import numpy as np
import pytest

from policies.fedgpo.bandit import Bandit, LinearModel
from tests.unit.policies.fedgpo.made_up import MadeUp, federated, played, space


def test_a_linear_model_finds_weights_and_forgets_its_doubt() -> None:
    rng = np.random.default_rng(0)
    features = np.column_stack([np.ones(200), rng.normal(size=200)])
    values = features @ [2.0, -1.0] + rng.normal(scale=0.1, size=200)
    found = LinearModel.fitted(features, values, np.zeros(2), np.ones(2), noise=0.05)
    assert found.mean == pytest.approx([2.0, -1.0], abs=0.05)
    assert np.sqrt(np.diag(found.cov)).max() < 0.02


def test_without_data_the_prior_is_left() -> None:
    prior = np.array([1.0, 3.0])
    found = LinearModel.fitted(
        np.zeros((1, 2)), np.zeros(1), prior, np.array([0.1, 0.2]), noise=1.0
    )
    assert found.mean == pytest.approx(prior)
    assert np.sqrt(np.diag(found.cov)) == pytest.approx([0.1, 0.2])


def test_it_comes_near_the_most_progress_per_joule() -> None:
    best = max(MadeUp().efficiency(setting) for setting in space().grid())
    trials, _ = played(Bandit(), federated(), 30)
    late = [MadeUp().efficiency(t.setting) for t in trials[20:]]
    assert sum(late) / len(late) > 0.6 * best
