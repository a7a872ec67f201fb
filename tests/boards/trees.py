"""The mounted machines: the files of each, over the same physics.

Tables of clocks are those of the public configuration scripts named in the simulators' presets, thinned;
the layouts are from NVIDIA's guides and the kernel's documentation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from agents.devices.simulated.physics import Chip, OperatingPoint, Pace, Work
from agents.devices.simulated.presets import ORIN, TX2, TX2_GPU_MHZ
from tests.boards.board import Board
from tests.boards.cpufreq import Cpus, policies
from tests.boards.gpus import GPUS, grace
from tests.boards.kernel import Limits, MemoryClock, Node, Words, fixed
from tests.boards.machine import Machine, faster
from tests.boards.servers import SERVERS, SMALL

BPMP = "/sys/kernel/debug/bpmp/debug"
SPEED = 8.0
"""A board is faster than its preset by this factor: shares and limits are relative, and time is real."""


@dataclass(frozen=True, kw_only=True)
class JetsonLayout:
    """The differences between boards: the places of files, and the rails of the power monitors.

    `rails` maps a sensor's address to the rails of its channels, each with its share of the board's power;
    `ina238` is the address of a sensor without a label that measures the total. `device` is the folder of
    the GPU's device, to which /sys/class/devfreq links.
    """

    model: str
    compatible: str
    release: str
    gpu: str
    gpu_hz: tuple[int, ...]
    memory_hz: tuple[int, ...]
    cpu_khz: tuple[int, ...]
    clusters: int
    cpus: int
    rails: Mapping[str, Sequence[tuple[str, float]]]
    ina238: str = ""
    device: str = "/sys/devices/platform/bus@0"
    iio: bool = False
    late_s: float = 0.0


class Odd(Chip):
    """A chip outside the optimiser's laws: other exponents, and a memory clock with an inner optimum."""

    def pace(self, work: Work, point: OperatingPoint, gpu_mhz: float) -> Pace:
        plain = super().pace(work, point, gpu_mhz)
        share = point.mem_mhz / self.mem.max_mhz
        stalls = 1.0 + 0.25 * math.exp(-(((share - 1.0) / 0.2) ** 2))
        power = self.idle_w + (plain.power_w - self.idle_w) * (gpu_mhz / self.gpu.max_mhz) ** 0.7
        return Pace(plain.step_s * stalls, power, gpu_mhz)


