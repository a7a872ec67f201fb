"""Root's writes to AMD and Intel GPUs, whose files round, clamp, hide and lose them."""

from __future__ import annotations

import errno

import pytest

from agents.actuator.driver import KnobDriver, _described
from agents.actuator.grants import Granted
from agents.devices.drm.amd import MASK, MODE
from agents.devices.drm.card import CLOCK, LIMIT
from tests.boards.cards import UW
from tests.boards.gpus import GPUS, PCI
from tests.boards.kernel import Node, fixed
from tests.contracts.drivers import FileDriverContract
from tests.contracts.members import MemberContract
from tests.unit.agents.devices.drm.conftest import ME, UUID, Host, Stands, card_of
from tuner.errors import ActuationError, DeviceLost, KnobRefused

SETTABLE = [name for name in GPUS if name != "amdgpu-guest"]


@pytest.mark.parametrize("name", SETTABLE)
class TestGpus(FileDriverContract, MemberContract):
    cap_knobs = (LIMIT, CLOCK)

    @pytest.fixture
    def driver(self, host: Host, name: str) -> KnobDriver:
        return card_of(host(name))


def test_a_clock_ceiling_is_a_level_and_a_mask_and_the_mask_goes_back_first(stand: Stands) -> None:
    """Documentation/gpu/amdgpu/thermal.rst: masks count in `manual` only; no file shows them."""
    amd = stand("amdgpu")
    amd.hold(mhz=900)
    assert (amd.gpu.level, amd.gpu.mask, amd.gpu.mhz) == ("manual", {0, 1, 2}, 900)
    assert amd.told()["values"][CLOCK] == 900
    amd.hold(mhz=1500, watts=200)
    assert amd.gpu.mhz == 1500 and amd.is_back() and amd.gpu.level == "auto"


def test_a_mask_that_does_not_go_back_keeps_the_level_and_is_tried_again(
    stand: Stands, monkeypatch: pytest.MonkeyPatch
) -> None:
    amd = stand("amdgpu")
    amd.hold(mhz=900)
    broken = amd.board.board.nodes[f"{PCI}/{MASK}"]
    monkeypatch.setattr(broken, "refusal", lambda: errno.EIO)
    with pytest.raises(ActuationError, match="not restored"):
        amd.actuator.release(ME, UUID)
    assert amd.gpu.level == "manual"
    monkeypatch.setattr(broken, "refusal", lambda: 0)
    amd.now[0] += 120.0
    amd.actuator.tick()
    assert amd.board.altered == {} and amd.told()["trouble"] == ""


@pytest.mark.parametrize("level", ["high", "profile_peak"])
def test_a_level_that_an_operator_chose_comes_back(stand: Stands, level: str) -> None:
    amd = stand("amdgpu")
    amd.gpu.level = level
    amd.hold(mhz=900)
    amd.actuator.release(ME, UUID)
    assert (amd.gpu.level, len(amd.gpu.mask)) == (level, 7)


def test_clocks_that_cannot_be_capped_or_restored_are_left_out_by_name(host: Host) -> None:
    """Navi 10 and later without overdrive show a lowest, a present and a highest clock."""
    card = card_of(host("amdgpu-guest"))
    assert CLOCK not in card.ranges() and "only the lowest" in card.without[CLOCK]
    board = host("amdgpu")
    board.board.gpus[0].level = "manual"
    assert "cannot be read back" in card_of(board).without[CLOCK]
    assert LIMIT not in card_of(host("amdgpu-apu")).ranges()


@pytest.mark.parametrize("name", ["amdgpu-fine", "amdgpu-mi300", "amdgpu-apu"])
def test_a_clock_without_levels_is_limited_by_a_committed_limit_which_goes_back_first(
    stand: Stands, name: str
) -> None:
    """navi10_ppt.c, smu_v13_0_6_ppt.c, yellow_carp_ppt.c: in `manual`, staged, then committed."""
    amd = stand(name)
    amd.hold(mhz=900)
    assert (amd.gpu.level, amd.gpu.mhz) == ("manual", 900) and amd.told()["values"][CLOCK] == 900
    amd.hold(mhz=1500)
    assert amd.gpu.mhz == 1500 and amd.is_back() and amd.gpu.level == "auto"


