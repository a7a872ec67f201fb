"""AMD and Intel GPUs as an agent sees them: their energy, their ceilings, and the doctor's findings."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agents.devices.catalogue import open_device
from agents.devices.drm.device import ceilings, throttled
from agents.devices.drm.diagnosis import examine
from agents.devices.drm.energy import find_energy
from agents.target.joules import Joules
from agents.target.side import HOST_CPU
from agents.target.target import Target
from tests.boards.gpus import ADDRESS, GPUS, PCI
from tests.boards.inline import InlineBoard
from tests.boards.kernel import Node, fixed
from tests.builders import Time
from tests.unit.agents.devices.drm.conftest import Host
from tuner.core import ConfigError, DeviceLost, InvalidInput, MeasurementError, Scope

SPEC = f"drm:{ADDRESS}"


class Metered:
    """A GPU's open energy, over time that a test passes."""

    def __init__(self, board: InlineBoard) -> None:
        self.board, self.clock, self.samples = board, Time(), list[Callable[[], None]]()
        board.board.machine.take_by_hand()
        self.source = find_energy(board.root / PCI[1:], self.clock, self._every)
        assert self.source.open is not None
        self.joules: Joules = self.source.open()
        self.before = board.board.machine.energy_j

    def _every(self, period_s: float, job: Callable[[], None]) -> Callable[[], None]:
        self.samples.append(job)
        return lambda: None

    def passes(self, seconds: float, step_s: float = 0.5) -> None:
        for _ in range(round(seconds / step_s)):
            self.board.board.machine.pass_s(step_s)
            self.clock.sleep(step_s)
            for sample in self.samples:
                sample()

    @property
    def truly(self) -> float:
        return self.board.board.machine.energy_j - self.before


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("amdgpu", "integrated (power1_average)"),
        ("amdgpu-fine", "integrated (power1_input)"),
        ("amdgpu-mi300", "accumulator"),
        ("xe", "the card's energy counter"),
        ("xe-package", "the package without its memory's energy counter"),
        ("i915", "the card's energy counter"),
    ],
)
def test_each_family_is_measured_by_its_best_source(host: Host, name: str, source: str) -> None:
    """amdgpu-sysfs-rs 5, nvtop 244: power1_average or power1_input; gpu_metrics 1.4 in 2^-16 J."""
    metered = Metered(host(name))
    metered.passes(20.0)
    assert source in metered.source.source
    assert metered.joules.read() == pytest.approx(metered.truly, rel=0.03)


def test_a_counter_of_32_bits_that_was_not_read_for_a_minute_gives_no_figure(host: Host) -> None:
    """xe_hwmon.c: the register is widened only when read; at 1,000 W it wraps in 4.4 min."""
    xe = Metered(host("xe"))
    xe.passes(59.0, 59.0)
    assert xe.joules.read() == pytest.approx(xe.truly, rel=0.01)
    xe.passes(3600.0, 3600.0)
    for _ in range(2):
        with pytest.raises(MeasurementError, match="not read for 3\\.6e\\+03 s"):
            xe.joules.read()


def test_a_register_that_wraps_between_two_reads_is_counted(host: Host) -> None:
    board = host("xe")
    board.board.machine.energy_j = 2.0**32 * 2.0**-14 - 100.0
    xe = Metered(board)
    xe.passes(30.0)
    assert xe.joules.read() == pytest.approx(xe.truly, rel=0.01)


def test_wraps_of_the_register_between_two_windows_change_neither(host: Host) -> None:
    """xe_hwmon.c adds what its register has moved since the last read, of any reader."""
    xe = Metered(host("xe"))
    xe.passes(3600.0, 3600.0)
    assert xe.source.open is not None
    joules, before = xe.source.open(), xe.board.board.machine.energy_j
    xe.passes(30.0)
    assert joules.read() == pytest.approx(xe.board.board.machine.energy_j - before, rel=0.01)


def test_a_counter_that_begins_anew_gives_no_figure(host: Host) -> None:
    board = host("amdgpu-mi300")
    mi300 = Metered(board)
    mi300.passes(5.0)
    assert mi300.joules.read() > 0.0
    board.board.machine.energy_j = 0.0
    mi300.passes(1.0)
    with pytest.raises(MeasurementError, match="jumped back"):
        mi300.joules.read()


@pytest.mark.parametrize("name", ["amdgpu-mi300", "xe", "xe-package", "i915"])
def test_more_than_twice_the_greatest_limit_gives_no_figure(host: Host, name: str) -> None:
    """nvtop 409: up to 4,000 W of an Arc B570; xpumanager 130."""
    metered = Metered(host(name))
    metered.passes(1.0)
    assert metered.joules.read() > 0.0
    metered.board.board.machine.energy_j += 1500.0
    metered.passes(0.5)
    with pytest.raises(MeasurementError, match=r"moved by .* draws at most [56]00 W"):
        metered.joules.read()


@pytest.mark.parametrize(
    ("name", "file", "text", "why"),
    [("amdgpu", "device", "0x7408", "both"), ("xe", "sriov_numvfs", "2", "virtual functions: 2")],
)
def test_the_energy_of_two_dies_and_of_guests_is_shared(
    host: Host, name: str, file: str, text: str, why: str
) -> None:
    """codecarbon 1097: the first of an MI250X's two devices shows the power of both."""
    board = host(name)
    assert not open_device(SPEC, seed=0, state_dir=None, root=board.root).shared
    board.board.nodes[f"{PCI}/{file}"] = fixed(text)
    assert why in open_device(SPEC, seed=0, state_dir=None, root=board.root).shared


