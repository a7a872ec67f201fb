"""The simulated devices: their knobs, and the parameters of their physics.

Ranges of clocks and power are those published for the named boards. a100, v100 and a40 are fitted
to published curves (see each preset); their clock steps of 15 MHz are our assumption. orin and tx2
are set by hand within the boards' power limits: we have no public table of their power and speed
under changing clocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from agents.devices.simulated.physics import Chip, Curve, OperatingPoint, Thermal, Unit, Work
from tuner.core import Cost, Knob, Part, Role, Scope, Setting, Space, Value

DEVICE_COST = Cost(seconds=2.0)
ROLES = {
    "gpu.clock_mhz": Role.CORE_CLOCK,
    "gpu.mem_clock_mhz": Role.MEMORY_CLOCK,
    "cpu.clock_mhz": Role.HOST_CLOCK,
    "gpu.power_limit_w": Role.POWER_LIMIT,
}
FLAT = Curve(threshold_mhz=float("inf"), per_mhz=0.0)
"""Memory runs at one voltage."""

WORKLOADS = MappingProxyType(
    {
        "resnet50": Work(
            compute_fixed_ms=0.35, compute_ms=0.42, memory_fixed_ms=0.3, memory_ms=0.31,
            host_fixed_ms=0.5, host_ms=0.05, intensity=1.0,
        ),
        "bert": Work(
            compute_fixed_ms=0.8, compute_ms=1.10, memory_fixed_ms=0.9, memory_ms=0.95,
            host_fixed_ms=0.4, host_ms=0.02, intensity=0.754,
        ),
        "efficientnet": Work(
            compute_fixed_ms=0.35, compute_ms=0.26, memory_fixed_ms=0.3, memory_ms=0.20,
            host_fixed_ms=0.3, host_ms=0.04, intensity=0.591,
        ),
    }
)  # fmt: skip
"""The demand of one batch at full clocks of an A100; the presets scale it.