@pytest.mark.parametrize("name", ["amdgpu-fine", "amdgpu-mi300", "amdgpu-apu"])
def test_a_limit_that_is_shown_but_not_in_force_is_committed_after_a_crash(
    stand: Stands, name: str
) -> None:
    """yellow_carp_ppt.c shows a staged limit: a kill between its two writes hides ours."""
    amd = stand(name)
    amd.hold(mhz=900)
    amd.gpu.take_limits("s 1 2500")
    amd.restart()
    assert amd.gpu.mhz == 2500 and amd.board.altered == {} and amd.told()["trouble"] == ""


def test_a_higher_power_limit_that_resets_the_clock_leaves_the_committed_one(stand: Stands) -> None:
    """amdgpu-clocks 63, of an RX 7700 XT: a higher cap resets committed clocks."""
    amd = stand("amdgpu-fine")
    amd.gpu.top = 2000  # by an operator
    amd.board.board.begin = amd.board.board.snapshot()
    amd.hold(watts=200, mhz=900)
    amd.hold(watts=250, mhz=900)
    assert (amd.gpu.cap, amd.gpu.mhz) == (250 * UW, 900)
    assert amd.is_back() and amd.gpu.top == 2000


def test_a_deterministic_clock_of_an_operator_comes_back(stand: Stands) -> None:
    """smu_v13_0_6_ppt.c: leaving perf_determinism for any other level ends it."""
    amd = stand("amdgpu-mi300")
    for text in ("s 1 2000", "c"):
        amd.gpu.level = "perf_determinism"
        amd.gpu.take_limits(text)
    amd.board.board.begin = amd.board.board.snapshot()
    amd.hold(mhz=900)
    assert amd.gpu.determined == 900 and amd.is_back() and amd.gpu.determined == 2000


@pytest.mark.parametrize("name", ["amdgpu", "amdgpu-fine", "amdgpu-mi300"])
def test_the_floor_of_a_budget_stays_in_force(stand: Stands, name: str) -> None:
    """A mask or a limit counts in `manual` only, so the level belongs to the floor, too."""
    amd = stand(name)
    floor = {CLOCK: 900}
    granted = Granted(match="drm:*", grant=amd.grant, floor=floor)
    amd.restart(granted)
    amd.actuator.cap(ME, UUID, "rack", 1, [])
    assert amd.gpu.mhz == 900
    amd.restart(granted)
    assert amd.gpu.mhz == 900 and amd.told()["budget"]["floor"] == floor
    amd.actuator.leave_budget(ME, UUID)
    assert amd.is_back()


def test_a_limit_is_in_whole_watts_and_in_the_range_that_the_kernel_has_now(host: Host) -> None:
    """set_power_cap divides by 10^6; a newer kernel's least limit is another one."""
    board = host("amdgpu")
    card, gpu = card_of(board), board.board.gpus[0]
    assert card.ranges()[LIMIT][:2] == (90, 91)
    gpu.least = 250 * UW
    assert card.ranges()[LIMIT][0] == 250
    with pytest.raises(ActuationError, match=r"Invalid argument.*range may have changed") as caught:
        card.write(LIMIT, 100)
    assert not isinstance(caught.value, KnobRefused)  # other values are still taken
    gpu.least = 0
    assert card.ranges()[LIMIT][0] == 75


def test_only_with_overdrive_the_limit_goes_above_the_default(host: Host) -> None:
    """resources 270: `power1_cap_max` above `power1_cap_default`."""
    tops = {
        n: (c.ranges()[LIMIT][-1], c.defaults[LIMIT])
        for n in ("amdgpu", "amdgpu-fine", "amdgpu-mi300")
        if (c := card_of(host(n)))
    }
    assert tops == {"amdgpu": (300, 300), "amdgpu-fine": (345, 300), "amdgpu-mi300": (300, 300)}


def test_a_virtual_functions_refusal_leaves_nothing_to_restore(stand: Stands) -> None:
    """amdgpu_pm.c: a virtual function answers EINVAL to every limit."""
    guest = stand("amdgpu-guest")
    with pytest.raises(KnobRefused, match="virtual function"):
        guest.hold(watts=200)
    assert guest.told()["trouble"] == guest.told()["paused"] == "" and guest.is_back()


