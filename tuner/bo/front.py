"""Two objectives: choose the next trial so that their Pareto front moves furthest.

Noisy expected hypervolume improvement in its logarithmic form: Daulton, Balandat and Bakshy
(NeurIPS 2021) for the acquisition, Ament et al. (NeurIPS 2023) for its logarithm, both as BoTorch
implements them. Each objective is modelled as in a search for it alone (`tuner.bo.beliefs`),
independent of the other: our choice. Limits weigh by their chance to be kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from botorch.acquisition.multi_objective import logei
from botorch.models.model import Model
from botorch.posteriors.gpytorch import GPyTorchPosterior
from botorch.sampling.normal import SobolQMCNormalSampler
from botorch.utils.multi_objective.hypervolume import Hypervolume, infer_reference_point
from botorch.utils.multi_objective.pareto import is_non_dominated
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from torch import Tensor

from tuner.bo.beliefs import believe
from tuner.bo.caution import even_chance
from tuner.bo.outcomes import LEAST_VARIANCE, OutcomeModel
from tuner.bo.search import Search
from tuner.bo.suggest import search_of
from tuner.core import Done, Objective, Past, Plan, Suggestion, TrialState, Try, Wait

SAMPLES = 128
MOST_LOOKED_AT = 32
"""Candidates that are compared exactly: those with the most promising marginals."""
MOST_COMPONENTS = 8
"""Joint covariances are formed for this number of the likeliest components: our choice, for
speed."""
WORTH = 1e-3
"""A trial is not worth it if the hypervolume is expected to grow by a smaller share: our choice."""


def suggest_front(past: Past, second: Objective) -> Suggestion:
    """Return the next trial for the front of a study's objective and a second one.

    At the end one point of the front is proposed. Of the points that beat the baseline in the first
    objective it has the least product of both objectives, as shares of the baseline's (for energy
    and latency the energy-delay product).

    Raises:
        MetricUnavailable: no trial measured a metric that the study aims at or limits.
    """
    if past.limits is None:
        return Wait("the baseline has not been measured yet")
    if past.left <= 0 and past.running:
        return Wait("the last trial is still running")
    first = search_of(past)
    other = replace(past, study=replace(past.study, objective=second))
    running = [t.setting for t in past.trials if t.state is TrialState.RUNNING]
    # In a space that is too large to enumerate, both searches use the same settings.
    view = believe(other.study, other.evidence, first.grid, running)
    searches = first, Search(other, first.grid, view)
    chosen = None if past.left <= 0 else _explored(searches)
    if chosen is not None:
        return chosen
    if past.running:
        return Wait("waiting for running trials")
    why = "no further trial would move the front enough" if past.left > 0 else "all trials are used"
    return _done(searches, why)


def _explored(searches: tuple[Search, Search]) -> Try | None:
    """Return the trial that is expected to move the front furthest; None if no trial is worth it."""
    first = searches[0]
    kept = first.chance >= even_chance(first.caution.wrong)
    measured = sorted({first.baseline, *(row for row in first.view.measured if kept[row])})
    open_rows = first.allowed.clone()
    open_rows[list(first.view.measured)] = False
    open_rows &= first.chance > 1.0 - even_chance(first.caution.violation)
    rows = torch.nonzero(open_rows).flatten()
    if len(rows) == 0:
        return None
    promising = rows[
        _promise(searches, measured, rows).topk(min(MOST_LOOKED_AT, len(rows))).indices
    ]
    points = [*measured, *first.view.running, *promising.tolist()]
    model = FrontModel([search.view.models[0] for search in searches], points)
    count = len(points) - len(promising)
    # From expected values, not measured ones, as the front of one good trial is a single point.
    reference = infer_reference_point(_front(model.mean))
    places = torch.arange(len(points), dtype=torch.float64)[:, None]
    # Without this BoTorch compiles a C++ kernel here, and waits without end if another compilation of
    # it was killed.
    logei._load_attempted = True
    improvement = logei.qLogNoisyExpectedHypervolumeImprovement(
        model,
        reference,
        places[:count],
        sampler=SobolQMCNormalSampler(torch.Size([SAMPLES]), seed=first.study.seed),
        prune_baseline=False,
        cache_root=False,
    )
    with torch.no_grad():
        value = improvement(places[count:, None]) + first.chance[promising].log()
    chosen = int(value.argmax())
    volume = Hypervolume(reference).compute(_front(model.mean[: len(measured)]))
    share = float(value[chosen].exp()) / max(volume, LEAST_VARIANCE)
    if share < WORTH:
        return None
    metrics = " and ".join(search.study.objective.metric for search in searches)
    size = f"by {share:.1%}" if share < 1.0 else "to more than twice its size"
    return first.attempt(int(promising[chosen]), f"expected to grow the front of {metrics} {size}")


def _promise(searches: tuple[Search, Search], measured: Sequence[int], rows: Tensor) -> Tensor:
    """Return the most by which each row may beat the measured rows in some mix of both objectives.

    It is the best case of the row's marginals over three mixes.
    """
    best = [search.view.cost[rows] - search.view.cost_sd[rows] for search in searches]
    have = [search.view.cost[list(measured)] for search in searches]
    gains = [
        (share * have[0] + (1 - share) * have[1]).min() - (share * best[0] + (1 - share) * best[1])
        for share in (0.1, 0.5, 0.9)
    ]
    spread = max(float((h.max() - h.min()).clamp_min(LEAST_VARIANCE)) for h in have)
    return torch.stack(gains).amax(dim=0) / spread + searches[0].chance[rows].log()


def _front(points: Tensor) -> Tensor:
    """Return the points that no other point beats in both objectives."""
    return points[is_non_dominated(points)]


def _done(searches: tuple[Search, Search], why: str) -> Done:
    """Propose a point of the front by its rule, or the baseline."""
    first = searches[0]
    rows = list(first.deployable[:-1])
    if not rows:
        return Done(Plan.single(first.study.baseline), f"{why}; nothing likely beats the baseline")
    costs = torch.stack([search.view.cost[rows] for search in searches], dim=1)
    best = rows[int(costs.sum(dim=1).argmin())]
    count = int(is_non_dominated(-costs).sum())
    rule = f"the least product of {' and '.join(s.study.objective.metric for s in searches)}"
    return Done(
        Plan.single(first.grid.settings[best]),
        f"{why}; of {count} settings on the front this one has {rule}; {first.outlook(best)}",
    )


class FrontModel(Model):
    """Two objectives over some rows, more is better; inputs are indices into the list of rows.

    Each objective is the first outcome of a mixture, as the normal distribution of the same
    moments.
    """

    num_outputs = 2

    def __init__(self, models: Sequence[OutcomeModel], rows: Sequence[int]) -> None:
        super().__init__()
        means, covariances = zip(*(_moments(model, rows) for model in models), strict=True)
        self.mean, self.covariances = -torch.stack(means, dim=1), covariances

    def posterior(self, X: Tensor, *_: object, **__: object) -> GPyTorchPosterior:
        """Return the joint posterior of `batch x q x 1` places."""
        at = X.squeeze(-1).long()
        least = LEAST_VARIANCE * torch.eye(at.shape[-1], dtype=torch.float64)
        each = [
            MultivariateNormal(mean[at], covariance[at[..., :, None], at[..., None, :]] + least)
            for mean, covariance in zip(self.mean.T, self.covariances, strict=True)
        ]
        return GPyTorchPosterior(MultitaskMultivariateNormal.from_independent_mvns(each))


def _moments(model: OutcomeModel, rows: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return mean and covariance of a model's objective over some rows, over its likeliest components."""
    objective = model.outcomes[0]
    mean, covariance = model.mixture.beside_home(objective.column, rows, MOST_COMPONENTS)
    return objective.factor * mean, objective.factor**2 * covariance
