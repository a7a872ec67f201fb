"""Exact acceptance of drafted tokens: the output has the distribution of the target alone.

Greedy: a token is accepted if it is the target's first choice. Sampling: Leviathan et al. 2023
(arXiv 2211.17192), algorithm 1 and appendix A.1: a token x drafted from q is accepted with the chance
min(1, p(x)/q(x)); the first rejected token is replaced by a draw from the positive part of p − q.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

COLDEST = 1e-6
"""The lowest temperature; below it single precision would divide by zero."""
TIE = 1e-4
"""If the target's two largest logits are closer than this, rounding may decide between them."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The number of accepted tokens, the token that follows them, and the number of near ties."""

    count: int
    following: int
    ties: int = 0


def greedy(logits: Tensor, drafted: Tensor) -> list[Accepted]:
    """Return the accepted part of each row: logits (rows, s + 1, vocab), drafted tokens (rows, s)."""
    best = logits.topk(2, dim=-1)
    choices = best.indices[..., 0]
    near = (best.values[..., 0] - best.values[..., 1]) < TIE
    matches = (choices[:, :-1] == drafted).long().cumprod(-1)
    counts = matches.sum(-1)
    following = choices.gather(1, counts[:, None])[:, 0]
    seen = torch.arange(choices.shape[1], device=choices.device) <= counts[:, None]
    ties = (near & seen).sum(-1)
    return [
        Accepted(*row)
        for row in zip(counts.tolist(), following.tolist(), ties.tolist(), strict=True)
    ]


def sampled(
    target: Tensor, drafted: Tensor, draft: Tensor | None, random: torch.Generator
) -> Accepted:
    """Return the accepted part of one row.

    `target` (s + 1, vocab) has the target's probabilities at each position, `drafted` (s) the proposed
    tokens, and `draft` (s, vocab) the probabilities from which these were drawn; None for a
    deterministic draft.
    """
    count = drafted.shape[0]
    dice = torch.rand(count, generator=random).tolist()
    for place in range(count):
        token = int(drafted[place])
        wanted = target[place]
        proposed = 1.0 if draft is None else float(draft[place, token])
        if dice[place] * proposed < float(wanted[token]):
            continue
        if draft is None:
            left = wanted.clone()
            left[token] = 0.0
        else:
            left = (wanted - draft[place]).clamp_min(0.0)
        return Accepted(place, draw(left if float(left.sum()) > 0.0 else wanted, random))
    return Accepted(count, draw(target[count], random))


def chances(logits: Tensor, temperature: float) -> Tensor:
    """Return each token's probability at a temperature above 0; the lowest take only the first choice."""
    return ((logits - logits.amax(-1, keepdim=True)) / max(temperature, COLDEST)).softmax(-1)


def draw(weights: Tensor, random: torch.Generator) -> int:
    """Return a token by its weight, which need not add up to one."""
    return int(torch.multinomial(weights.cpu(), 1, generator=random))
