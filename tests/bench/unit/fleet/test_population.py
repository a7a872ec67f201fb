from __future__ import annotations

from collections import Counter
from dataclasses import replace
from statistics import fmean

import numpy as np
import pytest

from jouletune_bench.fleet.devices import load_devices
from jouletune_bench.fleet.population import conditions, population

DEVICES = load_devices()
LABELS = np.repeat(np.arange(10), 120)


@pytest.mark.parametrize("alpha", [None, 10.0, 0.1])
def test_every_sample_belongs_to_one_client_and_every_client_has_some(alpha: float | None) -> None:
    fleet = population(DEVICES, LABELS, 100, alpha, seed=0)
    owned = np.concatenate([client.samples for client in fleet])
    assert sorted(owned) == list(range(len(LABELS)))
    assert min(len(client.samples) for client in fleet) >= 1


def test_a_small_alpha_gives_clients_few_labels() -> None:
    def held(alpha: float | None) -> float:
        fleet = population(DEVICES, LABELS, 100, alpha, seed=0)
        return fmean(len(np.unique(LABELS[c.samples])) for c in fleet)

    assert held(0.1) < 4.0 < min(held(10.0), held(None))


def test_classes_have_their_shares_and_are_not_those_of_the_first_clients() -> None:
    fleet = population(DEVICES, LABELS, 100, None, seed=0)
    assert Counter(c.kind.name for c in fleet) == {"high": 30, "mid": 40, "low": 30}
    assert len({c.kind.name for c in fleet[:10]}) > 1


def test_a_round_finds_a_client_the_same_by_seed_client_and_round() -> None:
    fleet = population(DEVICES, LABELS, 10, None, seed=0)
    assert conditions(DEVICES, fleet[0], 3, 0) == conditions(DEVICES, fleet[0], 3, 0)
    seen = {
        conditions(DEVICES, c, r, s).link.up_mbps for c in fleet[:3] for r in (1, 2) for s in (0, 1)
    }
    assert len(seen) > 8


def test_interference_occurs_at_its_stated_rate() -> None:
    client = population(DEVICES, LABELS, 10, None, seed=0)[0]
    drawn = [conditions(DEVICES, client, r, 0) for r in range(400)]
    busy = [c for c in drawn if c.load > 0.0]
    assert 0.2 < len(busy) / 400 < 0.4
    assert all(0.1 <= c.load <= 0.9 and 0.1 <= c.memory <= 0.9 for c in busy)
    quiet = replace(DEVICES, interference=replace(DEVICES.interference, chance=0.0))
    assert all(conditions(quiet, client, r, 0).load == 0.0 for r in range(20))
