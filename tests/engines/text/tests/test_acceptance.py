from __future__ import annotations

import pytest
import torch
from scipy import stats

from tests.engines.text.acceptance import TIE, Accepted, greedy, sampled

DRAWS = 4000


def one_hot(*tokens: int) -> torch.Tensor:
    return torch.nn.functional.one_hot(torch.tensor([tokens]), 5).float()


@pytest.mark.parametrize(
    ("drafted", "accepted"),
    [
        ([1, 2, 3], Accepted(3, 4)),
        ([1, 2, 0], Accepted(2, 3)),
        ([0, 2, 3], Accepted(0, 1)),
    ],
)
def test_greedy_drafts_are_accepted_up_to_the_first_other_token(
    drafted: list[int], accepted: Accepted
) -> None:
    assert greedy(one_hot(1, 2, 3, 4), torch.tensor([drafted])) == [accepted]


def test_near_ties_are_counted_where_they_decided() -> None:
    logits = one_hot(1, 2, 3)
    logits[0, 1, 4] = 1.0 - TIE / 2
    assert greedy(logits, torch.tensor([[1, 2]]))[0].ties == 1
    assert greedy(logits, torch.tensor([[0, 2]]))[0].ties == 0, "never came that far"


def test_without_a_draft_the_target_gives_one_token() -> None:
    assert greedy(one_hot(3), torch.empty((1, 0), dtype=torch.long)) == [Accepted(0, 3)]


@pytest.mark.parametrize("with_chances", [True, False], ids=["drawn", "proposed"])
def test_the_output_has_the_distribution_of_the_target_alone(with_chances: bool) -> None:
    """Chi-square over the first token, drafted from another distribution or always the same."""
    random = torch.Generator().manual_seed(1)
    target = torch.tensor([[0.5, 0.2, 0.15, 0.1, 0.05], [0.2] * 5])
    draft = torch.tensor([[0.1, 0.1, 0.3, 0.25, 0.25]])
    counts = [0] * 5
    for _ in range(DRAWS):
        if with_chances:
            drafted = torch.multinomial(draft[0], 1, generator=random)
            accepted = sampled(target, drafted, draft, random)
        else:
            drafted = torch.tensor([2])
            accepted = sampled(target, drafted, None, random)
        counts[int(drafted[0]) if accepted.count else accepted.following] += 1
    expected = [DRAWS * float(p) for p in target[0]]
    assert stats.chisquare(counts, expected).pvalue > 0.01


def test_a_draft_that_is_the_target_is_always_accepted() -> None:
    random = torch.Generator().manual_seed(2)
    chances = torch.tensor([[0.25, 0.25, 0.5]] * 4)
    for _ in range(200):
        drafted = torch.multinomial(chances[:3], 1, generator=random)[:, 0]
        assert sampled(chances, drafted, chances[:3], random).count == 3
