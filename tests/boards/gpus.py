"""Hosts with a GPU of AMD or Intel, and one with two sockets of Grace.

Sources, besides those of `cards`: amdgpu-sysfs-rs 5, nvtop 244 and resources 270 (power1_input or
power1_average); kgd_pp_interface.h (gpu_metrics; unused fields are all ones, MangoHud 875); the ABI of
xe's hwmon (channels before and after Linux 6.8); Documentation/hwmon/acpi_power_meter.rst and NVIDIA's
Grace guide (four meters that contain each other).
"""

from __future__ import annotations

import errno
import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from agents.devices.simulated.physics import Chip, Curve, Thermal, Unit, Work
from tests.boards import servers
from tests.boards.board import Board
from tests.boards.cards import FINE, UW, Gpu, Veiled, Widened
from tests.boards.cpufreq import Cpus, policies
from tests.boards.kernel import Limits, Node, Words, fixed
from tests.boards.machine import Machine

ADDRESS = "0000:03:00.0"
PCI = f"/sys/devices/pci0000:00/0000:00:01.1/{ADDRESS}"
ALL_ONES = (1 << 64) - 1
SCLK = (300, 600, 900, 1_200, 1_500, 1_800, 2_100)
CARD = Chip(
    gpu=Unit(max_mhz=2500, watts_per_mhz=0.09, waiting=0.3, curve=Curve(1400.0, 0.0006)),
    mem=Unit(max_mhz=1250, watts_per_mhz=0.02, waiting=0.4, curve=Curve(1e9, 0.0)),
    cpu=Unit(max_mhz=3000, watts_per_mhz=0.0, waiting=0.0, curve=Curve(1e9, 0.0)),
    idle_w=30.0,
    thermal=Thermal(ambient_c=30.0, leak_w=8.0, leak_per_k=0.008, k_per_w=0.12, j_per_k=180.0),
    overlap=0.3,
    min_gpu_mhz=300.0,
)
SERVED = Work(
    compute_fixed_ms=0.5,
    compute_ms=0.3,
    memory_fixed_ms=0.5,
    memory_ms=0.7,
    host_fixed_ms=0.2,
    host_ms=0.05,
)


def host(
    name: str,
    gpu: Gpu,
    files: Callable[[Machine], Mapping[str, Node]],
    sensors: Callable[[Machine], Mapping[str, Node]],
) -> Board:
    """Return a host with one card; `files` are below its PCI device, `sensors` below its hwmon."""

    def clocks() -> tuple[float, float, float, float]:
        return (
            gpu.mhz,
            1250.0,
            3000.0,
            (gpu.told_cap() or math.inf * 1) / UW if gpu.cap else math.inf,
        )

    machine = Machine(CARD, SERVED, clocks)
    number = 1 if name != "xe" else 0
    own = {
        "vendor": fixed("0x1002" if gpu.kind == "amdgpu" else "0x8086"),
        "device": fixed("0xe20b"),
        "class": fixed("0x030000"),
        "sriov_numvfs": fixed("0"),
        "power/runtime_suspended_time": Node(lambda: gpu.slept_ms, None, 0o444),
        f"drm/card{number}/dev": fixed("226:1"),
        **files(machine),
    }
    nodes = {f"{PCI}/{path}": node for path, node in own.items()}
    for path, node in (
        {"name": fixed(gpu.kind), **sensors(machine)}.items() if sensors(machine) else ()
    ):
        for n in (3, 5):  # its number changes with each load
            gone = partial(_gone, gpu, n)
            nodes[f"{PCI}/hwmon/hwmon{n}/{path}"] = replace(node, refusal=gone)
    waking = ("hwmon", "pp_", "power_dpm", "tile", f"drm/card{number}/gt", "gpu_metrics")
    for path, node in nodes.items():
        if path.removeprefix(f"{PCI}/").startswith(waking) and node.refusal is int:
            node.refusal = gpu.refusal
    nodes |= {
        "/proc/cpuinfo": fixed("processor\t: 0\nmodel name\t: Host (fake)"),
        "/proc/sys/kernel/osrelease": fixed("6.12.0"),
        "/proc/stat": Node(lambda: f"cpu  {int(machine.now() * 100)} 0 0 1000000 0 0 0 0 0 0"),
    }
    card = f"{PCI}/drm/card{number}"
    links = {
        f"/sys/bus/pci/drivers/{gpu.kind}/{ADDRESS}": _up(5, PCI),
        f"/sys/class/drm/card{number}": _up(3, card),
        f"{card}/device": "../..",
        **{
            f"/sys/class/hwmon/hwmon{n}": _up(3, f"{PCI}/hwmon/hwmon{n}")
            for n in (3, 5)
            if sensors(machine)
        },
    }
    return Board(name, machine, nodes, links, moving=PCI).keep(Cpus(1), gpu)


