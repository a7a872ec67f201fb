"""A power cut between every two steps: what was not synced is lost.

The hardware is assumed to keep its values, which is harder: the journal must know them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from agents.actuator.device import Peer
from agents.actuator.driver import Value
from agents.actuator.journal import RestoreJournal
from agents.devices.fake import knobs as fake
from tests.actuation import Direct, DirectHand, actuator_of
from tests.chaos.disks import VolatileDisk
from tests.chaos.theatre import BOOT, FACTORY, GPU, HELD, TRIED, TRIED_NEXT, Theatre

pytestmark = pytest.mark.timeout(1200)  # a process or more for each point
Count = Callable[[str, int, int], None]


class PowerCut(BaseException):
    pass


class Cut:
    """Raises at the n-th step."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.count = 0

    def tick(self) -> None:
        self.count += 1
        if self.count == self.at:
            raise PowerCut


class CutHand(DirectHand):
    def __init__(self, theatre: Theatre, cut: Cut) -> None:
        super().__init__(theatre.hardware)
        self._cut = cut

    async def ask(self, verb: str, uuid: str = "", *details: Value | None) -> Any:  # noqa: ANN401
        if verb != "describe":
            self._cut.tick()
        return await super().ask(verb, uuid, *details)


def direct(theatre: Theatre, hand: DirectHand, boot: str, originals: RestoreJournal) -> Direct:
    made = actuator_of(theatre.config, lambda: hand, originals, boot, lambda: 0.0)
    return Direct(made)


def play(theatre: Theatre, disk: VolatileDisk, cut: Cut) -> None:
    actuator = direct(theatre, CutHand(theatre, cut), BOOT, disk)
    peer = Peer(1, 1, 7)
    actuator.replay()
    for setting in (TRIED, TRIED_NEXT):
        actuator.acquire(peer, GPU, 5.0)
        actuator.apply(peer, GPU, setting)
        actuator.renew(peer, GPU, 5.0)
        actuator.hold(peer, GPU, HELD, 100.0)
    actuator.release(peer, GPU)


@pytest.mark.promise(
    "power fails during a write",
    "everything written to hardware is in the journal on disk",
)
@pytest.mark.parametrize("torn", [False, True])
def test_hardware_writes_are_journalled_on_disk(torn: bool, tmp_path: Path, count: Count) -> None:
    theatre = Theatre(tmp_path / "t")
    dry = Cut(0)
    play(theatre, VolatileDisk(dry, theatre.journal, torn=torn), dry)
    assert theatre.values == FACTORY
    wrong: list[str] = []
    altered = 0
    for at in range(1, dry.count + 1):
        theatre.renew_hardware()
        cut = Cut(at)
        disk = VolatileDisk(cut, theatre.journal, torn=torn)
        with pytest.raises(PowerCut):
            play(theatre, disk, cut)
        disk.lose_power(theatre.journal)
        altered += theatre.values != FACTORY
        with theatre.quickly(at):
            left = theatre.restore()
        problem = theatre.check_original() or str(left or "")
        if problem:
            wrong.append(f"power cut before {at}: {problem}")
    count(f"power cut{', torn' if torn else ''}", dry.count, len(wrong))
    assert not wrong
    assert altered > dry.count / 3


@pytest.mark.parametrize("torn", [False, True])
def test_a_mode_that_outlives_the_boot_goes_back_after_it(
    torn: bool, tmp_path: Path, count: Count
) -> None:
    """As a mode of nvpmodel: NVIDIA says that "the mode persists across power cycles"; clocks do not."""
    limit = "gpu.power_limit_w"
    theatre = Theatre(tmp_path / "t")
    dry = Cut(0)
    play(theatre, VolatileDisk(dry, theatre.journal, torn=torn), dry)
    wrong: list[str] = []
    altered = 0
    for at in range(1, dry.count + 1):
        theatre.renew_hardware()
        lasting(theatre, limit)
        cut = Cut(at)
        disk = VolatileDisk(cut, theatre.journal, torn=torn)
        with pytest.raises(PowerCut):
            play(theatre, disk, cut)
        disk.lose_power(theatre.journal)
        boot(theatre, limit)
        altered += theatre.values != FACTORY
        restarted = direct(
            theatre, DirectHand(theatre.hardware), "next", RestoreJournal(theatre.journal)
        )
        left = restarted.replay()
        problem = theatre.check_original() or str(left or "")
        if problem:
            wrong.append(f"power cut before {at}: {problem}")
    count(f"power cut of a mode{', torn' if torn else ''}", dry.count, len(wrong))
    assert not wrong
    assert altered > dry.count / 3


def lasting(theatre: Theatre, knob: str) -> None:
    """Let a knob's value outlive a reboot."""
    state = fake.load(theatre.hardware)
    state["devices"][GPU]["lasting"] = [knob]
    fake.save(theatre.hardware, state)


def boot(theatre: Theatre, kept: str) -> None:
    """Reboot the machine: values that do not outlive it are the factory's."""
    state = fake.load(theatre.hardware)
    values = state["devices"][GPU]["values"]
    values.update({knob: value for knob, value in FACTORY.items() if knob != kept})
    state["epoch"] = "next"
    fake.save(theatre.hardware, state)


def test_a_record_of_another_boot_is_dropped_and_the_device_untouched(tmp_path: Path) -> None:
    theatre = Theatre(tmp_path / "t")
    hand = DirectHand(theatre.hardware)
    peer = Peer(1, 1, 7)
    before = direct(theatre, hand, "the boot before", RestoreJournal(theatre.journal))
    before.replay()
    before.acquire(peer, GPU, 5.0)
    before.apply(peer, GPU, TRIED)
    untouched: Mapping[str, object] = theatre.values
    assert theatre.restore() == {}
    assert theatre.values == untouched
    assert not theatre.journalled