Our own figures, of the size that such models have.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkScale:
    """Factors by which a device is slower than an A100, for each kind of work."""

    compute: float = 1.0
    memory: float = 1.0
    host: float = 1.0

    def of(self, work: Work) -> Work:
        """Return the work scaled to this device."""
        return Work(
            compute_fixed_ms=work.compute_fixed_ms * self.compute,
            compute_ms=work.compute_ms * self.compute,
            memory_fixed_ms=work.memory_fixed_ms * self.memory,
            memory_ms=work.memory_ms * self.memory,
            host_fixed_ms=work.host_fixed_ms * self.host,
            host_ms=work.host_ms * self.host,
            intensity=work.intensity,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """One simulated device.

    A domain with one clock is no knob; `cannot` gives the reason.
    """

    name: str
    board: str
    chip: Chip
    scale: WorkScale
    knobs: tuple[Knob, ...]
    limit_w: float
    scope: Scope
    cannot: Mapping[str, str]

    @property
    def space(self) -> Space:
        """The space of its knobs."""
        return Space(self.knobs)

    def work(self, workload: str) -> Work:
        """Return the demand of a workload on this device."""
        return self.scale.of(WORKLOADS[workload])

    def point(self, setting: Setting) -> OperatingPoint:
        """Return the operating point of a setting."""
        chip = self.chip
        return OperatingPoint(
            float(setting.get("gpu.clock_mhz", chip.gpu.max_mhz)),
            float(setting.get("gpu.mem_clock_mhz", chip.mem.max_mhz)),
            float(setting.get("cpu.clock_mhz", chip.cpu.max_mhz)),
            float(setting.get("gpu.power_limit_w", self.limit_w)),
            int(setting["batch_size"]),
        )


def _knob(name: str, values: tuple[Value, ...], default: Value | None = None) -> Knob:
    """Return a knob of the simulated device. Its default is the last value, unless one is given."""
    default = values[-1] if default is None else default
    return Knob(name, values, default, cost=DEVICE_COST, role=ROLES[name])


def _batch(values: tuple[int, ...], default: int) -> Knob:
    """Return the workload's batch size as a knob."""
    return Knob("batch_size", values, default, Part.WORKLOAD, role=Role.BATCH)


def _steps(first: int, last: int, step: int) -> tuple[int, ...]:
    """Return the integers from `first` to `last`, both included."""
    return tuple(range(first, last + 1, step))


DATA_CENTRE_BATCH = _batch((1, 2, 4, 8, 12, 16, 24, 32), 16)
JETSON_BATCH = _batch((1, 2, 4, 8, 16), 8)
# fmt: off
TX2_GPU_MHZ = (
    114.75, 216.75, 318.75, 420.75, 522.75, 624.75, 726.75, 854.25, 930.75, 1032.75, 1122, 1236.75,
    1300.5,
)
# fmt: on
ONE_MEMORY_CLOCK = "the board has one memory clock"
HOST_UNSEEN = "the board's meter does not see the host's cores, so slowing them could only lose"

A100 = Preset(
    name="a100",
    board="A100-SXM4-40GB",
    chip=Chip(
        gpu=Unit(max_mhz=1410, watts_per_mhz=0.0772, waiting=0.4, curve=Curve(1055.0, 0.001256)),
        mem=Unit(max_mhz=1215, watts_per_mhz=0.00658, waiting=0.4, curve=FLAT),
        cpu=Unit(max_mhz=2250, watts_per_mhz=0.0, waiting=0.0, curve=FLAT),
        idle_w=45.0,
        thermal=Thermal(ambient_c=30.0, leak_w=12.0, leak_per_k=0.008, k_per_w=0.12, j_per_k=180.0),
        overlap=0.8,
        min_gpu_mhz=210,
    ),
    scale=WorkScale(),
    knobs=(
        _knob("gpu.clock_mhz", _steps(210, 1410, 15)),
        _knob("gpu.power_limit_w", _steps(100, 400, 50)),
        DATA_CENTRE_BATCH,
    ),
    limit_w=400.0,
    scope=Scope.BOARD,
    cannot={"gpu.mem_clock_mhz": ONE_MEMORY_CLOCK, "cpu.clock_mhz": HOST_UNSEEN},
)
"""Fitted to three GROMACS power curves of Afzal et al. (arXiv 2607.00819): resnet50 draws their case
6, bert their case 3, efficientnet their case 1."""

A100_HOST = Preset(
    name="a100-host",
    board="A100-SXM4-40GB in a server that decodes pictures for it",
    chip=replace(
        A100.chip,
        cpu=Unit(max_mhz=3500, watts_per_mhz=0.022, waiting=0.35, curve=Curve(2000.0, 0.0004)),
        idle_w=45.0 + 60.0,
    ),
    scale=WorkScale(host=6.0),
    knobs=(
        _knob("gpu.clock_mhz", _steps(210, 1410, 15)),
        _knob("cpu.clock_mhz", (1200, 1500, 1800, 2100, 2400, 2700, 3000, 3250, 3500)),
        DATA_CENTRE_BATCH,
    ),
    limit_w=600.0,
    scope=Scope.MODULE,
    cannot={"gpu.mem_clock_mhz": ONE_MEMORY_CLOCK},
)
"""The A100 above with a meter that also covers the host's package, whose cores decode the inputs.

The host is set by hand, of the size of a server's socket: 60 W idle, some 150 W at its highest
clock.
"""

V100 = Preset(
    name="v100",
    board="V100-PCIE",
    chip=Chip(
        gpu=Unit(max_mhz=1380, watts_per_mhz=0.1206, waiting=0.35, curve=Curve(944.0, 0.00035)),
        mem=Unit(max_mhz=877, watts_per_mhz=0.0175, waiting=0.4, curve=FLAT),
        cpu=Unit(max_mhz=2250, watts_per_mhz=0.0, waiting=0.0, curve=FLAT),
        idle_w=15.2,
        thermal=Thermal(ambient_c=30.0, leak_w=10.0, leak_per_k=0.008, k_per_w=0.16, j_per_k=140.0),
        overlap=0.8,
        min_gpu_mhz=135,
    ),
    scale=WorkScale(compute=2.0, memory=3.08),
    knobs=(
        _knob("gpu.clock_mhz", _steps(135, 1380, 15)),
        _knob("gpu.power_limit_w", _steps(100, 250, 25)),
        DATA_CENTRE_BATCH,
    ),
    limit_w=250.0,
    scope=Scope.BOARD,
    cannot={"gpu.mem_clock_mhz": ONE_MEMORY_CLOCK, "cpu.clock_mhz": HOST_UNSEEN},
)
"""Fitted to the five power limits of zeus's ResNet50 trace: relative time and mean power."""

A40 = Preset(
    name="a40",
    board="A40",
    chip=Chip(
        gpu=Unit(max_mhz=1740, watts_per_mhz=0.08545, waiting=0.35, curve=Curve(1478.0, 0.000745)),
        mem=Unit(max_mhz=7251, watts_per_mhz=0.00518, waiting=0.4, curve=FLAT),
        cpu=Unit(max_mhz=2250, watts_per_mhz=0.0, waiting=0.0, curve=FLAT),
        idle_w=27.3,
        thermal=Thermal(ambient_c=30.0, leak_w=10.0, leak_per_k=0.008, k_per_w=0.16, j_per_k=140.0),
        overlap=0.8,
        min_gpu_mhz=210,
    ),
    scale=WorkScale(compute=2.0, memory=2.93),
    knobs=(
        _knob("gpu.clock_mhz", _steps(210, 1740, 15)),
        _knob("gpu.power_limit_w", _steps(100, 300, 25)),
        DATA_CENTRE_BATCH,
    ),
    limit_w=300.0,
    scope=Scope.BOARD,
    cannot={"gpu.mem_clock_mhz": ONE_MEMORY_CLOCK, "cpu.clock_mhz": HOST_UNSEEN},
)
"""Fitted to the five power limits of zeus's ResNet50 trace: relative time and mean power."""

ORIN = Preset(
    name="orin",
    board="Jetson AGX Orin 32GB",
    chip=Chip(
        gpu=Unit(max_mhz=1300.5, watts_per_mhz=0.0100, waiting=0.4, curve=Curve(662.0, 0.0010)),
        mem=Unit(max_mhz=3199, watts_per_mhz=0.0028, waiting=0.6, curve=FLAT),
        cpu=Unit(max_mhz=2201.6, watts_per_mhz=0.0022, waiting=0.5, curve=Curve(960.0, 0.0004)),
        idle_w=5.0,
        thermal=Thermal(ambient_c=28.0, leak_w=1.2, leak_per_k=0.01, k_per_w=0.9, j_per_k=30.0),
        overlap=0.9,
        min_gpu_mhz=114.75,
    ),
    scale=WorkScale(compute=4.0, memory=2.1, host=4.5),
    knobs=(
        _knob(
            "gpu.clock_mhz",
            (114.75, 204, 306, 408, 510, 612, 714, 816, 918, 1020, 1122, 1224, 1300.5),
        ),
        _knob("gpu.mem_clock_mhz", (204, 665.6, 2133, 3199)),
        _knob("cpu.clock_mhz", (345.6, 652.8, 960, 1267.2, 1574.4, 1881.6, 2201.6)),
        JETSON_BATCH,
    ),
    limit_w=60.0,
    scope=Scope.MODULE,
    cannot={"gpu.power_limit_w": "the board has power modes, no settable limit"},
)
"""13 × 4 × 7 × 5 = 1820 settings, as many as PolyThrottle has (appendix A). Memory and CPU clocks are
from public configuration scripts, CPU clocks thinned from 29 to 7; the GPU's list is assumed, in this
family's steps of 102 MHz. Power is below the board's 60 W."""

TX2 = Preset(
    name="tx2",
    board="Jetson TX2",
    chip=Chip(
        gpu=Unit(max_mhz=1300.5, watts_per_mhz=0.0025, waiting=0.4, curve=Curve(675.0, 0.0010)),
        mem=Unit(max_mhz=1866, watts_per_mhz=0.0013, waiting=0.6, curve=FLAT),
        cpu=Unit(max_mhz=2035.2, watts_per_mhz=0.0007, waiting=0.5, curve=Curve(960.0, 0.0005)),
        idle_w=1.6,
        thermal=Thermal(ambient_c=28.0, leak_w=0.4, leak_per_k=0.01, k_per_w=2.8, j_per_k=8.0),
        overlap=0.9,
        min_gpu_mhz=114.75,
    ),
    scale=WorkScale(compute=40.0, memory=22.0, host=45.0),
    knobs=(
        _knob(
            "gpu.clock_mhz",
            TX2_GPU_MHZ,
        ),
        _knob(
            "gpu.mem_clock_mhz",
            (40.8, 68, 102, 204, 408, 665.6, 800, 1062.4, 1331.2, 1600, 1866),
        ),
        _knob("cpu.clock_mhz", (345.6, 652.8, 960, 1267.2, 1574.4, 1881.6, 2035.2)),
        JETSON_BATCH,
    ),
    limit_w=15.0,
    scope=Scope.MODULE,
    cannot={"gpu.power_limit_w": "the board has power modes, no settable limit"},
)
"""13 × 11 × 7 × 5 = 5005 settings, as many as PolyThrottle has (appendix A). GPU and memory clocks are
the lists in public configuration scripts; of the CPU's only the maximum is, the other 6 are assumed.
Power is below the board's 15 W."""

PRESETS = MappingProxyType({p.name: p for p in (A100, A100_HOST, V100, A40, ORIN, TX2)})