def test_an_accumulator_of_all_ones_is_not_used(host: Host) -> None:
    """MangoHud 875: unused fields of gpu_metrics are all ones."""
    board = host("amdgpu-mi300")
    told = b"\x20\x01\x01\x03" + b"\xff" * 100
    board.board.nodes[f"{PCI}/gpu_metrics"] = Node(lambda: told)
    assert "integrated (power1_input)" in Metered(board).source.source


def test_a_sensor_that_shows_almost_nothing_gives_no_measurement(host: Host) -> None:
    """AMD's tools show 0 to 2 W of cards whose sensor their kernel cannot read."""
    board = host("amdgpu")
    board.board.nodes[f"{PCI}/hwmon/hwmon3/power1_average"] = fixed(1_500_000)
    amd = Metered(board)
    amd.passes(2.0)
    with pytest.raises(MeasurementError, match=r"at most 1\.5 W"):
        amd.joules.read()


def test_power_that_the_driver_does_not_have_yet_is_reported(host: Host) -> None:
    board = host("amdgpu")
    board.board.nodes[f"{PCI}/hwmon/hwmon3/power1_average"].refusal = lambda: errno.ENODATA
    side = open_device(SPEC, seed=0, state_dir=None, root=board.root)
    assert side.metrics == () and "No data available" in side.cannot["energy_j"]


def test_an_integrated_gpus_energy_is_the_processors_too(host: Host) -> None:
    """thermal.rst: on APUs the power is that of the SoC with its CPU."""
    apu = open_device(SPEC, seed=0, state_dir=None, root=host("amdgpu-apu").root)
    card = open_device(SPEC, seed=0, state_dir=None, root=host("amdgpu").root)
    mi300a = open_device(SPEC, seed=0, state_dir=None, root=host("amdgpu-mi300a").root)
    assert {m.scope for m in apu.metrics} == {Scope.MODULE} and apu.energy_of > {SPEC}
    assert mi300a.energy_of == apu.energy_of and "accumulator" in mi300a.source
    assert {m.scope for m in card.metrics} == {Scope.BOARD} and card.energy_of == {SPEC}


def test_the_scope_of_a_cards_energy_is_read_from_its_metrics_not_from_its_limit(
    host: Host,
) -> None:
    """amdgpu_pm.c: Van Gogh, an APU, has power1_cap; cards of Southern Islands have neither file."""
    van_gogh, island = host("amdgpu-fine"), host("amdgpu")
    van_gogh.board.nodes[f"{PCI}/gpu_metrics"] = Node(lambda: b"\x80\x00\x02\x04")
    apu = open_device(SPEC, seed=0, state_dir=None, root=van_gogh.root)
    assert apu.energy_of > {SPEC} and apu.perhaps_of == frozenset()
    island.board.nodes[f"{PCI}/gpu_metrics"].refusal = lambda: errno.EOPNOTSUPP
    card = open_device(SPEC, seed=0, state_dir=None, root=island.root)
    cpu = replace(apu, name="cpu", energy_of=frozenset({HOST_CPU}))
    with pytest.raises(ConfigError, match=f"energy of drm-{ADDRESS} may include that of cpu"):
        Target((cpu, card))
    assert Target((card,)).metrics == card.metrics


def test_a_card_is_opened_by_its_address_alone(host: Host) -> None:
    board = host("i915")
    side = open_device(SPEC, seed=0, state_dir=None, root=board.root)
    assert (side.board, side.spec, side.name) == ("Intel GPU 0xe20b", SPEC, f"drm-{ADDRESS}")
    assert side.cannot["gpu.clock_mhz"].startswith("measured only")
    with pytest.raises(InvalidInput, match=r"no GPU drm:0.*drm:0000:03:00\.0"):
        open_device("drm:0", seed=0, state_dir=None, root=board.root)
    board.board.gpus[0].busy = errno.EPERM
    amd = host("amdgpu")
    amd.board.gpus[0].busy = errno.EPERM
    with pytest.raises(DeviceLost, match="not permitted"):
        open_device(SPEC, seed=0, state_dir=None, root=amd.root)


def test_heat_is_reported_by_drivers_that_show_it(host: Host) -> None:
    board = host("xe")
    folder = board.root / PCI[1:]
    assert not throttled(folder) and list(ceilings(folder, None)) == []
    hot = folder / "tile0/gt0/freq0/throttle/reason_thermal"
    hot.parent.mkdir()
    hot.write_text("1\n")
    assert throttled(folder)


@pytest.mark.parametrize("name", GPUS)
def test_the_doctor_names_each_knob_or_why_there_is_none(host: Host, name: str) -> None:
    board = host(name)
    found = {one.about.removeprefix(f"{SPEC}: "): one for one in examine(board.root)}
    assert {"gpu.power_limit_w", "gpu.clock_mhz", "energy", SPEC} <= found.keys()
    settable = any(found[knob].well for knob in ("gpu.power_limit_w", "gpu.clock_mhz"))
    assert ("permission to set" in found) is settable
    assert ("sharing" in found) is (name == "amdgpu-mi300a")  # in partitions
    assert not settable or "install.sh --drm" in found["permission to set"].cure
    assert board.altered == {}


def test_the_doctor_names_a_card_in_a_reset_and_nothing_on_a_host_without(
    host: Host, tmp_path: Path
) -> None:
    board = host("amdgpu")
    board.board.gpus[0].busy = errno.EPERM
    (one,) = examine(board.root)
    assert one.about == SPEC and one.well is False and "not permitted" in one.seen
    assert list(examine(tmp_path / "elsewhere")) == []
