"""Ceilings that show the limit in force, as `scaling_max_freq` and devfreq's `max_freq` do.

Source: Documentation/admin-guide/pm/cpufreq.rst and drivers/cpufreq/cpufreq.c of the kernel: a policy's
maximum is the lowest of all requests, also those of heat, of `_PPC` and of cpufreq_cooling.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agents.actuator.journal import PROBING
from agents.devices.fake import knobs as fake
from agents.devices.fake.knobs import CEILING
from tests.unit.agents.actuator.bench import CLOCK, GPU, LIMIT, ME, ROOT, YOU, Bench
from tuner.core import ActuationError, Conflict

TOP, HELD, CAP, LOWER = 3500, 3000, 2800, 2000
BOOST = "cpu.boost"


class Capped(Bench):
    """A bench whose devices also have a ceiling."""

    def __init__(self, folder: Path) -> None:
        grant = {CLOCK: (600, 1410), LIMIT: (150, 350), CEILING: (800, TOP), BOOST: ("off", "on")}
        super().__init__(
            folder,
            {"grant": {k: grant[k] for k in grant.keys() & {CLOCK, *fake.ALL}}},
            knobs=fake.ALL,
        )

    def cap(self, at: int | None) -> None:
        state = fake.load(self.hardware)
        state["devices"][GPU].pop("cap", None)
        state["devices"][GPU] |= {} if at is None else {"cap": at}
        fake.save(self.hardware, state)

    @property
    def asked(self) -> int:
        """The requested value, which cannot be read while the kernel caps it."""
        return int(self.values[CEILING])

    def told(self) -> dict[str, object]:
        return dict(self.actuator.read(YOU, GPU))

    @property
    def writes(self) -> list[object]:
        return [value for knob, value in self.hand.puts if knob == CEILING]


@pytest.fixture
def capped(tmp_path: Path) -> Capped:
    return Capped(tmp_path / "b")


def hold(bench: Capped) -> None:
    bench.actuator.hold(ME, GPU, {CEILING: HELD}, 1000.0)


@pytest.mark.parametrize("held", [True, False], ids=["hold", "trial"])
def test_a_ceiling_that_a_cap_hides_after_a_sleep_is_not_forgotten(
    capped: Capped, held: bool
) -> None:
    """The sleep has kept our value: it shows once the cap is over."""
    slept_s = 0.0
    (device,) = (d for d in capped.actuator.inner.devices.values() if d.uuid == GPU)
    device.restorer.suspended_s = lambda: slept_s
    if held:
        hold(capped)
    else:
        capped.actuator.acquire(ME, GPU, 10.0)
        capped.actuator.apply(ME, GPU, {CEILING: HELD})
    capped.cap(CAP)
    slept_s = 3600.0
    capped.passes(1.0)
    capped.cap(None)
    if held:
        assert capped.asked == HELD
        capped.actuator.release(ME, GPU)
    capped.passes(120.0)
    assert capped.asked == TOP and not capped.record.exists()


def test_a_cap_during_a_hold_is_reported_and_the_hold_goes_on(capped: Capped) -> None:
    hold(capped)
    capped.cap(CAP)
    for _ in range(5):
        capped.passes(9.0)
        capped.actuator.renew(ME, GPU, 10.0)
    assert capped.level() == "hold" and capped.asked == HELD
    status = capped.told()
    assert status["values"] == {CLOCK: None, LIMIT: 400, CEILING: HELD}
    assert status["paused"] == "" and str(CAP) in str(status["throttled"])
    assert capped.writes == [HELD, HELD], "ours is written once more, and no oftener"
    capped.cap(None)
    capped.actuator.renew(ME, GPU, 10.0)
    assert capped.told()["throttled"] == ""
    capped.actuator.release(ME, GPU)
    assert capped.asked == TOP and not capped.record.exists()


def test_each_move_of_a_cap_is_a_new_cap(capped: Capped) -> None:
    hold(capped)
    for cap in (2900, 2700, 2300, 2600, 3400, 2500):
        capped.cap(cap)
        capped.actuator.renew(ME, GPU, 10.0)
        assert capped.level() == "hold" and capped.asked == HELD


def test_a_study_that_ends_while_hot_leaves_the_requested_limit(capped: Capped) -> None:
    hold(capped)
    capped.cap(CAP)
    capped.actuator.release(ME, GPU)
    assert capped.asked == TOP
    assert capped.record.exists(), "until it is known to be back"
    assert capped.told()["paused"] == capped.told()["trouble"] == ""
    writes = len(capped.writes)
    for _ in range(100):
        capped.passes(10.0)
    assert len(capped.writes) == writes, "what waits for a cap is not written again and again"
    capped.cap(None)
    capped.passes(100.0)
    assert not capped.record.exists() and capped.asked == TOP


def test_a_device_released_under_a_cap_can_be_held_again(capped: Capped) -> None:
    hold(capped)
    capped.cap(CAP)
    capped.actuator.release(ME, GPU)
    capped.actuator.hold(YOU, GPU, {CEILING: HELD}, 100.0)
    assert capped.asked == HELD
    capped.actuator.release(YOU, GPU)
    capped.cap(None)
    capped.passes(100.0)
    assert capped.asked == TOP and not capped.record.exists()


def test_a_cap_from_the_beginning_is_not_the_requested_value(capped: Capped) -> None:
    """The device is found hot, at 2.8 GHz. The restore removes the limit; it does not write 2.8 GHz."""
    capped.cap(CAP)
    capped.actuator.acquire(ME, GPU, 10.0)
    capped.actuator.apply(ME, GPU, {CEILING: 2000})
    assert capped.asked == 2000
    capped.actuator.release(ME, GPU)
    capped.cap(None)
    capped.passes(100.0)
    assert capped.asked == TOP and not capped.record.exists()


def test_a_limit_that_an_operator_set_goes_back_though_it_is_hot_meanwhile(capped: Capped) -> None:
    capped.change(values={CEILING: 2500})
    hold(capped)
    assert capped.asked == HELD
    capped.cap(CAP)
    capped.actuator.renew(ME, GPU, 10.0)
    capped.actuator.release(ME, GPU)
    assert capped.asked == 2500 and not capped.record.exists()


def test_a_limit_that_equals_the_cap_is_restored_too(capped: Capped) -> None:
    capped.change(values={CEILING: CAP})
    hold(capped)
    capped.cap(CAP)
    capped.actuator.release(ME, GPU)
    assert capped.asked == CAP


def test_a_setting_that_is_capped_as_it_is_written_is_in_force(capped: Capped) -> None:
    capped.cap(CAP)
    hold(capped)
    assert capped.asked == HELD and capped.level() == "hold"
    assert capped.told()["throttled"]


def test_a_foreign_lower_ceiling_is_restored_at_once_and_the_device_paused(capped: Capped) -> None:
    hold(capped)
    capped.change(values={CEILING: LOWER})
    with pytest.raises(ActuationError, match=f"another program set {CEILING} to {LOWER}"):
        capped.actuator.renew(ME, GPU, 10.0)
    assert capped.asked == LOWER
    assert capped.writes == [HELD, HELD, LOWER]
    capped.passes(100.0)
    assert capped.writes == [HELD, HELD, LOWER]
    with pytest.raises(Conflict, match="paused"):
        capped.actuator.acquire(YOU, GPU, 5.0)
    capped.start().replay()
    assert capped.asked == LOWER, "it is left at the end, too"
    capped.actuator.restore(ROOT, GPU)
    assert not capped.record.exists()


def test_a_foreign_lower_ceiling_survives_the_end_of_a_trial(capped: Capped) -> None:
    capped.actuator.acquire(ME, GPU, 10.0)
    capped.actuator.apply(ME, GPU, {CEILING: HELD, LIMIT: 250})
    capped.change(values={CEILING: LOWER})
    capped.passes(11.0)
    assert capped.asked == LOWER and capped.values[LIMIT] == 400


def test_a_foreign_lower_ceiling_under_a_cap_is_detected_after_the_cap(capped: Capped) -> None:
    hold(capped)
    capped.cap(1500)
    capped.actuator.renew(ME, GPU, 10.0)
    capped.change(values={CEILING: LOWER})
    capped.actuator.renew(ME, GPU, 10.0)
    capped.cap(None)
    with pytest.raises(ActuationError, match="another program"):
        capped.actuator.renew(ME, GPU, 10.0)
    assert capped.asked == LOWER


def test_a_clock_above_its_ceiling_contradicts_it_without_a_write(capped: Capped) -> None:
    hold(capped)
    capped.change(values={CEILING: 3200})
    capped.hand.puts.clear()
    with pytest.raises(ActuationError, match="3200"):
        capped.actuator.renew(ME, GPU, 10.0)
    assert capped.hand.puts == [] and capped.asked == 3200


def test_a_limit_that_shows_the_request_is_not_probed(capped: Capped) -> None:
    """Powercap's files and NVML's limit show the request, so another program has set a different value."""
    capped.trial({LIMIT: 250})
    capped.change(values={LIMIT: 200})
    capped.hand.puts.clear()
    with pytest.raises(ActuationError, match="200"):
        capped.actuator.renew(ME, GPU, 10.0)
    assert capped.hand.puts == []


def test_the_lower_value_is_journalled_before_ours_is_written_once_more(capped: Capped) -> None:
    hold(capped)
    capped.change(values={CEILING: LOWER})
    capped.raises["write", GPU] = KeyError("killed here")
    with pytest.raises(KeyError):
        capped.actuator.renew(ME, GPU, 10.0)
    noted = json.loads(json.loads(capped.record.read_bytes())["record"])["entries"][CEILING]
    assert (noted["state"], noted["at"]) == (PROBING, LOWER)
    capped.raises.clear()
    capped.start().replay()
    assert capped.asked == LOWER


def test_a_cap_that_ends_while_it_is_journalled_is_no_change_by_another(capped: Capped) -> None:
    """A write to the disk takes as long as a governor of heat needs for several steps."""
    hold(capped)
    capped.cap(CAP)
    capped.disk.after = (PROBING, lambda: capped.cap(None))
    capped.actuator.renew(ME, GPU, 10.0)
    assert (capped.level(), capped.asked, capped.told()["paused"]) == ("hold", HELD, "")
    capped.actuator.release(ME, GPU)
    assert capped.asked == TOP and not capped.record.exists()


@pytest.mark.parametrize("then", [None, 2900])
def test_a_cap_that_moves_as_it_is_first_met_is_not_taken_for_the_original(
    capped: Capped, then: int | None
) -> None:
    capped.change(values={CEILING: HELD})
    capped.cap(CAP)
    capped.disk.after = (PROBING, lambda: capped.cap(then))
    capped.actuator.acquire(ME, GPU, 10.0)
    with pytest.raises(ActuationError, match="changed as it was read"):
        capped.actuator.apply(ME, GPU, {CEILING: 1000})
    capped.disk.after = None
    capped.passes(120.0)
    assert capped.asked == HELD and not capped.record.exists()


@pytest.fixture
def boosted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Capped:
    """Return a bench whose devices also have boost; switching it resets every ceiling to its maximum."""
    switch = {BOOST: {"values": ["off", "on"], "default": "on"}}
    monkeypatch.setattr(fake, "ALL", fake.ALL | switch)
    monkeypatch.setattr(fake.FakeKnobs, "moves", {BOOST: (CEILING,)}, raising=False)
    return Capped(tmp_path / "b")


@pytest.mark.parametrize(("original", "tried"), [("on", "off"), ("off", "on")])
def test_a_ceiling_that_boost_opened_as_we_were_killed_goes_back(
    boosted: Capped, original: str, tried: str
) -> None:
    boosted.change(values={BOOST: original, CEILING: 2500})
    boosted.trial({CEILING: HELD, BOOST: tried})
    boosted.change(values={BOOST: original, CEILING: TOP})
    boosted.start().replay()
    assert (boosted.values[BOOST], boosted.asked) == (original, 2500)
    assert boosted.told()["paused"] == "" and not boosted.record.exists()


@pytest.mark.parametrize("tried", ["off", "on"])
def test_a_foreign_lower_ceiling_survives_a_trial_of_boost(boosted: Capped, tried: str) -> None:
    boosted.change(values={BOOST: "off" if tried == "on" else "on"})
    boosted.trial({CEILING: HELD, BOOST: tried})
    boosted.change(values={CEILING: LOWER})
    boosted.start().replay()
    assert boosted.asked == LOWER and boosted.values[BOOST] != tried
    assert f"another program set {CEILING} to {LOWER}" in str(boosted.told()["paused"])


def test_a_full_disk_does_not_prevent_the_restore_under_a_cap(capped: Capped) -> None:
    hold(capped)
    capped.cap(CAP)
    capped.disk.full = True
    capped.actuator.gone(ME)
    capped.passes(61.0)
    assert capped.asked == TOP
    capped.disk.full = False
    capped.cap(None)
    capped.passes(100.0)
    assert not capped.record.exists()
