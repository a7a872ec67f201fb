"""A fine-tuning job that shares a simulated device with an inference service.

Boards without MPS or MIG share by time: a batch of the inference and a step of the fine-tuning
alternate, and a request waits for both. Within a turn, computing and moving data overlap, as they
do for the inference alone. Our own choices: whole steps in turn, at the board's peak rates
(published figures for fp32 and memory; real jobs reach a share of them), and the inference's own
power per clock. Left out: cache contention between the two, and the host work of loading training
data.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from agents.devices.simulated.physics import Work
from tuner.core import InvalidInput


@dataclass(frozen=True, slots=True, kw_only=True)
class FineTuning:
    """A request to fine-tune: `steps`, each of `flop` operations at `intensity` FLOPs per byte moved.

    Raises:
        InvalidInput: a figure that is not positive.
    """

    flop: float
    intensity: float
    steps: int

    def __post_init__(self) -> None:
        if not (self.flop > 0.0 and self.intensity > 0.0 and self.steps > 0):
            raise InvalidInput(f"a fine-tuning request cannot be {self}")


@dataclass(frozen=True, slots=True)
class Shared:
    """Totals of fine-tuning so far: time beside the inference in s, steps, operations and bytes."""

    seconds: float = 0.0
    steps: float = 0.0
    flop: float = 0.0
    bytes: float = 0.0

    def plus(self, job: FineTuning, seconds: float, steps: float) -> Shared:
        """Return the totals after `seconds` and `steps` more of a job."""
        flop = steps * job.flop
        return Shared(
            self.seconds + seconds,
            self.steps + steps,
            self.flop + flop,
            self.bytes + flop / job.intensity,
        )

    def minus(self, earlier: Shared) -> Shared:
        """Return the differences to earlier totals."""
        return Shared(
            self.seconds - earlier.seconds,
            self.steps - earlier.steps,
            self.flop - earlier.flop,
            self.bytes - earlier.bytes,
        )


@dataclass(frozen=True, slots=True)
class Roof:
    """Peak rates of a board at full clocks: operations and bytes per second."""

    flop_per_s: float
    bytes_per_s: float

    def demand(self, work: Work) -> tuple[float, float]:
        """Return the demand of the inference per item: operations, and operations per byte."""
        flop = work.compute_ms / 1000.0 * self.flop_per_s
        return flop, flop / (work.memory_ms / 1000.0 * self.bytes_per_s)

    def shared(self, work: Work, job: FineTuning) -> Work:
        """Return the inference's work with one step of the fine-tuning in every turn."""
        computing_ms = 1000.0 * job.flop / self.flop_per_s
        moving_ms = 1000.0 * job.flop / job.intensity / self.bytes_per_s
        return replace(
            work,
            compute_fixed_ms=work.compute_fixed_ms + computing_ms,
            memory_fixed_ms=work.memory_fixed_ms + moving_ms,
        )
