"""A GPU's energy: its total-energy counter if that agrees with power under load, else integrated power.

Sources: NVIDIA's NVML API reference (millijoules since the driver was loaded, Volta and later; field values
185 and 186, power scopes). The counter steps about every 100 ms (ml.energy, "Thermally Stable Profiling").
Power is sampled a quarter of the time on A100 and H100 (Yang et al., arXiv 2312.02741). An idle counter may
show 0.57 of the integrated power (zeus, issue 181). A GH200's counter is the module's (zeus, PR 172). Ours:
the check of the counter against power, and readings at the counter's steps.

A counter is checked only under load, because an idle one shows nothing reliable. Until then it is used if
it can only be the GPU's. If the module (GPU, CPU and memory in one) reports power too, the GPU's power is
integrated instead, so that a CPU measured beside it is not counted twice.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from statistics import fmean

import pynvml

from agents.devices.nvidia.nvml import Gpu, counter_mj
from agents.devices.nvidia.remembered import Memory
from agents.target.joules import LONGEST_GAP_S, Every, IntegratedJoules, Joules, drawn
from agents.target.side import HOST_CPU
from tuner.core import Clock, Fact, MeasurementError, Scope

log = logging.getLogger(__name__)

GPU: int = pynvml.NVML_POWER_SCOPE_GPU
MODULE: int = pynvml.NVML_POWER_SCOPE_MODULE
FIELDS = (pynvml.NVML_FI_DEV_POWER_INSTANT, pynvml.NVML_FI_DEV_POWER_AVERAGE)
"""The present power, and its mean over a second (Ampere and later, except GA100); either may be missing."""
CHECK_S = 10.0
LEAST_STEPS = 5
AGREEMENT = 0.15
"""The counter is trusted if it is within this share of the integral of power."""
STEADY = 0.15
"""Power is steady if its mean over each fifth of the check is within this share of the whole mean."""
PARTS = 5
POLL_S = 0.01
STEP_S = 0.1
"""The counter steps about this often, in seconds."""
LONGEST_STEP_S = 0.3
MOST_W = 4000.0
"""Upper bound of a module's power, and of a GPU's that reports no limit; else it is twice the limit."""
MOST_CHECKS = 3
"""Checks of 10 s each that may find the load unsteady; after them the counter stays unchecked."""
WITNESS_GAP_S = 5.0
"""Longest gap in seconds between samples of the counter's second witness: a gap widens the tolerance."""
AVERAGING_S = 1.2
"""Some boards report power only as a mean over the last second: a change shows fully after this time."""


@dataclass(frozen=True, slots=True)
class CounterCheck:
    """The energy counter over the integral of power, in the best fitting scope; 0 if it hardly moves."""

    ratio: float
    scope: int

    @property
    def trusted(self) -> bool:
        """Whether the two agree."""
        return abs(self.ratio - 1.0) <= AGREEMENT


@dataclass(frozen=True, slots=True)
class _Sample:
    """The energy counter and the powers in watts, by field and scope, at one time."""

    at_s: float
    counter_mj: int
    watts: Mapping[tuple[int, int], float]


def powers_w(gpu: Gpu) -> dict[tuple[int, int], float]:
    """Return the present power in watts by field and scope, as far as this GPU reports it.

    Power reported without fields counts as the mean over a second in scope GPU.

    Raises:
        ActuationError, DeviceLost: it does not answer.
    """
    queried = [(field, scope) for scope in (GPU, MODULE) for field in FIELDS]
    answers, _ = gpu.query("power", pynvml.nvmlDeviceGetFieldValues, queried)
    powers = {
        (int(one.fieldId), int(one.scopeId)): one.value.uiVal / 1000.0
        for one in answers or ()
        if one.nvmlReturn == pynvml.NVML_SUCCESS
    }
    if not any(scope == GPU for _, scope in powers):
        usage, _ = gpu.query("power", pynvml.nvmlDeviceGetPowerUsage)
        powers |= {} if usage is None else {(FIELDS[1], GPU): usage / 1000.0}
    return powers


def power_w(gpu: Gpu, scope: int) -> float:
    """Return a scope's present power in watts; its mean over a second if only that is available.

    Raises:
        ActuationError, DeviceLost: it does not answer.
        MeasurementError: it does not report the power.
    """
    powers = powers_w(gpu)
    for field in FIELDS:
        if (field, scope) in powers:
            return powers[field, scope]
    raise MeasurementError(f"{gpu.uuid} no longer reports its power", hint="see `jouletune doctor`")


