"""A CPU's energy: counters that are summed, wraps, late readings, and incomplete counters."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.actuator.sysfs import CPU_CLOCK
from agents.devices.cpu.energy import counted_uj, find_energy
from agents.devices.cpu.knobs import discover
from agents.target.joules import EnergySource, Joules, in_background
from tests.boards.fixtures import Mount, boards, mount
from tests.boards.inline import InlineBoard
from tests.builders import Time
from tests.errors import raised
from tuner.core import MeasurementError, demand, in_words, judged

__all__ = ["boards", "mount"]
ACPI = "/sys/devices/LNXSYSTM:00/LNXSYBUS:00/ACPI000D"
RANGE_UJ = 262_143_328_850


class Counters:
    """A root with energy counters, and a clock."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = Time()

    def zone(self, folder: str, name: str, energy_uj: int = 0, range_uj: int = RANGE_UJ) -> Path:
        place = self.root / "sys/class/powercap" / folder
        place.mkdir(parents=True)
        (place / "name").write_text(f"{name}\n")
        (place / "max_energy_range_uj").write_text(f"{range_uj}\n")
        (place / "energy_uj").write_text(f"{energy_uj}\n")
        return place / "energy_uj"

    def find(self) -> EnergySource:
        return find_energy(self.root, self.clock, in_background)

    def open(self) -> Joules:
        source = self.find()
        assert source.open is not None
        return source.open()


@pytest.fixture
def counters(tmp_path: Path) -> Counters:
    return Counters(tmp_path)


def test_packages_and_their_dram_add_up_and_parts_and_the_platform_do_not(
    counters: Counters,
) -> None:
    zones = [
        counters.zone("intel-rapl:0", "package-0", 1_000_000),
        counters.zone("intel-rapl:1", "package-1", 9_000_000),
        counters.zone("intel-rapl:0:0", "core"),
        counters.zone("intel-rapl:0:1", "dram"),
        counters.zone("intel-rapl:2", "psys"),
    ]
    counters.zone("intel-rapl-mmio:0", "package-0")
    joules = counters.open()
    for zone in zones:
        zone.write_text(str(int(zone.read_text()) + 3_000_000))
    assert joules.read() == pytest.approx(9.0)
    assert counters.find().source == "the CPU's energy counters (package-0, package-1, dram)"


@pytest.mark.parametrize("name", ["package-0-die-{}", "package-{}"])
@pytest.mark.parametrize("apart_uj", [0, 1])
@pytest.mark.parametrize("start_uj", [5, RANGE_UJ - 25_000_000])
def test_dies_that_show_one_counter_are_counted_once(
    counters: Counters, apart_uj: int, start_uj: int, name: str
) -> None:
    """Zen 1 and 2 (mlco2/codecarbon 1274); those of a Cascade Lake-AP differ (powercap/raplcap 9).

    Before Linux 5.3 a die has the name of a package.
    """
    dies = [counters.zone(f"intel-rapl:{n}", name.format(n), start_uj) for n in (0, 1)]
    memory = [counters.zone(f"intel-rapl:{n}:0", "dram", 7) for n in (0, 1)]
    joules = counters.open()
    for k in range(1, 6):
        counters.clock.sleep(1.0)
        for n, zone in enumerate(dies):
            at_uj = (start_uj + k * 10_000_000 + n * apart_uj * k) % (RANGE_UJ + 1)
            zone.write_text(f"{at_uj}\n")
        for n, zone in enumerate(memory):
            zone.write_text(f"{7 + k * 1_000_000 + n * apart_uj}\n")
    assert joules.read() == pytest.approx(110.0 if apart_uj else 55.0)
    assert ("counted once" in in_words(judged(joules.facts()))) is (not apart_uj)
    joules.close()


def test_the_platform_counts_if_it_is_alone(counters: Counters) -> None:
    zone = counters.zone("intel-rapl:0", "psys")
    joules = counters.open()
    zone.write_text("2000000")
    assert joules.read() == pytest.approx(2.0)


def test_a_wrap_is_counted_through(counters: Counters) -> None:
    zone = counters.zone("intel-rapl:0", "package-0", RANGE_UJ - 1_000_000)
    joules = counters.open()
    for value in (1_999_999, 500_000_000, 900_000_000):
        zone.write_text(str(value))
        counters.clock.sleep(1.0)
        shown = joules.read()
    assert shown == pytest.approx(901.000_001)


