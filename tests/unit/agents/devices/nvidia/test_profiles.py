"""A workload power profile as a knob: only our own request is made, judged and withdrawn.

Source: NVIDIA's NVML API reference: any program may request profiles; a set adds to those requested.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agents.actuator.device import Peer
from agents.actuator.grants import Granted
from agents.devices.nvidia.knobs import CLOCK, PROFILE, discover
from agents.devices.nvidia.limits import coarsened
from tests.actuation import replayed
from tests.chaos.points import InlineDriver
from tests.errors import raised
from tests.nvml.fake import A100, FakeNvml
from tuner.errors import ActuationError, KnobRefused, OutOfRange, UnknownKnob

ME = Peer(1, 1, 7)
WORDS = ("max-p", "max-q", "compute")
"""The profiles of bits 0 to 2."""


@dataclass
class Stand:
    """An actuator over the fake's first GPU, whose profiles are all granted."""

    nvml: FakeNvml
    folder: Path

    def __post_init__(self) -> None:
        self.nvml.set("profiles", 7.0)
        self.restart()

    def restart(self) -> None:
        """Start the actuator, as after a kill."""
        granted = Granted(match=A100, grant={PROFILE: WORDS, CLOCK: (210, 1410)})
        hand = lambda: InlineDriver(discover, lambda _: None)  # noqa: E731
        self.actuator = replayed(granted, hand, self.folder)

    @property
    def requested(self) -> int:
        return int(self.nvml.get("requested_profiles"))

    def others_request(self, mask: int) -> None:
        self.nvml.set("requested_profiles", float(mask))

    def hold(self, profile: str) -> None:
        self.actuator.hold(ME, A100, {PROFILE: profile, CLOCK: 1005}, 1000.0)

    def read(self) -> dict[str, Any]:
        return self.actuator.read(ME, A100)


@pytest.fixture
def stand(nvml: FakeNvml, tmp_path: Path) -> Stand:
    (tmp_path / "journal").mkdir()
    return Stand(nvml, tmp_path / "journal")


@pytest.mark.parametrize("others", [0, 4])
def test_our_request_is_added_to_the_others_and_withdrawn_alone(stand: Stand, others: int) -> None:
    stand.others_request(others)
    stand.hold("max-q")
    assert (stand.requested, stand.read()["values"][PROFILE]) == (others | 2, "max-q")
    stand.hold("max-p")
    assert (stand.requested, stand.read()["values"][PROFILE]) == (others | 1, "max-p")
    stand.actuator.renew(ME, A100, 5.0)
    stand.actuator.release(ME, A100)
    assert stand.requested == others and stand.read()["paused"] == stand.read()["trouble"] == ""


def test_a_request_that_another_program_makes_meanwhile_stays(stand: Stand) -> None:
    stand.hold("max-q")
    stand.others_request(6)
    stand.actuator.renew(ME, A100, 5.0)
    assert stand.read()["values"][PROFILE] == "max-q"
    stand.hold("max-p")
    assert stand.requested == 5
    stand.actuator.release(ME, A100)
    assert stand.requested == 4 and stand.read()["paused"] == ""


def test_a_profile_that_another_program_had_requested_first_is_not_withdrawn(stand: Stand) -> None:
    stand.others_request(2)
    stand.hold("max-q")
    stand.actuator.release(ME, A100)
    assert stand.requested == 2
    assert coarsened(PROFILE, WORDS, "max-q+compute") == ["max-p"]


def test_our_request_that_another_program_withdrew_pauses_the_device(stand: Stand) -> None:
    stand.hold("max-q")
    stand.others_request(0)
    with pytest.raises(ActuationError, match=r"another program set gpu\.power_profile to 'off'"):
        stand.actuator.renew(ME, A100, 5.0)
    assert stand.requested == 0 and stand.read()["paused"]


@pytest.mark.parametrize("others", [0, 4])
def test_after_a_kill_only_our_request_is_withdrawn(stand: Stand, others: int) -> None:
    stand.others_request(others)
    stand.hold("max-q")
    stand.others_request(others | 2 | 1)
    stand.restart()
    assert stand.requested == others | 1 and stand.read()["paused"] == ""


def test_with_a_damaged_journal_no_request_is_left(stand: Stand) -> None:
    stand.hold("max-q")
    for copy in stand.folder.iterdir():
        copy.write_bytes(b"damaged")
    stand.restart()
    assert stand.requested == 0 and PROFILE in stand.read()["unknown"]


def test_a_board_without_profiles_and_a_word_that_is_not_granted_are_refused_by_name(
    nvml: FakeNvml, stand: Stand
) -> None:
    with raised(OutOfRange, PROFILE):
        stand.hold("hpc")
    nvml.refuse("nvmlDeviceWorkloadPowerProfileSetRequestedProfiles", 4)
    with raised(KnobRefused, PROFILE):
        stand.hold("max-q")
    assert stand.requested == 0 and stand.read()["trouble"] == ""
    nvml.set("profiles", 0.0)
    stand.restart()
    with raised(UnknownKnob, PROFILE):
        stand.hold("max-q")
    (device,) = (d for d in stand.actuator.inner.devices.values() if d.uuid == A100)
    assert any(PROFILE in error for error in device.errors)
    assert "not support" in discover()[0].without[PROFILE]
