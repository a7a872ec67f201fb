"""The energy of a client in a round: computing, sending and receiving, and waiting for the slowest.

Green FL (arXiv 2303.14604) counts computing and communication by device class; here every part is power
times time. All numbers are modelled; joules that clients measure replace them.
"""

from __future__ import annotations

from dataclasses import dataclass

from jouletune_bench.fleet.devices import DeviceClass, Radio, TrainingWork

MEGA = 1e6
BITS = 8.0


@dataclass(frozen=True, slots=True)
class ClientCost:
    """Joules and seconds of one client in one round, without waiting for others."""

    compute_j: float
    communication_j: float
    compute_s: float
    communication_s: float

    @property
    def seconds(self) -> float:
        """The seconds from the round's start to the arrival of its update."""
        return self.compute_s + self.communication_s


@dataclass(frozen=True, slots=True)
class Link:
    """A client's network in a round: its kind, and its bandwidth in Mbit/s each way."""

    radio: Radio
    up_mbps: float
    down_mbps: float


def client_cost(
    kind: DeviceClass,
    work: TrainingWork,
    link: Link,
    samples: int,
    batch: int,
    epochs: float,
    load: float,
) -> ClientCost:
    """Return the cost of a client that trains some epochs on its samples, beside some load.

    Other apps leave the training `1 - load` of the processor's time, and their share of its power does
    not count; small batches use the processor less efficiently.
    """
    speed = 1e9 * kind.gflops * work.sustained * batch / (batch + work.half_batch)
    busy_s = samples * epochs * work.flops_per_sample / speed
    up_s, down_s = (
        BITS * work.model_bytes / MEGA / mbps for mbps in (link.up_mbps, link.down_mbps)
    )
    radio = link.radio
    up_w = radio.up_w_per_mbps * link.up_mbps + radio.base_w
    down_w = radio.down_w_per_mbps * link.down_mbps + radio.base_w
    return ClientCost(
        compute_j=kind.busy_w * busy_s,
        communication_j=up_w * up_s + down_w * down_s,
        compute_s=busy_s / max(0.05, 1.0 - load),
        communication_s=up_s + down_s,
    )


def waiting_j(kind: DeviceClass, cost: ClientCost, round_s: float) -> float:
    """Return the joules of a client that waits until the round ends."""
    return kind.idle_w * max(0.0, round_s - cost.seconds)