@pytest.mark.parametrize("before", [100_000_000_000, 30_000_000, 200_000_000_000])
def test_a_counter_that_restarts_gives_no_measurement(counters: Counters, before: int) -> None:
    """After a resume, a reload of the driver, or a "0" written to energy_uj (powerjoular 87)."""
    zone = counters.zone("intel-rapl:0", "package-0", before)
    joules = counters.open()
    counters.clock.sleep(0.2)
    zone.write_text("20000000")
    with pytest.raises(MeasurementError, match="energy_uj moved by") as refused:
        joules.read()
    assert "measure again" in refused.value.hint
    zone.write_text("60000000")
    counters.clock.sleep(0.2)
    with pytest.raises(MeasurementError):  # the rest of that window gives no measurement, either
        joules.read()


def test_a_64_bit_counter_that_restarts_gives_no_measurement(counters: Counters) -> None:
    folder = counters.root / "sys/class/hwmon/hwmon4"
    folder.mkdir(parents=True)
    for file, text in {"name": "amd_energy", "energy1_label": "Esocket0"}.items():
        (folder / file).write_text(text)
    (folder / "energy1_input").write_text("5000000000")
    joules = counters.open()
    counters.clock.sleep(0.2)
    (folder / "energy1_input").write_text("1000000")
    with pytest.raises(MeasurementError, match=r"1\.84467e\+13 J"):
        joules.read()


def test_a_jump_that_no_package_can_draw_gives_no_measurement(counters: Counters) -> None:
    zone = counters.zone("intel-rapl:0", "package-0")
    joules = counters.open()
    counters.clock.sleep(1.0)
    zone.write_text("62000000000")
    with pytest.raises(MeasurementError, match="62000 J in 1 s"):
        joules.read()


@pytest.mark.parametrize("still", [0, 1])
@pytest.mark.parametrize("others", [0, 1])
def test_a_stopped_package_counter_gives_no_measurement(
    counters: Counters, still: int, others: int
) -> None:
    """Alone, beside another counter that moves, and after it had moved."""
    zones = [counters.zone(f"intel-rapl:{n}", f"package-{n}", n) for n in range(1 + others)]
    joules, broken = counters.open(), zones[min(still, others)]
    for step in range(1, 5):
        counters.clock.sleep(0.6)
        for zone in zones:
            if zone is not broken or step == 1:
                zone.write_text(str(step * 10_000_000))
        joules.read()
    with raised(MeasurementError, f"{broken}: the energy counter did not change for 1.8 s"):
        demand(*joules.facts())


def test_a_memory_counter_that_stands_still_spoils_no_window(counters: Counters) -> None:
    first = counters.zone("intel-rapl:0", "package-0")
    counters.zone("intel-rapl:0:0", "dram")
    joules = counters.open()
    counters.clock.sleep(1.0)
    first.write_text("10000000")
    assert joules.read() == pytest.approx(10.0)


@given(
    st.integers(1, 2**48),
    st.integers(0, 2**48),
    st.lists(st.integers(0, 2**48), max_size=20),
)
def test_steps_below_the_range_are_never_lost(range_uj: int, start: int, steps: list[int]) -> None:
    size = range_uj + 1
    position, counted, spent = start % size, 0, 0
    for step in (step % size for step in steps):
        after = (position + step) % size
        counted += counted_uj(position, after, range_uj)
        position, spent = after, spent + step
    assert counted == spent


def test_a_counter_that_may_have_wrapped_twice_gives_no_measurement(counters: Counters) -> None:
    counters.zone("intel-rapl:0", "package-0", range_uj=65_000_000_000)
    joules = counters.open()
    counters.clock.sleep(64.0)
    joules.read()
    counters.clock.sleep(66.0)
    with pytest.raises(MeasurementError, match="not read for 66 s, at most"):
        joules.read()


def test_without_a_counter_there_are_no_joules(counters: Counters) -> None:
    source = counters.find()
    assert source.open is None and "powercap" in source.why_not


@pytest.mark.parametrize("lost", ["intel-rapl:1/energy_uj", "intel-rapl:1/max_energy_range_uj"])
def test_one_unreadable_package_of_two_leaves_none(counters: Counters, lost: str) -> None:
    counters.zone("intel-rapl:0", "package-0")
    counters.zone("intel-rapl:1", "package-1")
    (counters.root / "sys/class/powercap" / lost).unlink()
    source = counters.find()
    assert source.open is None
    assert lost in source.why_not and "root" in source.why_not


@pytest.mark.parametrize("text", ["", "-5", "many", "1.5", "9" * 5000])
def test_an_invalid_counter_gives_no_measurement(counters: Counters, text: str) -> None:
    zone = counters.zone("intel-rapl:0", "package-0", 1)
    joules = counters.open()
    zone.write_text(text)
    with pytest.raises(MeasurementError, match="energy_uj"):
        joules.read()


