from __future__ import annotations

import numpy as np
import pytest

from policies.fedgpo.bandit import Bandit, LogLinearModel
from tests.unit.policies.fedgpo.made_up import MadeUp, federated, played, space


def test_a_log_linear_model_finds_weights_and_forgets_its_doubt() -> None:
    rng = np.random.default_rng(0)
    features = np.column_stack([np.ones(200), rng.normal(size=200)])
    values = np.exp(features @ [0.5, -0.4]) + rng.normal(scale=0.1, size=200)
    found = LogLinearModel(np.zeros(2), np.ones(2), noise=0.05).fitted(features, values)
    assert found.mean == pytest.approx([0.5, -0.4], abs=0.05)
    assert np.sqrt(np.diag(found.cov)).max() < 0.02


def test_without_data_the_prior_is_left() -> None:
    prior = np.array([1.0, 3.0])
    model = LogLinearModel(prior, np.array([0.1, 0.2]), noise=1.0)
    found = model.fitted(np.zeros((1, 2)), np.ones(1))
    assert found.mean == pytest.approx(prior)
    assert np.sqrt(np.diag(found.cov)) == pytest.approx([0.1, 0.2])


def test_rounds_that_lost_accuracy_are_taken_as_they_are() -> None:
    features = np.column_stack([np.ones(6), np.arange(6.0)])
    values = np.array([1.0, -0.5, 0.8, -0.2, 1.1, 0.1])
    found = LogLinearModel(np.zeros(2), np.ones(2), noise=0.3).fitted(features, values)
    assert np.isfinite(found.mean).all() and np.isfinite(found.cov).all()


def test_it_comes_near_the_most_progress_per_joule() -> None:
    best = max(MadeUp().efficiency(setting) for setting in space().grid())
    trials, _ = played(Bandit(), federated(), 30)
    late = [MadeUp().efficiency(t.setting) for t in trials[20:]]
    assert sum(late) / len(late) > 0.6 * best