def check_counter(gpu: Gpu, clock: Clock) -> CounterCheck | None:
    """Compare the counter with power over 10 s in every field and scope; None if the load was unsteady.

    Raises:
        ActuationError, DeviceLost: the GPU does not answer.
    """
    samples = list(_samples(gpu, clock))
    common = set.intersection(*(set(one.watts) for one in samples))
    if not common or not any(_is_steady([s.watts[key] for s in samples]) for key in common):
        return None
    steps = [n for n, (a, b) in enumerate(pairwise(samples), 1) if a.counter_mj != b.counter_mj]
    if len(steps) < LEAST_STEPS:
        return CounterCheck(0.0, GPU)
    between = samples[steps[0] : steps[-1] + 1]
    counted = (between[-1].counter_mj - between[0].counter_mj) / 1000.0
    checks = []
    for key in sorted(common):
        joules = sum(
            (b.at_s - a.at_s) * (a.watts[key] + b.watts[key]) / 2.0 for a, b in pairwise(between)
        )
        checks.append(CounterCheck(max(0.0, counted / joules) if joules > 0.0 else 0.0, key[1]))
    return min(checks, key=lambda check: abs(check.ratio - 1.0))


def _samples(gpu: Gpu, clock: Clock) -> Iterator[_Sample]:
    """Yield the counter and the power for `CHECK_S`."""
    until = clock.monotonic() + CHECK_S
    while (now := clock.monotonic()) < until:
        yield _Sample(now, counter_mj(gpu), powers_w(gpu))
        clock.sleep(POLL_S)


def _is_steady(watts: Sequence[float]) -> bool:
    """Return whether the mean of each fifth is within `STEADY` of the whole mean."""
    size, whole = max(1, len(watts) // PARTS), fmean(watts)
    parts = [watts[n : n + size] for n in range(0, size * PARTS, size)]
    return all(abs(fmean(part) - whole) <= STEADY * whole for part in parts if part)


class CounterJoules:
    """Energy of the counter, read at its steps: a reading waits at most 0.3 s for the next one."""

    def __init__(self, gpu: Gpu, clock: Clock, most_w: float) -> None:
        self._gpu, self._clock, self._most_w = gpu, clock, most_w
        self._last_mj = self._at_step(counter_mj(gpu))
        self._last_s = clock.monotonic()
        self._joules = 0.0

    def read(self) -> float:
        """Return the joules up to the step just passed.

        Raises:
            MeasurementError: the counter ran backwards, or rose by more than the GPU can draw.
            ActuationError: it does not answer.
        """
        if self._clock.monotonic() - self._last_s < STEP_S:
            return self._joules
        now, now_s = self._at_step(counter_mj(self._gpu)), self._clock.monotonic()
        step, counter = (now - self._last_mj) / 1000.0, f"{self._gpu.uuid}: the energy counter"
        self._joules += drawn(step, now_s - self._last_s, self._most_w, counter)
        self._last_mj, self._last_s = now, now_s
        return self._joules

    def close(self) -> None:
        """Do nothing: there is no background work."""

    def facts(self) -> tuple[Fact, ...]:
        """Return no facts: the window compares the counter with power."""
        return ()

    def _at_step(self, before: int) -> int:
        """Return the counter once it differs from `before`, or after 0.3 s; in mJ."""
        until = self._clock.monotonic() + LONGEST_STEP_S
        now = before
        while now == before and self._clock.monotonic() < until:
            self._clock.sleep(POLL_S / 2.0)
            now = counter_mj(self._gpu)
        return now


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
            return CounterJoules(self._gpu, self._clock, self._most_w)
        return self._integral(LONGEST_GAP_S)

    def witness(self) -> IntegratedJoules | None:
        """Start integrating the power beside the counter; None if the counter or the power is missing.

        Raises ActuationError, DeviceLost, MeasurementError.
        """
        return self._integral(WITNESS_GAP_S) if self.by_counter and self._scopes else None

    def _integral(self, longest_gap_s: float) -> IntegratedJoules:
        """Start integrating the power of the chosen scope."""
        power = partial(power_w, self._gpu, self._power_scope)
        return IntegratedJoules(power, self._clock, self._every, self._most_w, longest_gap_s)

    @property
    def _most_w(self) -> float:
        """The upper bound of the power in the chosen scope, in watts."""
        limits, _ = self._gpu.query("limits", pynvml.nvmlDeviceGetPowerManagementLimitConstraints)
        own = limits and limits[1] and self._power_scope == GPU
        return 2.0 * limits[1] / 1000.0 if own else MOST_W

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