def jetson(name: str, layout: JetsonLayout, chip: Chip, work: Work, trip_c: float = 1e9) -> Board:
    """Return a Jetson board."""
    gpu = Limits(layout.gpu_hz[0], layout.gpu_hz[-1], layout.gpu_hz)
    clusters = [
        Limits(layout.cpu_khz[0], layout.cpu_khz[-1], layout.cpu_khz)
        for _ in range(layout.clusters)
    ]
    memory = MemoryClock(layout.memory_hz, layout.memory_hz[-1])
    governors = [Words(("performance", "schedutil"), "schedutil") for _ in clusters]
    by_limit = dict(zip(map(id, clusters), governors, strict=True))

    def clocks() -> tuple[float, float, float, float]:
        return (
            gpu.ceiling / 1e6,
            memory.rate / 1e6,
            min(c.ceiling for c in clusters) / 1e3,
            math.inf,
        )

    hot = layout.gpu_hz[len(layout.gpu_hz) // 2] / 1e6
    machine = Machine(chip, work, clocks, hot_mhz=hot, trip_c=trip_c)
    node = f"{layout.device}/{layout.gpu}/devfreq/{layout.gpu}"
    cpus = Cpus(layout.cpus)
    nodes: dict[str, Node] = policies(
        clusters,
        cpus,
        lambda limit: {
            "scaling_governor": by_limit[id(limit)].node(),
            "scaling_available_governors": fixed("performance schedutil"),
        },
    )
    nodes |= gpu.nodes(node, "min_freq", "max_freq") | {
        f"{node}/available_frequencies": fixed(" ".join(map(str, layout.gpu_hz))),
        f"{node}/cur_freq": Node(lambda: round(machine.point().gpu_mhz * 1e6)),
        f"{node}/governor": fixed("nvhost_podgov"),
        f"{layout.device}/{layout.gpu}/load": Node(lambda: 950),
        "/sys/class/thermal/cooling_device0/type": fixed("gpu-throttle-alert"),
        "/sys/class/thermal/cooling_device0/cur_state": Node(lambda: int(machine.hot)),
        "/sys/class/thermal/thermal_zone0/type": fixed("gpu-thermal"),
        "/sys/class/thermal/thermal_zone0/temp": Node(lambda: round(machine.celsius * 1000)),
        "/proc/device-tree/model": fixed(layout.model + "\0"),
        "/proc/device-tree/compatible": fixed(layout.compatible.replace(" ", "\0") + "\0"),
        "/proc/device-tree/serial-number": fixed("1420000000000\0"),
        "/etc/nv_tegra_release": fixed(layout.release),
        "/proc/cpuinfo": fixed("processor\t: 0"),
        "/proc/sys/kernel/osrelease": fixed("5.10.120-tegra"),
        "/proc/stat": Node(lambda: f"cpu  {int(machine.now() * 100)} 0 0 1000000 0 0 0 0 0 0"),
    }
    if "Thor" in layout.model:
        nodes |= _thor(layout)
    else:
        nodes |= memory.nodes(BPMP) | {"/sys/kernel/nvpmodel_emc_cap/emc_iso_cap": fixed(0)}
    links = {
        f"/sys/class/devfreq/{layout.gpu}": f"../..{node.removeprefix('/sys')}",
        f"{node}/device": f"../../../{layout.gpu}",
    }
    cpus.driven += governors
    board = Board(name, machine, nodes, links).keep(cpus, gpu, memory, *clusters, *governors)
    for path, tell in _rails(layout, machine, board).items():
        nodes[path] = tell
    return board


def _thor(layout: JetsonLayout) -> dict[str, Node]:
    """Return Thor's other devfreq nodes: a video engine, and the memory's manager."""
    others = {"gpu-nvd-0": layout.gpu_hz, "bwmgr": layout.memory_hz}
    return {
        f"/sys/class/devfreq/{name}/{file}": fixed(hz)
        for name, ladder in others.items()
        for file, hz in (
            ("min_freq", ladder[0]),
            ("cur_freq", ladder[-1]),
            ("max_freq", ladder[-1]),
            ("available_frequencies", " ".join(map(str, ladder))),
        )
    }


def _rails(layout: JetsonLayout, machine: Machine, board: Board) -> dict[str, Node]:
    """Return the power monitors' files: 5 V, and the current that gives the power."""
    nodes: dict[str, Node] = {}

    def ma(share: float, volts: float = 5.0) -> Callable[[], int]:
        def tell() -> int:
            machine.advance()
            return round(machine.power_w * share / volts * 1000.0)

        return tell

    if layout.ina238:
        chip = f"/sys/bus/i2c/devices/{layout.ina238}"
        folder = f"{chip}/hwmon/hwmon0"
        nodes |= {f"{one}/name": fixed("ina238") for one in (chip, folder)} | {
            f"{folder}/in0_input": fixed(3),
            f"{folder}/in1_input": fixed(20_000),
            f"{folder}/curr1_input": Node(ma(1.0, 20.0)),
            f"{folder}/power1_input": Node(ma(1.0, 1e-3)),
            f"{folder}/power1_max": fixed(168_000_000),
            f"{folder}/temp1_input": fixed(41_000),
        }

    for number, (address, rails) in enumerate(layout.rails.items()):
        chip = f"/sys/bus/i2c/devices/{address}"
        nodes[f"{chip}/name"] = fixed("ina3221x" if layout.iio else "ina3221")
        for channel, (rail, share) in enumerate(rails):
            if layout.iio:
                folder = f"{chip}/iio:device{number}"
                nodes |= {
                    f"{folder}/rail_name_{channel}": fixed(rail),
                    f"{folder}/in_voltage{channel}_input": fixed(5000),
                    f"{folder}/in_current{channel}_input": Node(ma(share)),
                }
            else:
                folder = f"{chip}/hwmon/hwmon{number + 3}"
                nodes |= {
                    f"{folder}/name": fixed("ina3221"),
                    f"{folder}/samples": fixed(1),
                    f"{folder}/update_interval": fixed(5),
                    f"{folder}/in{channel + 1}_label": fixed(rail),
                    f"{folder}/in{channel + 1}_input": fixed(5000),
                    f"{folder}/curr{channel + 1}_input": Node(ma(share)),
                }
    return nodes


def _hz(mhz: Sequence[float]) -> tuple[int, ...]:
    return tuple(round(m * 1e6) for m in mhz)


AGX_ORIN_RAILS = {
    "1-0040": [("VDD_GPU_SOC", 0.6), ("VDD_CPU_CV", 0.15), ("VIN_SYS_5V0", 0.25)],
    "1-0041": [("NC", 0.0), ("VDDQ_VDD2_1V8AO", 0.1), ("NC", 0.0)],
}
"""The first sensor's rail feeds the second's: a sum of both counts it twice."""
MODULE_RAILS = {"1-0040": [("VDD_IN", 1.0), ("VDD_CPU_GPU_CV", 0.6), ("VDD_SOC", 0.2)]}
ORIN_CPU = (345_600, 652_800, 960_000, 1_267_200, 1_574_400, 1_881_600, 2_201_600)
ORIN_GPU = _hz((114.75, 204, 306, 408, 510, 612, 714, 816, 918, 1020, 1122, 1224, 1300.5))

AGX_ORIN = JetsonLayout(
    model="NVIDIA Jetson AGX Orin Developer Kit",
    compatible="nvidia,p3737-0000+p3701-0000 nvidia,tegra234",
    release="# R36 (release), REVISION: 4.0",
    gpu="17000000.gpu",
    gpu_hz=ORIN_GPU,
    memory_hz=_hz((204, 665.6, 2133, 3199)),
    cpu_khz=ORIN_CPU,
    clusters=3,
    cpus=12,
    rails=AGX_ORIN_RAILS,
)
LAYOUTS: Mapping[str, JetsonLayout] = {
    "orin": AGX_ORIN,
    "tx2": JetsonLayout(
        model="quill",
        compatible="nvidia,p2771-0000 nvidia,tegra186",
        release="# R32 (release), REVISION: 7.1",
        gpu="17000000.gp10b",
        gpu_hz=_hz(TX2_GPU_MHZ),
        memory_hz=_hz((40.8, 68, 102, 204, 408, 665.6, 800, 1062.4, 1331.2, 1600, 1866)),
        cpu_khz=(345_600, 652_800, 960_000, 1_267_200, 1_574_400, 1_881_600, 2_035_200),
        clusters=2,
        cpus=6,
        rails={
            "0-0040": [("VDD_SYS_GPU", 0.4), ("VDD_SYS_SOC", 0.2), ("VDD_4V0_WIFI", 0.02)],
            "0-0041": [("VDD_IN", 1.0), ("VDD_SYS_CPU", 0.15), ("VDD_SYS_DDR", 0.2)],
        },
        iio=True,
    ),
    "xavier-nx": JetsonLayout(
        model="NVIDIA Jetson Xavier NX Developer Kit",
        compatible="nvidia,p3449-0000+p3668-0000 nvidia,tegra194",
        release="# R35 (release), REVISION: 4.1",
        gpu="17000000.gv11b",
        gpu_hz=_hz((114.75, 318.75, 522.75, 726.75, 930.75, 1109.25)),
        memory_hz=_hz((204, 800, 1331.2, 1866)),
        cpu_khz=(345_600, 960_000, 1_420_800, 1_907_200),
        clusters=3,
        cpus=6,
        rails=MODULE_RAILS,
    ),
    "orin-jp5": replace(
        AGX_ORIN,
        model="Jetson AGX Orin",
        release="# R35 (release), REVISION: 4.1",
        gpu="17000000.ga10b",
    ),
    "orin-nano": JetsonLayout(
        model="NVIDIA Jetson Orin Nano Engineering Reference Developer Kit Super",
        compatible="nvidia,p3768-0000+p3767-0005-super nvidia,tegra234",
        release="# R38 (release), REVISION: 2.0",
        gpu="17000000.gpu",
        gpu_hz=_hz((306, 408, 510, 612, 714, 816, 918, 1020)),
        memory_hz=_hz((665.6, 2133, 3199)),
        cpu_khz=(729_600, 1_036_800, 1_344_000, 1_728_000),
        clusters=2,
        cpus=6,
        rails=MODULE_RAILS,
        late_s=2.0,
    ),
    "thor": JetsonLayout(
        model="NVIDIA Jetson AGX Thor Developer Kit",
        compatible="nvidia,p4071-0000+p3834-0008 nvidia,tegra264",
        release="# R38 (release), REVISION: 2.0",
        gpu="gpu-gpc-0",
        gpu_hz=_hz((315, 630, 945, 1260, 1575)),
        memory_hz=_hz((665.6, 2133, 4266)),
        cpu_khz=(972_000, 1_620_000, 2_601_000),
        clusters=2,
        cpus=14,
        rails={
            "1-0040": [("VDD_GPU", 0.4), ("VDD_CPU_SOC_MSS", 0.25), ("VIN_SYS_5V0", 0.25)],
        },
        ina238="1-0044",
        device="/sys/devices/platform/bus@0/d0b0000000.pcie/pci0000:00/0000:00:00.0/0000:01:00.0",
    ),
}
"""The AGX Orin on JetPack 5 and 6, the Orin Nano on 7 (its GPU's node comes late).

Sources: /sys/devices/platform/bus@0/17000000.gpu is in many public scripts for JetPack 6; Thor's device,
its second node gpu-nvd-0 and bwmgr in public programs for Jetson Linux 38 and 39 (their clocks end at 1575
and 4266 MHz; the steps between are made up, as no table of it is public). Its VIN: jetson_stats, pull
request 900, and Documentation/hwmon/ina238.rst of the kernel (µW, mV, mA, no label)."""


def _odd() -> Board:
    names = ("gpu", "mem", "cpu", "idle_w", "thermal", "overlap", "min_gpu_mhz")
    chip = Odd(**{name: getattr(ORIN.chip, name) for name in names})
    hot = replace(chip, thermal=replace(chip.thermal, j_per_k=6.0))
    return jetson("odd", LAYOUTS["orin"], hot, faster(ORIN.work("resnet50"), SPEED), trip_c=62.0)


def board(name: str) -> Board:
    """Return a new board by its name in `NAMES`."""
    if made := {**SERVERS, **SMALL, **GPUS, "grace": grace}.get(name):
        return made()
    if name == "odd":
        return _odd()
    preset = TX2 if name == "tx2" else ORIN
    return jetson(name, LAYOUTS[name], preset.chip, faster(preset.work("resnet50"), SPEED))


NAMES = (*SERVERS, *LAYOUTS, "odd", *GPUS, "grace")
"""Every tree, including those for the fuzzer."""
