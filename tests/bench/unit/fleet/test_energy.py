from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jouletune_bench.fleet.devices import DeviceClass, Radio, load_devices
from jouletune_bench.fleet.energy import ClientCost, Link, client_cost, waiting_j

DEVICES = load_devices()
KINDS, RADIOS = st.sampled_from(DEVICES.classes), st.sampled_from(DEVICES.radios)
MBPS = st.floats(0.5, 200.0)


@given(KINDS, RADIOS, MBPS, st.floats(1.1, 10.0))
def test_sending_takes_less_over_a_faster_network(
    kind: DeviceClass, radio: Radio, mbps: float, times: float
) -> None:
    slow, fast = (
        client_cost(kind, DEVICES.work, Link(radio, up, up), 10, 8, 1, 0.0)
        for up in (mbps, mbps * times)
    )
    assert fast.communication_j < slow.communication_j
    assert fast.communication_s < slow.communication_s
    assert fast.compute_j == slow.compute_j


@given(
    KINDS,
    st.integers(1, 500),
    st.sampled_from([8, 16, 32]),
    st.integers(1, 10),
    st.floats(0.0, 1.0),
)
def test_computing_grows_with_the_work_and_load_costs_time_only(
    kind: DeviceClass, samples: int, batch: int, epochs: int, load: float
) -> None:
    link = Link(DEVICES.radios[0], 40.0, 40.0)
    one, more, busy = (
        client_cost(kind, DEVICES.work, link, samples, batch, e, at)
        for e, at in ((epochs, 0.0), (2 * epochs, 0.0), (epochs, load))
    )
    assert more.compute_j == pytest.approx(2.0 * one.compute_j)
    assert busy.compute_j == one.compute_j and busy.compute_s >= one.compute_s
    assert min(one.compute_j, one.communication_j, one.compute_s) > 0.0


def test_larger_batches_take_less_and_slower_classes_longer() -> None:
    link = Link(DEVICES.radios[0], 40.0, 40.0)
    high, _, low = DEVICES.classes

    def cost(kind: DeviceClass, batch: int) -> ClientCost:
        return client_cost(kind, DEVICES.work, link, 100, batch, 5, 0.0)

    assert cost(high, 32).compute_j < cost(high, 8).compute_j
    assert cost(low, 8).compute_s > cost(high, 8).compute_s


def test_waiting_clients_idle_and_the_slowest_does_not() -> None:
    kind = replace(DEVICES.classes[0], idle_w=2.0)
    cost = client_cost(kind, DEVICES.work, Link(DEVICES.radios[0], 40.0, 40.0), 10, 8, 1, 0.0)
    assert waiting_j(kind, cost, cost.seconds) == 0.0
    assert waiting_j(kind, cost, cost.seconds + 10.0) == pytest.approx(20.0)