def test_a_gpu_in_a_reset_is_lost_for_the_moment_and_held_again_afterwards(stand: Stands) -> None:
    """amdgpu_pm.c, amdgpu_pm_get_access: EPERM for reads, too."""
    amd = stand("amdgpu")
    amd.hold(watts=200)
    amd.gpu.lose()
    amd.gpu.busy = errno.EPERM
    with pytest.raises(DeviceLost, match="not permitted; it is in a reset"):
        amd.told()
    amd.gpu.busy = 0
    amd.actuator.renew(ME, UUID, 5.0)
    assert amd.gpu.cap == 200 * UW and amd.told()["level"] == "hold" and amd.is_back()


@pytest.mark.parametrize("name", ["amdgpu", "xe", "i915"])
@pytest.mark.parametrize("how", ["lose", "load", "sleep"])
def test_a_limit_that_a_reset_reload_or_sleep_has_lost_is_held_again(
    stand: Stands, name: str, how: str
) -> None:
    """radeon-profile 129 and LACT 41: the files show the default then; nobody is blamed."""
    host_ = stand(name)
    host_.hold(watts=120, mhz=900)
    getattr(host_.gpu, how)()
    if how == "load":
        host_.gpu.loads -= 1
        host_.board.reload()
    host_.actuator.renew(ME, UUID, 5.0)
    assert (host_.gpu.cap, host_.gpu.mhz, host_.gpu.asleep) == (120 * UW, 900, False)
    assert host_.told()["level"] == "hold" and host_.is_back()


def test_another_programs_limit_is_respected_and_named(stand: Stands) -> None:
    amd = stand("amdgpu")
    amd.hold(watts=200)
    amd.gpu.cap = 250 * UW
    with pytest.raises(ActuationError, match=r"another program set gpu\.power_limit_w"):
        amd.actuator.renew(ME, UUID, 5.0)
    assert amd.gpu.cap == 250 * UW


def test_a_limit_that_is_off_is_off_again_afterwards(stand: Stands) -> None:
    """ABI of xe's hwmon: 0 is off; only channel 2 is there before Linux 6.8."""
    xe = stand("xe-package")
    assert xe.told()["values"][LIMIT] is None
    xe.hold(watts=120)
    assert xe.gpu.cap == 120 * UW and xe.is_back() and xe.gpu.cap == 0


def test_a_limit_that_the_card_clamps_is_refused_with_the_shown_value(stand: Stands) -> None:
    """xe_hwmon.c: a limit below the product's least is shown as that. `power1_crit` is another limit."""
    xe = stand("xe")
    xe.gpu.least = 90 * UW
    with pytest.raises(ActuationError, match="is 90000000, not 60000000"):
        xe.hold(watts=60)
    assert xe.is_back()


def test_a_clock_below_the_lower_limit_in_force_is_not_offered(host: Host) -> None:
    for name in ("xe", "i915"):
        board = host(name)
        board.board.gpus[0].floor = 820
        assert card_of(board).ranges()[CLOCK][0] == 850


def test_every_offered_clock_reads_back_as_it_was_written(host: Host) -> None:
    """xe_gt_freq.c and intel_rps.c round to 50/3 MHz."""
    card = card_of(host("xe"))
    for mhz in card.ranges()[CLOCK]:
        card.write(CLOCK, mhz)
        assert card.read()[CLOCK] == mhz