def _gone(gpu: Gpu, number: int) -> int:
    there = (3, 5)[gpu.loads % 2 == 0]
    return gpu.refusal() if number == there else errno.ENOENT


def _up(folders: int, target: str) -> str:
    return f"{'../' * (folders - 1)}{target.removeprefix('/sys/')}"


def watts(machine: Machine) -> float:
    machine.advance()
    return machine.power_w


def amd(
    name: str,
    *,
    power: str = "power1_average",
    fine: bool = False,
    overdrive: bool = False,
    capped: bool = True,
    guest: bool = False,
    metrics: tuple[int, int] = (1, 3),
    centre: bool = False,
    limits: str = "",
    product: str = "0x744c",
    partition: str = "SPX",
) -> Board:
    """Return a host with an AMD GPU; `metrics` has gpu_metrics' revisions, `centre` is a card's class."""
    most = 345 if overdrive else 300
    gpu = Gpu("amdgpu", 300 * UW, 90 * UW, most * UW, SCLK if not fine else FINE, guest=guest)
    gpu.limits = limits

    def files(machine: Machine) -> dict[str, Node]:
        table = lambda: gpu.rows(machine.point().gpu_mhz, fine=fine)  # noqa: E731
        made: dict[str, Node] = {
            "power_dpm_force_performance_level": Node(lambda: gpu.level, gpu.take_level),
            "pp_dpm_sclk": Veiled(table, gpu.take_mask, state=lambda: sorted(gpu.mask)),
            "gpu_busy_percent": fixed(97),
        }
        if limits:
            made["pp_od_clk_voltage"] = Veiled(
                gpu.shown_limits, gpu.take_limits, state=gpu.kept_limits
            )
        made["gpu_metrics"] = Node(lambda: blob(machine, *metrics), None, 0o444)
        centres = {"class": "0x120000", "current_compute_partition": partition}
        made |= {file: fixed(text) for file, text in centres.items() if centre}
        return made | {"device": fixed(product)}

    def sensors(machine: Machine) -> dict[str, Node]:
        made = {
            power: Node(lambda: round(watts(machine) * UW), None, 0o444),
            "power1_label": fixed("PPT"),
            "freq1_input": Node(lambda: round(machine.point().gpu_mhz * UW), None, 0o444),
        }
        if capped:
            made |= {
                "power1_cap": Node(gpu.told_cap, gpu.take_cap),
                "power1_cap_min": Node(lambda: gpu.least, None, 0o444),
                "power1_cap_max": Node(lambda: gpu.most, None, 0o444),
                "power1_cap_default": Node(lambda: gpu.default, None, 0o444),
            }
        return made

    return host(name, gpu, files, sensors)


def blob(machine: Machine, form: int, content: int) -> bytes:
    """Return gpu_metrics: its energy accumulator in 2^-16 J; all ones if it has none.

    libdrm-amdgpu-sys-rs, doc/amdgpu_metrics.md: format 1 is of cards, 2 and 3 are of APUs.
    """
    machine.advance()
    if form > 1:
        return struct.pack("<HBB", 128, form, content) + b"\xff" * 124
    before = {3: "<20x", 4: "<20x", 5: "<84x"}[content]
    counted = ALL_ONES if content == 3 else int(machine.energy_j * 65536)
    return struct.pack("<HBB", 288, 1, content) + struct.pack(f"{before}QQ", counted, 0) + bytes(32)


def intel(name: str, *, channel: int = 1, off: bool = False, metered: bool = True) -> Board:
    """Return a host with an Intel GPU under xe or i915; before Linux 6.8 it has only channel 1 or 2."""
    kind = "i915" if name.startswith("i915") else "xe"
    gpu = Gpu(kind, 190 * UW, 40 * UW, 190 * UW, (300, 2_400))
    gpu.cap = 0 if off else gpu.cap

    def files(machine: Machine) -> dict[str, Node]:
        now = lambda: round(machine.point().gpu_mhz)  # noqa: E731
        folder, of = (
            ("drm/card1/gt/gt0", "rps_{}_freq_mhz")
            if kind == "i915"
            else ("tile0/gt0/freq0", "{}_freq")
        )
        made = {
            of.format("max"): Node(lambda: gpu.top, partial(gpu.take_top, "top")),
            of.format("min"): Node(lambda: gpu.floor, None, 0o444),
            of.format("act"): Node(now, None, 0o444),
            of.format("RPn" if kind == "i915" else "rpn"): fixed(300),
            of.format("RP0" if kind == "i915" else "rp0"): fixed(2_400),
        }
        if kind == "i915":
            made["rps_boost_freq_mhz"] = Node(lambda: gpu.boost, partial(gpu.take_top, "boost"))
        return {f"{folder}/{file}": node for file, node in made.items()}

    def sensors(machine: Machine) -> dict[str, Node]:
        if not metered:
            return {}
        energy = Widened(lambda: machine.energy_j)
        return {
            f"energy{channel}_input": Node(energy.tell, None, 0o444),
            f"power{channel}_max": Node(gpu.told_cap, gpu.take_cap, 0o664),
            f"power{channel}_rated_max": fixed(gpu.default),
            "power1_crit": fixed(250 * UW),
        }

    return host(name, gpu, files, sensors)