def test_the_sockets_of_amd_energy_are_counted_and_its_cores_are_not(counters: Counters) -> None:
    folder = counters.root / "sys/class/hwmon/hwmon4"
    folder.mkdir(parents=True)
    (folder / "name").write_text("amd_energy\n")
    for number, label in enumerate(("Ecore000", "Esocket0", "Esocket1"), 1):
        (folder / f"energy{number}_label").write_text(label)
        (folder / f"energy{number}_input").write_text("0")
    joules = counters.open()
    for number in (1, 2, 3):
        (folder / f"energy{number}_input").write_text("5000000")
    assert joules.read() == pytest.approx(10.0)


def test_an_arm_platforms_power_is_integrated(counters: Counters) -> None:
    for name, watts in (("arm-scmi:0", 40), ("arm-scmi:1", 2), ("arm-scmi:0:0", 30)):
        folder = counters.root / "sys/class/powercap" / name
        folder.mkdir(parents=True)
        (folder / "power_uw").write_text(str(watts * 1_000_000))
    source = find_energy(counters.root, counters.clock, lambda *_: lambda: None)
    assert source.open is not None and "integrated" in source.source
    joules = source.open()
    counters.clock.sleep(0.5)
    assert joules.read() == pytest.approx(21.0)


@pytest.mark.parametrize("seed", range(3))
def test_energy_is_the_integral_of_two_sockets_power_over_wraps_and_late_readings(
    mount: Mount, seed: int
) -> None:
    """The mounted server counts from just under its range: both sockets wrap within the first second."""
    board = mount("xeon")
    board.do(manual=True)
    clock, rng = Time(), random.Random(seed)
    source = find_energy(board.root, clock, in_background)
    assert source.open is not None
    before, joules = board.told["energy_j"], source.open()
    for _ in range(12):
        seconds = rng.choice((0.1, 0.3, 1.0, 4.0, 30.0))
        board.do(pass_s=seconds)
        clock.sleep(seconds)
        shown = joules.read()
    drawn = board.told["energy_j"] - before
    assert shown == pytest.approx(0.9 * drawn, rel=0.005)  # package and dram; `core` is a part


def test_for_each_socket_of_grace_one_meter_is_used(tmp_path: Path) -> None:
    """Documentation/hwmon/acpi_power_meter.rst; NVIDIA's Grace guide: module ⊃ Grace ⊃ CPU + SysIO."""
    board = InlineBoard("grace", tmp_path)
    with board.at():
        source = find_energy(tmp_path, Time(), lambda *_: lambda: None)
        assert "2 sockets, integrated (scope Grace, mean of 50 ms)" in source.source
        (cpus,) = discover(str(tmp_path))
        assert cpus.ranges()[CPU_CLOCK][-1] == 3402
        for n in range(8):
            text = board.board.nodes[f"{ACPI}:{n:02}/power1_oem_info"]
            if "Grace" in str(text.tell()):
                text.tell = lambda: "unknown"
        assert "scope CPU" in find_energy(tmp_path, Time(), in_background).source


@pytest.mark.parametrize("missing", ["Grace Power Socket 1", "Grace Power Socket 0"])
def test_a_meter_of_one_grace_socket_is_not_taken_for_both(tmp_path: Path, missing: str) -> None:
    board = InlineBoard("grace", tmp_path)
    texts = [n for path, n in board.board.nodes.items() if path.endswith("power1_oem_info")]
    with board.at():
        for text in (t for t in texts if str(t.tell()) == missing):
            text.tell = lambda: "unknown"
        source = find_energy(tmp_path, Time(), in_background)
        assert "2 sockets, integrated (scope CPU" in source.source
        for text in (t for t in texts if str(t.tell()).startswith("CPU Power Socket 1")):
            text.tell = lambda: "unknown"
        assert "Grace of socket" in find_energy(tmp_path, Time(), in_background).why_not


def test_a_grace_meter_without_a_sample_or_with_the_gpu_in_it_is_not_used(tmp_path: Path) -> None:
    board = InlineBoard("grace", tmp_path)
    nodes = board.board.nodes
    with board.at():
        nodes[f"{ACPI}:01/power1_average"].refusal = lambda: errno.ENODATA
        assert "No data available" in find_energy(tmp_path, Time(), in_background).why_not
        for n in range(8):
            if "Module" not in str(nodes[f"{ACPI}:{n:02}/power1_oem_info"].tell()):
                nodes[f"{ACPI}:{n:02}/power1_oem_info"].tell = lambda: "unknown"
        assert (
            "cover only Module of socket 0 and 1"
            in find_energy(tmp_path, Time(), in_background).why_not
        )
