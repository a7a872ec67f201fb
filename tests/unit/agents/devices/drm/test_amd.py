"""The clock of an AMD GPU: what a refusal, another program or a lost journal must not leave behind."""

from __future__ import annotations

import errno

import pytest

from agents.devices.drm.amd import LIMITS, MASK
from agents.devices.drm.card import CLOCK
from tests.boards.cards import UW
from tests.boards.gpus import PCI
from tests.unit.agents.devices.drm.conftest import ME, UUID, Stand, Stands
from tuner.errors import ActuationError, KnobRefused


def refuse(amd: Stand, file: str, line: str = "") -> pytest.MonkeyPatch:
    """Let a file answer EINVAL to a text, or to every one, until the patch is undone."""
    patch, node = pytest.MonkeyPatch(), amd.board.board.nodes[f"{PCI}/{file}"]
    takes = node.take

    def take(text: str) -> None:
        if line in ("", text.strip()):
            raise OSError(errno.EINVAL, "Invalid argument")
        assert takes is not None
        takes(text)

    patch.setattr(node, "take", take)
    return patch


@pytest.mark.parametrize(
    ("name", "file", "line"),
    [
        ("amdgpu", MASK, ""),
        *((f"amdgpu-{n}", LIMITS, line) for n in ("fine", "mi300", "apu") for line in ("", "c")),
    ],
)
def test_a_refused_clock_leaves_no_level_and_no_staged_limit(
    stand: Stands, name: str, file: str, line: str
) -> None:
    """amdgpu_pm.c: a virtual function answers EINVAL to masks and limits, in `manual` only."""
    amd = stand(name)
    refused = refuse(amd, file, line)
    with pytest.raises(KnobRefused, match="Invalid argument"):
        amd.hold(mhz=900)
    assert amd.told()["trouble"] == "" and amd.board.altered == {}
    refused.undo()
    amd.hold(mhz=900)
    assert amd.is_back()


@pytest.mark.parametrize("before", [{}, {"watts": 200}])
def test_a_mask_that_an_operator_set_after_the_start_is_left_alone(
    stand: Stands, before: dict[str, int]
) -> None:
    """thermal.rst: no file shows a mask, so it could not be restored."""
    amd = stand("amdgpu")
    if before:
        amd.hold(**before)
    amd.gpu.level, amd.gpu.mask = "manual", frozenset({0, 1})
    with pytest.raises(ActuationError, match="cannot be read back"):
        amd.hold(mhz=900, **before)
    assert (amd.gpu.level, amd.gpu.mask, amd.gpu.cap) == ("manual", {0, 1}, 300 * UW)


@pytest.mark.parametrize("level", ["auto", "high"])
def test_our_mask_does_not_stay_behind_another_programs_level(stand: Stands, level: str) -> None:
    amd = stand("amdgpu")
    amd.hold(mhz=900)
    amd.gpu.level = level
    amd.actuator.release(ME, UUID)
    assert (amd.gpu.level, len(amd.gpu.mask)) == (level, 7)


@pytest.mark.parametrize("level", ["auto", "high"])
def test_a_power_limit_that_resets_an_operators_clock_gives_it_back_at_once(
    stand: Stands, level: str
) -> None:
    """amdgpu-clocks 63; navi10_ppt.c takes a clock in any level, so no level is left behind."""
    amd = stand("amdgpu-fine")
    amd.gpu.top, amd.gpu.level = 2000, level
    amd.board.board.begin = amd.board.board.snapshot()
    amd.hold(watts=200)
    assert amd.is_back() and amd.told()["trouble"] == ""


def test_a_mask_counts_in_manual_only_and_the_operators_level_comes_back(stand: Stands) -> None:
    amd = stand("amdgpu")
    amd.gpu.level = "perf_determinism"
    amd.hold(mhz=900)
    amd.actuator.renew(ME, UUID, 5.0)
    assert amd.gpu.mhz == 900 and amd.told()["values"][CLOCK] == 900
    amd.actuator.release(ME, UUID)
    assert amd.gpu.level == "perf_determinism"


def test_without_a_journal_the_clock_is_freed_and_a_voltage_curve_stays(stand: Stands) -> None:
    """navi10_ppt.c: `r` resets the whole table, with the curve of an operator."""
    amd = stand("amdgpu-fine")
    amd.gpu.curve = -50
    amd.hold(mhz=900)
    for copy in amd.folder.iterdir():
        copy.write_bytes(b"damaged")
    amd.restart()
    assert (amd.gpu.mhz, amd.gpu.curve, amd.gpu.level) == (2500, -50, "auto")