@pytest.mark.parametrize("name", SETTABLE)
def test_a_card_that_cannot_be_read_is_no_other_load_of_its_driver(
    host: Host, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its original values would count as lost, and the card would stay altered."""
    board = host(name)
    card = card_of(board)
    before = card.epoch
    node = board.board.nodes[f"{PCI}/power/runtime_suspended_time"]
    monkeypatch.setattr(node, "refusal", lambda: errno.EIO)
    with pytest.raises(ActuationError):
        assert card.epoch != before
    monkeypatch.setattr(node, "refusal", lambda: 0)
    assert card.epoch == before


def test_a_card_keeps_its_name_when_hwmon_is_numbered_anew(host: Host) -> None:
    board = host("amdgpu")
    card, epoch = card_of(board), card_of(board).epoch
    board.reload()
    card.write(LIMIT, 150)
    assert card.epoch != epoch and board.board.gpus[0].cap == 150 * UW
    assert card_of(board).uuid == card.uuid == UUID and MODE in card.entries()[0]


@pytest.mark.parametrize("name", SETTABLE)
@pytest.mark.parametrize("error", [errno.EIO, errno.EPERM])
def test_no_unreadable_file_hides_a_card(
    host: Host, name: str, error: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broken file costs its knob at most, by name; in a reset the whole card is absent, by name."""
    board = host(name)
    whole = card_of(board).ranges()
    for path, node in board.board.nodes.items():
        if path.startswith(PCI) and "/hwmon5/" not in path:
            with monkeypatch.context() as broken:
                card = card_of(board)  # found before the file breaks
                broken.setattr(node, "refusal", lambda: error)
                about = _described(card)
            if error == errno.EPERM and "absent" in about:
                assert "not permitted" in about["absent"]
            else:
                assert {*whole} <= {*about["ranges"], *about["without"]}
                lost = whole.keys() - about["ranges"].keys()
                assert all("Input/output error" in about["without"][knob] for knob in lost)


def test_a_limit_without_a_default_is_not_offered_or_reported_as_restored(stand: Stands) -> None:
    """xe_hwmon.c shows power1_rated_max only where the firmware has it: the present limit may be ours."""
    xe = stand("xe")
    xe.hold(watts=100)
    for n in (3, 5):
        xe.board.board.nodes[f"{PCI}/hwmon/hwmon{n}/power1_rated_max"] = fixed(0)
    card = card_of(xe.board)
    assert LIMIT not in card.ranges() and LIMIT not in card.defaults
    assert "power1_max has no default" in card.without[LIMIT]
    with pytest.raises(ActuationError, match="has no default"):
        card.plan(LIMIT, None)
    for copy in xe.folder.iterdir():
        copy.write_bytes(b"damaged")
    xe.restart()
    assert xe.gpu.cap == 100 * UW and "default was set: gpu.clock_mhz;" in xe.told()["unknown"]


def test_our_own_manual_is_offered_again_once_it_is_restored(
    stand: Stands, monkeypatch: pytest.MonkeyPatch
) -> None:
    amd = stand("amdgpu")
    amd.hold(mhz=900)
    mask = amd.board.board.nodes[f"{PCI}/{MASK}"]
    with monkeypatch.context() as broken:
        broken.setattr(mask, "take", lambda text: _raise(OSError(errno.EIO, "I/O error")))
        amd.restart()
    amd.now[0] += 120.0
    amd.actuator.tick()
    assert amd.board.altered == {} and amd.actuator.inner.devices[UUID].errors == []
    amd.hold(mhz=900)
    assert amd.is_back()


def test_a_second_loss_of_the_setting_is_left_to_the_other_program(stand: Stands) -> None:
    """NVIDIA's lost locks follow the same rule: written again once, then left alone."""
    amd = stand("amdgpu")
    amd.hold(watts=150)
    for at_s in range(0, 900, 30):
        amd.now[0] = float(at_s)
        if at_s in (30, 660):
            amd.gpu.lose()
        amd.actuator.renew(ME, UUID, 5.0)
        assert amd.gpu.cap == 150 * UW
    amd.gpu.cap = 300 * UW
    with pytest.raises(ActuationError, match="another program set"):
        amd.actuator.renew(ME, UUID, 5.0)
    assert amd.gpu.cap == 300 * UW and amd.told()["paused"]


def _raise(error: OSError) -> None:
    raise error


def test_a_tile_that_took_a_clock_is_restored_if_another_refuses_it(stand: Stands) -> None:
    """Only the refused file has nothing to restore; Ponte Vecchio has two tiles."""
    xe = stand("xe")
    nodes = xe.board.board.nodes
    for path, node in [item for item in nodes.items() if "/tile0/" in item[0]]:
        nodes[path.replace("tile0", "tile1")] = node
    refuses = Node(lambda: 2400, lambda _: _raise(OSError(errno.EINVAL, "Invalid argument")))
    nodes[f"{PCI}/tile1/gt0/freq0/max_freq"] = refuses
    xe.board.board.begin = xe.board.board.snapshot()
    xe.board.reload()
    xe.restart()
    with pytest.raises(KnobRefused, match="tile1"):
        xe.hold(mhz=900)
    assert xe.gpu.top == 2400 and xe.is_back() and xe.told()["trouble"] == ""
