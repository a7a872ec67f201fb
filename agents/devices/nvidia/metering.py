"""The choice of a GPU's energy source and its scope, and the time of the counter's check.

A counter is checked only under load, because an idle one shows nothing reliable. Until then it is used if
it can only be the GPU's. If the module (GPU, CPU and memory in one) reports power too, the GPU's power is
integrated instead, so that a CPU measured beside it is not counted twice.
"""

from __future__ import annotations

import logging
from functools import partial

import pynvml

from agents.devices.nvidia.energy import (
    GPU,
    MODULE,
    MOST_W,
    CounterCheck,
    CounterJoules,
    check_counter,
    power_w,
    powers_w,
)
from agents.devices.nvidia.nvml import Gpu
from agents.devices.nvidia.remembered import Memory
from agents.target.joules import LONGEST_GAP_S, Every, IntegratedJoules, Joules
from agents.target.side import HOST_CPU
from tuner.core import Clock, Scope

log = logging.getLogger(__name__)

MOST_CHECKS = 3
"""Checks of 10 s each that may find the load unsteady; after them the counter stays unchecked."""
WITNESS_GAP_S = 5.0
"""Longest gap in seconds between samples of the counter's second witness: a gap widens the tolerance."""
AVERAGING_S = 1.2
"""Some boards report power only as a mean over the last second: a change shows fully after this time."""


class GpuEnergy:
    """Open the energy of one GPU; `cannot` is the reason if there is none, else empty.

    Raises:
        ActuationError, DeviceLost: the GPU does not answer.
    """

    def __init__(self, gpu: Gpu, memory: Memory, clock: Clock, every: Every) -> None:
        self._gpu, self._memory, self._clock, self._every = gpu, memory, clock, every
        self._checks = 0
        self._scopes = {scope for _, scope in powers_w(gpu)}
        _, no_power = gpu.query("power", pynvml.nvmlDeviceGetPowerUsage)
        counter, self._no_counter = gpu.query("counter", pynvml.nvmlDeviceGetTotalEnergyConsumption)
        self.has_counter = counter is not None
        self.cannot = "" if self._scopes or self.has_counter else no_power

    @property
    def check(self) -> CounterCheck | None:
        """The result of the counter's check under load, None if it has not been checked."""
        findings = self._memory.findings
        if findings.loaded_ratio is None:
            return None
        return CounterCheck(findings.loaded_ratio, MODULE if findings.counts_module else GPU)

    @property
    def due(self) -> bool:
        """Whether the counter can be checked and has not been."""
        both = self.has_counter and bool(self._scopes)
        return both and self.check is None and self._checks < MOST_CHECKS

    @property
    def by_counter(self) -> bool:
        """Whether the counter is used."""
        if not self.has_counter or not self._scopes:
            return self.has_counter
        if self.check is None:
            return self._scopes == {GPU}
        return self.check.trusted and self.check.scope == self._power_scope

    @property
    def scope(self) -> Scope:
        """The scope of its numbers."""
        return Scope.MODULE if self._power_scope == MODULE else Scope.BOARD

    @property
    def parts(self) -> frozenset[str]:
        """The parts of the host that its numbers cover."""
        own = frozenset({self._gpu.uuid})
        return own | {HOST_CPU} if self.scope is Scope.MODULE else own

    @property
    def lag_s(self) -> float:
        """Seconds after a change until its numbers no longer include the time before."""
        sure = self.by_counter and (self.check is not None or not self._scopes)
        return 0.0 if sure else AVERAGING_S

    @property
    def source(self) -> str:
        """The source of its numbers with their scope, for messages; empty if there is none."""
        if self.cannot:
            return ""
        owner = "module's" if self._power_scope == MODULE else "GPU's"
        scope = "scope MODULE: GPU, CPU and memory" if self._power_scope == MODULE else "scope GPU"
        if self.by_counter:
            return f"the {owner} energy counter ({scope}; {self._counter_note()})"
        return f"the {owner} power, integrated ({scope}; {self._counter_note()})"

    def open(self) -> Joules:
        """Start counting. Raises ActuationError, DeviceLost, MeasurementError."""
        if self.by_counter:
            return CounterJoules(self._gpu, self._clock)
        return self._integral(LONGEST_GAP_S)

    def witness(self) -> IntegratedJoules | None:
        """Start integrating the power beside the counter; None if the counter or the power is missing.

        Raises ActuationError, DeviceLost, MeasurementError.
        """
        return self._integral(WITNESS_GAP_S) if self.by_counter and self._scopes else None

    def _integral(self, longest_gap_s: float) -> IntegratedJoules:
        """Start integrating the power of the chosen scope."""
        power = partial(power_w, self._gpu, self._power_scope)
        return IntegratedJoules(power, self._clock, self._every, MOST_W, longest_gap_s)

    def judge(self) -> None:
        """Check the counter under the present load for 10 s. Raises ActuationError, DeviceLost."""
        self._checks += 1
        check = check_counter(self._gpu, self._clock)
        if check is None:
            return
        self._memory.saw_counter(check.ratio, counts_module=check.scope == MODULE)
        log.info("event=energy_counter device=%s seen=%r", self._gpu.uuid, self.source)

    @property
    def rest_share(self) -> float:
        """The share of the energy at rest by which the counter may be wrong; 1 until it is measured."""
        share = self._memory.findings.rest_share
        return 1.0 if share is None else share

    def rested(self, counted_j: float, power_j: float, slack_j: float) -> None:
        """Note both energies of a window at rest. Raises StoreError."""
        self._memory.saw_rest(min(1.0, (abs(counted_j - power_j) + slack_j) / power_j))

    def doubt(self) -> None:
        """Have the counter checked again, because it counted wrong."""
        self._memory.forget_counter()
        self._checks = 0

    @property
    def _power_scope(self) -> int:
        """The scope whose power is integrated: the module's only if the GPU's is missing."""
        return MODULE if self._scopes == {MODULE} else GPU

    def _counter_note(self) -> str:
        """Return the state of the counter's check, for messages."""
        if not self.has_counter:
            return self._no_counter
        if self.check is None:
            return (
                "its counter has not been checked under load yet" if self._scopes else "unchecked"
            )
        if not self.check.ratio:
            return "its energy counter hardly moves"
        if self.check.trusted and self.check.scope != self._power_scope:
            return "its energy counter is the module's, the CPU included"
        return f"its energy counter counts {self.check.ratio:.2f} of its power under load"
