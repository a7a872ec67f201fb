"""Which setting to measure next: the one whose window is worth most, net of what it risks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from tuner import guard
from tuner.bo.lookahead import ahead
from tuner.bo.search import Search
from tuner.core import Try, render_setting

LOOKED_AT = int(os.environ.get("LOOK","12"))
"""So many rows each are looked at of the best measured, of those that promise most, of those that the
likeliest components promise most of, and of those drawn by their chance to keep the limits."""



PATIENCE = float(os.environ.get("PAT", "0.8"))

@dataclass(frozen=True)
class Choice:
    """Some rows, and what a window at each is worth, as a share of what the baseline costs.

    `value` counts what may be deployed after it and after one more; `own` what it may itself be worth
    deploying; `then` is the row that comes next most often.
    """

    rows: Tensor
    value: Tensor
    own: Tensor
    then: Tensor


def decide(search: Search) -> Try | None:
    """Return the setting that is most worth measuring, None where nothing is worth a trial."""
    for factor in eval(os.environ.get("FAC","(4.0,2.0,1.0)")):
        found = _decide(replace(search, factor=factor))
        if found is not None:
            return found
    return None


def _decide(search: Search) -> Try | None:
    choice = look_ahead(search)
    for at in choice.value.argsort(descending=True).tolist():
        if not float(choice.value[at]) > search.caution.trial:
            return None
        row = int(choice.rows[at])
        attempt = search.attempt(row, _why(search, choice, at))
        if guard.risk(search.study, search.evidence, attempt.predicted) is None:
            return attempt
    return None


def promise(search: Search) -> Tensor:
    """Return what each row promises by itself: its expected gain, less the price of its risk."""
    best = search.deployable[0]
    worth = float(search.worth(search.chance[best], search.view.cost[best]))
    gain = search.view.gain(-worth) * search.chance / search.view.chance.clamp_min(1e-300)
    return gain - search.price


def look_ahead(search: Search) -> Choice:
    """Return what a window at each of the rows worth looking at would bring."""
    rows, measured = _rows(search)
    view, caution = search.view, search.caution
    noise = [_noise(search, place) for place in range(len(view.models))]
    after = ahead(view.models, rows, noise, search.study.seed)
    fails = (search.chance / view.chance.clamp_min(1e-300))[rows]
    worth = search.worth(after.kept * fails, after.cost)
    here = torch.eye(len(rows), dtype=torch.bool)
    known = measured | here
    deployed = torch.where(known[:, None], worth, -torch.inf).amax(dim=2)
    risk = search.factor * caution.violation * float(search.chance[search.baseline]) / 2.0
    price = risk * (1.0 - after.kept + after.overshoot / 0.1)
    gain = after.gain(-deployed) * fails - price
    fresh = search.allowed[rows] & ~measured
    gain = torch.where(fresh & ~here[:, None], gain, 0.0)
    following, which = gain.max(dim=2)
    following = PATIENCE * following if search.past.left > 1 else torch.zeros_like(following)
    best = int((rows == search.deployable[0]).nonzero())
    # Against the best of today after the same outcomes: what does not change it is worth nothing.
    again = (deployed - worth[:, :, best]).mean(dim=1) - search.price[rows]
    own = torch.where(measured, again, promise(search)[rows])
    value = own + following.mean(dim=1)
    value = torch.where(search.allowed[rows], value / search.effort[rows], -torch.inf)
    return Choice(rows, value, own, which.mode(dim=1).values)


def _rows(search: Search) -> tuple[Tensor, Tensor]:
    """Return the rows worth looking at, and which of them are measured and may be deployed."""
    best = search.deployable[0]
    worth = float(search.worth(search.chance[best], search.view.cost[best]))
    allowed = torch.where(search.allowed, 0.0, -torch.inf)
    promised = (promise(search) + allowed).topk(min(LOOKED_AT, len(allowed))).indices
    leader = search.view.models[0]
    each = search.view.log_gain(-worth)[:, leader.weights.argsort(descending=True)[:LOOKED_AT]]
    by_each = (each + allowed[:, None]).argmax(dim=0)
    chance = torch.where(search.allowed, search.chance, 0.0).clamp_min(1e-12)
    drawn = torch.Generator().manual_seed(search.study.seed)
    some = torch.multinomial(chance, min(LOOKED_AT, len(chance)), generator=drawn)
    measured = torch.tensor(search.deployable[:LOOKED_AT], dtype=torch.long)
    rows = torch.cat([measured, promised, by_each, some]).unique()
    return rows, torch.isin(rows, measured)


def _noise(search: Search, place: int) -> Tensor:
    """Return a window's usual deviation, outcome by outcome of a model."""
    view, model = search.view, search.view.models[place]
    by_column = {c: view.noise[m] for m, (p, c) in view.where.items() if p == place}
    return torch.tensor(
        [abs(o.factor) * by_column[o.column] for o in model.outcomes], dtype=torch.float64
    )


def _why(search: Search, choice: Choice, at: int) -> str:
    """Return why a row is tried: for what it promises, or for what its window tells of another."""
    row, then = int(choice.rows[at]), int(choice.rows[int(choice.then[at])])
    own = 2.0 * float(choice.own[at]) > float(choice.value[at])
    if own or then == row:
        again = "; measured again, to narrow its error" if row in search.view.measured else ""
        return search.outlook(row) + again
    setting = render_setting(search.grid.settings[then])
    return f"safety probe for {setting}: {search.outlook(then)}"
