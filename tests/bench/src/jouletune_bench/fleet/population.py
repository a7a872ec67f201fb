"""The clients of a federation: their class, network and data, and their conditions in each round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jouletune_bench.fleet.devices import Bandwidth, DeviceClass, FleetDevices, Radio
from jouletune_bench.fleet.energy import Link


@dataclass(frozen=True, slots=True)
class FleetClient:
    """One client: its place, its class, its network, and the places of its samples."""

    number: int
    kind: DeviceClass
    radio: Radio
    samples: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditions of a client in a round: the used shares of processor and memory, and its bandwidth."""

    load: float
    memory: float
    link: Link


def population(
    devices: FleetDevices, labels: NDArray[np.int64], clients: int, alpha: float | None, seed: int
) -> list[FleetClient]:
    """Return clients with their shares of some samples.

    Each label is spread over the clients by a Dirichlet(α) draw (Hsu et al., arXiv 1909.06335); None
    deals all samples out evenly. A client without samples gets one from the client with the most.
    """
    rng = np.random.default_rng([seed, 1])
    owned = (
        _dealt(len(labels), clients, rng) if alpha is None else _drawn(labels, clients, alpha, rng)
    )
    kinds = _spread([kind.share for kind in devices.classes], clients, rng)
    radios = _spread([radio.share for radio in devices.radios], clients, rng)
    return [
        FleetClient(number, devices.classes[kind], devices.radios[radio], samples)
        for number, (kind, radio, samples) in enumerate(zip(kinds, radios, owned, strict=True))
    ]


def conditions(devices: FleetDevices, client: FleetClient, number: int, seed: int) -> Conditions:
    """Return the conditions of a client in a round: equal for equal seed, client and round."""
    rng = np.random.default_rng([seed, 2, client.number, number])
    apps = devices.interference
    load = memory = 0.0
    if rng.random() < apps.chance:
        load, memory = (float(rng.uniform(apps.least, apps.most)) for _ in range(2))
    up, down = (_bandwidth(b, rng) for b in (client.radio.up_mbps, client.radio.down_mbps))
    return Conditions(load, memory, Link(client.radio, up, down))


def _bandwidth(of: Bandwidth, rng: np.random.Generator) -> float:
    return max(of.least, float(rng.normal(of.mean, of.sd)))


def _spread(shares: Sequence[float], clients: int, rng: np.random.Generator) -> list[int]:
    """Return the index of each client's share; the numbers of clients are nearest to the shares."""
    ends = np.cumsum(shares) / sum(shares) * clients
    places = np.searchsorted(ends, np.arange(clients) + 0.5)
    return [int(place) for place in rng.permutation(places)]


def _dealt(samples: int, clients: int, rng: np.random.Generator) -> list[NDArray[np.int64]]:
    return [np.sort(part) for part in np.array_split(rng.permutation(samples), clients)]


def _drawn(
    labels: NDArray[np.int64], clients: int, alpha: float, rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    owned: list[list[int]] = [[] for _ in range(clients)]
    for label in np.unique(labels):
        places = rng.permutation(np.flatnonzero(labels == label))
        shares = rng.dirichlet(np.full(clients, alpha))
        cuts = (np.cumsum(shares)[:-1] * len(places)).astype(int)
        for own, part in zip(owned, np.split(places, cuts), strict=True):
            own.extend(int(place) for place in part)
    for own in owned:
        if not own:
            own.append(max(owned, key=len).pop())
    return [np.array(sorted(own), dtype=np.int64) for own in owned]