SCOPES = {"Module": 1.0, "Grace": 0.45, "CPU": 0.3, "SysIO": 0.1}
"""The scope of each meter, with its share of the module's power: each scope contains the next."""


def grace() -> Board:
    """Return two sockets of Grace: cppc_cpufreq without a table, and four ACPI meters for each."""
    limits = [Limits(81_000, 3_402_000) for _ in range(2)]
    governors = [Words(("performance", "schedutil"), "schedutil") for _ in limits]
    words = dict(zip(map(id, limits), governors, strict=True))

    def clocks() -> tuple[float, float, float, float]:
        return 1.0, 2400.0, min(limit.runs for limit in limits) / 1000.0, math.inf

    machine, cpus = Machine(servers.SERVER, servers.SERVED, clocks, batch=4), Cpus(2)
    nodes = policies(
        limits,
        cpus,
        lambda limit: {
            "scaling_governor": words[id(limit)].node(),
            "scaling_available_governors": fixed("performance schedutil"),
        },
        "cppc_cpufreq",
    )
    for n, (socket, scope) in enumerate((s, scope) for s in (0, 1) for scope in SCOPES):
        device = f"/sys/devices/LNXSYSTM:00/LNXSYBUS:00/ACPI000D:{n:02}"
        power = partial(_shared, machine, SCOPES[scope] / 2.0)
        nodes |= {
            f"{device}/power1_oem_info": fixed(f"{scope} Power Socket {socket}"),
            f"{device}/power1_average": Node(power, None, 0o444),
            f"{device}/power1_average_interval": fixed(50),
            f"{device}/power1_serial_number": fixed("1420000000000"),
            f"{device}/hwmon/hwmon{n}/name": fixed("power_meter"),
        }
    links = {
        f"/sys/class/hwmon/hwmon{n}": _up(
            3, f"/sys/devices/LNXSYSTM:00/LNXSYBUS:00/ACPI000D:{n:02}/hwmon/hwmon{n}"
        )
        for n in range(8)
    } | {
        f"/sys/devices/LNXSYSTM:00/LNXSYBUS:00/ACPI000D:{n:02}/hwmon/hwmon{n}/device": "../.."
        for n in range(8)
    }
    nodes |= {
        "/proc/cpuinfo": fixed("processor\t: 0\nCPU implementer\t: 0x41"),
        "/proc/sys/kernel/osrelease": fixed("6.8.0-nvidia-64k"),
        "/proc/stat": Node(lambda: f"cpu  {int(machine.now() * 100)} 0 0 1000000 0 0 0 0 0 0"),
    }
    return Board("grace", machine, nodes, links).keep(cpus, *limits, *governors)


def _shared(machine: Machine, share: float) -> int:
    return round(watts(machine) * share * UW)


GPUS: Mapping[str, Callable[[], Board]] = {
    "amdgpu": partial(amd, "amdgpu"),
    "amdgpu-fine": partial(
        amd, "amdgpu-fine", power="power1_input", fine=True, overdrive=True, limits="card"
    ),
    "amdgpu-mi300": partial(
        amd,
        "amdgpu-mi300",
        power="power1_input",
        fine=True,
        metrics=(1, 4),
        centre=True,
        limits="part",
    ),
    "amdgpu-mi300a": partial(
        amd,
        "amdgpu-mi300a",
        power="power1_input",
        fine=True,
        metrics=(1, 4),
        centre=True,
        limits="part",
        product="0x74a0",
        partition="TPX",
    ),
    "amdgpu-apu": partial(amd, "amdgpu-apu", fine=True, capped=False, metrics=(2, 1), limits="apu"),
    "amdgpu-guest": partial(amd, "amdgpu-guest", fine=True, guest=True),
    "xe": partial(intel, "xe"),
    "xe-package": partial(intel, "xe-package", channel=2, off=True),
    "i915": partial(intel, "i915"),
    "i915-integrated": partial(intel, "i915-integrated", metered=False),
}
"""Consumer cards with and without discrete clocks (the latter with overdrive), a data-centre one, an APU, a
virtual function; xe after and before Linux 6.8, and i915 with and without a discrete card.
"""
