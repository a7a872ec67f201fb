from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.devices import fake_knobs
from agents.grants import ActuatorConfig, Granted
from agents.originals import Originals
from agents.slots import Peer
from tests.actuation import Direct, DirectHand, actuator_of
from tuner.core import (
    ActuationError,
    ConfigError,
    Conflict,
    DeviceBusy,
    InvalidInput,
    NotFound,
    OutOfRange,
    StoreError,
    UnknownKnob,
)

GPU, OTHER = "GPU-1", "GPU-2"
CLOCK, MEMORY, LIMIT = "gpu.clock_mhz", "gpu.mem_clock_mhz", "gpu.power_limit_w"
FACTORY = {CLOCK: None, MEMORY: None, LIMIT: 400}
TRIED = {CLOCK: 810, LIMIT: 250}
HELD = {CLOCK: 870, LIMIT: 300}
ME, YOU = Peer(1, 1, 7), Peer(2, 2, 7)


class FullDisk(Originals):
    full = False

    def write(self, path: Path, content: bytes) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write(path, content)


@dataclass
class Bench:
    folder: Path
    terms: Mapping[str, Any] = field(default_factory=dict)
    now: float = 0.0
    boot: str = "boot 1"

    def __post_init__(self) -> None:
        self.hardware = self.folder / "hardware.json"
        self.journal = self.folder / "journal"
        self.journal.mkdir(parents=True)
        fake_knobs.save(self.hardware, fake_knobs.blank(GPU, OTHER))
        self.disk = FullDisk(self.journal)
        self.actuator = self.start()

    def start(self) -> Direct:
        """Return what a fresh start of the process makes."""
        grant = {CLOCK: (600, 1410), LIMIT: (150, 350)}
        granted = Granted(match="GPU-*", **{"grant": grant, **self.terms})
        config = ActuatorConfig(devices=(granted,))
        self.hand = DirectHand(self.hardware)
        made = actuator_of(config, lambda: self.hand, self.disk, self.boot, lambda: self.now)
        self.actuator = Direct(asyncio.run(made))
        self.actuator.grant()
        return self.actuator

    @property
    def values(self) -> dict[str, Any]:
        return dict(fake_knobs.load(self.hardware)["devices"][GPU]["values"])

    @property
    def record(self) -> Path:
        return self.journal / f"{GPU}.json"

    def change(self, **changes: object) -> None:
        """Be somebody else: set the device's values, its faults, or the driver's epoch."""
        state = fake_knobs.load(self.hardware)
        if "epoch" in changes:
            state["epoch"] = changes["epoch"]
        for name in changes.keys() - {"epoch"}:
            state["devices"][GPU][name].update(changes[name])
        fake_knobs.save(self.hardware, state)

    def trial(self, setting: Mapping[str, Any] = TRIED, lease_s: float = 10.0) -> None:
        self.actuator.acquire(ME, GPU, lease_s)
        self.actuator.apply(ME, GPU, setting)

    def hold(self, valid_for_s: float = 1000.0) -> None:
        self.actuator.hold(ME, GPU, HELD, valid_for_s)

    def passes(self, seconds: float) -> None:
        self.now += seconds
        self.actuator.tick()

    def level(self) -> str:
        return str(self.actuator.read(YOU, GPU)["level"])


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "b")


def test_a_trial_is_in_force_until_its_lease_runs_out(bench: Bench) -> None:
    bench.trial()
    assert bench.values == {**FACTORY, **TRIED}
    bench.passes(9.9)
    assert bench.level() == "trial"
    bench.passes(0.2)
    assert bench.values == FACTORY
    assert (bench.level(), bench.record.exists()) == ("original", False)


def test_a_renewed_trial_goes_on(bench: Bench) -> None:
    bench.trial()
    for _ in range(5):
        bench.passes(9.0)
        bench.actuator.renew(ME, GPU, 10.0)
    assert bench.values == {**FACTORY, **TRIED}


def test_a_renewal_that_comes_too_late_is_refused(bench: Bench) -> None:
    bench.trial()
    bench.passes(11.0)
    with pytest.raises(Conflict, match="over"):
        bench.actuator.renew(ME, GPU, 10.0)


def test_the_device_is_journalled_before_it_is_written(bench: Bench) -> None:
    bench.trial({CLOCK: 810})
    text = json.loads(bench.record.read_bytes())["record"]
    assert '"found": null' in text and "810" in text and '"boot": "boot 1"' in text


def test_a_second_writer_is_refused_and_told_who_has_it(bench: Bench) -> None:
    bench.trial()
    verbs: list[Callable[[], object]] = [
        lambda: bench.actuator.acquire(YOU, GPU, 5.0),
        lambda: bench.actuator.apply(YOU, GPU, TRIED),
        lambda: bench.actuator.renew(YOU, GPU, 5.0),
        lambda: bench.actuator.hold(YOU, GPU, HELD, 9.0),
        lambda: bench.actuator.release(YOU, GPU),
    ]
    for verb in verbs:
        with pytest.raises(DeviceBusy, match="process 1 of user 7"):
            verb()
    assert bench.values == {**FACTORY, **TRIED}
    bench.actuator.acquire(YOU, OTHER, 5.0)


def test_without_a_lease_nothing_is_written(bench: Bench) -> None:
    with pytest.raises(Conflict, match="acquire"):
        bench.actuator.apply(ME, GPU, TRIED)
    with pytest.raises(Conflict):
        bench.actuator.renew(ME, GPU, 5.0)
    assert bench.hand.puts == []


@pytest.mark.parametrize("lease_s", [0.0, -1.0, 10.5])
def test_a_lease_is_at_most_as_long_as_configured(bench: Bench, lease_s: float) -> None:
    with pytest.raises(InvalidInput, match="lease_s"):
        bench.actuator.acquire(ME, GPU, lease_s)


@pytest.mark.parametrize("verb", ["apply", "hold"])
@pytest.mark.parametrize(
    ("setting", "kind"),
    [
        ({CLOCK: 210}, OutOfRange),
        ({CLOCK: 811}, OutOfRange),
        ({LIMIT: 390}, OutOfRange),
        ({LIMIT: True}, OutOfRange),
        ({LIMIT: "300"}, OutOfRange),
        ({MEMORY: 405}, UnknownKnob),
        ({"fan": 3}, UnknownKnob),
    ],
)
def test_what_is_not_granted_is_denied_and_stops_the_whole_setting(
    bench: Bench, verb: str, setting: Mapping[str, Any], kind: type[Exception]
) -> None:
    bench.actuator.acquire(ME, GPU, 5.0)
    whole = {CLOCK: 810, **setting}
    with pytest.raises(kind):
        if verb == "apply":
            bench.actuator.apply(ME, GPU, whole)
        else:
            bench.actuator.hold(ME, GPU, whole, 9.0)
    assert bench.hand.puts == []
    assert not bench.record.exists()


def test_what_a_knob_was_found_at_is_granted_always(bench: Bench) -> None:
    bench.trial({CLOCK: None, LIMIT: 400})
    assert bench.hand.puts == []
    bench.actuator.apply(ME, GPU, TRIED)
    bench.actuator.apply(ME, GPU, {CLOCK: None, LIMIT: 400})
    assert bench.values == FACTORY
    assert bench.level() == "trial"


def test_an_unknown_device_is_refused_by_name(bench: Bench) -> None:
    with pytest.raises(NotFound, match="GPU-1"):
        bench.actuator.acquire(ME, "GPU-9", 5.0)


def test_a_trial_over_a_hold_falls_back_to_the_hold(bench: Bench) -> None:
    bench.hold()
    bench.trial()
    assert bench.values == {**FACTORY, **TRIED}
    bench.passes(11.0)
    assert bench.values == {**FACTORY, **HELD}
    assert bench.level() == "hold"


def test_a_hold_does_not_keep_what_a_trial_set_besides(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "b", {"grant": {CLOCK: (600, 1410), MEMORY: (405, 1215)}})
    bench.trial({MEMORY: 405})
    bench.actuator.hold(ME, GPU, {CLOCK: 870}, 100.0)
    assert bench.values == {**FACTORY, CLOCK: 870}


def test_an_agent_that_is_gone_ends_its_trial_at_once_and_its_hold_after_the_grace(
    bench: Bench,
) -> None:
    bench.hold()
    bench.trial()
    bench.actuator.gone(ME)
    assert bench.values == {**FACTORY, **HELD}
    bench.passes(59.0)
    assert bench.level() == "hold"
    bench.passes(2.0)
    assert bench.values == FACTORY


def test_an_agent_that_comes_back_in_time_takes_its_hold_over(bench: Bench) -> None:
    bench.hold()
    bench.actuator.gone(ME)
    bench.passes(50.0)
    bench.actuator.hold(YOU, GPU, HELD, 1000.0)
    bench.passes(50.0)
    assert bench.values == {**FACTORY, **HELD}


def test_an_agent_that_says_nothing_is_as_good_as_gone(bench: Bench) -> None:
    bench.hold()
    bench.passes(50.0)
    bench.actuator.renew(ME, GPU, 10.0)
    bench.passes(50.0)
    assert bench.level() == "hold"
    bench.passes(11.0)
    assert bench.values == FACTORY


def test_a_hold_ends_when_it_is_valid_no_more(bench: Bench) -> None:
    bench.hold(valid_for_s=30.0)
    bench.passes(29.0)
    assert bench.values == {**FACTORY, **HELD}
    bench.passes(2.0)
    assert bench.values == FACTORY


def test_a_released_device_is_as_it_was_and_free(bench: Bench) -> None:
    bench.hold()
    bench.actuator.release(ME, GPU)
    assert bench.values == FACTORY
    assert not bench.record.exists()
    bench.actuator.acquire(YOU, GPU, 5.0)
    bench.actuator.release(YOU, GPU)


def test_stopping_puts_everything_back(bench: Bench) -> None:
    bench.hold()
    bench.actuator.close()
    assert bench.values == FACTORY


def test_what_gives_room_is_written_before_what_takes_it(bench: Bench) -> None:
    bench.trial({CLOCK: 630, LIMIT: 200})
    bench.hand.puts.clear()
    bench.actuator.apply(ME, GPU, {CLOCK: 1410, LIMIT: 300})
    assert [knob for knob, _ in bench.hand.puts] == [LIMIT, CLOCK]
    bench.hand.puts.clear()
    bench.actuator.apply(ME, GPU, {CLOCK: None, LIMIT: 200})
    assert bench.hand.puts == [(CLOCK, None), (LIMIT, 200)]


def test_a_knob_that_refuses_undoes_the_others(bench: Bench) -> None:
    bench.change(faults={CLOCK: "refuse"})
    with pytest.raises(ActuationError, match="refuses"):
        bench.trial({LIMIT: 250, CLOCK: 810})
    bench.change(faults={CLOCK: None})
    bench.passes(2.0)
    assert bench.values == FACTORY
    assert not bench.record.exists()


def test_a_knob_that_reads_back_otherwise_is_not_in_force(bench: Bench) -> None:
    bench.change(faults={LIMIT: {"clamp": 333}})
    with pytest.raises(ActuationError, match="333, not 250"):
        bench.trial()
    assert bench.values[CLOCK] is None
    bench.change(faults={LIMIT: None})
    bench.passes(2.0)
    assert bench.values == FACTORY


def test_restoring_goes_on_past_a_failure_and_is_tried_again(bench: Bench) -> None:
    bench.trial()
    bench.change(faults={CLOCK: "refuse"})
    with pytest.raises(ActuationError, match="not back"):
        bench.actuator.release(ME, GPU)
    assert bench.values == {**FACTORY, CLOCK: 810}
    with pytest.raises(ActuationError, match="not back"):
        bench.actuator.acquire(YOU, GPU, 5.0)
    bench.change(faults={CLOCK: None})
    bench.passes(0.5)
    assert bench.values[CLOCK] == 810
    bench.passes(1.0)
    assert bench.values == FACTORY
    bench.actuator.acquire(YOU, GPU, 5.0)


def test_a_device_that_stays_broken_is_tried_less_and_less_often(bench: Bench) -> None:
    bench.trial()
    bench.change(faults={CLOCK: "refuse"})
    bench.hand.puts.clear()
    bench.actuator.gone(ME)
    for _ in range(600):
        bench.passes(1.0)
    assert 10 <= sum(1 for knob, _ in bench.hand.puts if knob == CLOCK) <= 20


def test_a_lost_device_is_put_back_once_it_answers(bench: Bench) -> None:
    bench.trial()
    bench.change(faults={"*": "lost"})
    with pytest.raises(ActuationError):
        bench.actuator.renew(ME, GPU, 5.0)
    assert "fell off the bus" in bench.actuator.status()
    assert bench.actuator.capabilities(ME)["devices"]
    bench.change(faults={"*": None})
    bench.passes(2.0)
    assert bench.values == FACTORY


def test_what_somebody_else_set_is_left_alone_and_the_device_paused(bench: Bench) -> None:
    bench.trial()
    bench.change(values={LIMIT: 222})
    assert bench.actuator.read(ME, GPU)["values"][LIMIT] == 222
    with pytest.raises(ActuationError, match="222"):
        bench.actuator.renew(ME, GPU, 5.0)
    assert bench.values == {**FACTORY, LIMIT: 222}
    with pytest.raises(Conflict, match="paused"):
        bench.actuator.acquire(YOU, GPU, 5.0)
    with pytest.raises(Conflict, match="paused"):
        bench.actuator.hold(YOU, GPU, HELD, 5.0)
    assert not bench.record.exists()
    bench.start().replay()
    bench.trial()
    bench.actuator.release(ME, GPU)
    assert bench.values == {**FACTORY, LIMIT: 222}


def test_a_foreign_change_is_seen_when_the_trial_lapses(bench: Bench) -> None:
    bench.trial()
    bench.change(values={LIMIT: 222})
    bench.passes(11.0)
    assert bench.values == {**FACTORY, LIMIT: 222}
    assert "222" in bench.actuator.status()


def test_after_a_crash_a_foreign_change_is_left_alone_and_told(bench: Bench) -> None:
    bench.trial()
    bench.change(values={LIMIT: 222})
    told = bench.start().replay()
    assert bench.values == {**FACTORY, LIMIT: 222}
    assert "222" in told[GPU]


def test_after_a_crash_everything_is_put_back(bench: Bench) -> None:
    bench.hold()
    bench.trial()
    assert bench.start().replay() == {}
    assert bench.values == FACTORY
    assert not bench.record.exists()
    assert bench.start().replay() == {}


def test_a_restarted_driver_has_forgotten_and_is_not_written(bench: Bench) -> None:
    bench.hold()
    bench.change(values={CLOCK: None, LIMIT: 380}, epoch="2")
    bench.hand.puts.clear()
    with pytest.raises(ActuationError, match="driver"):
        bench.actuator.renew(ME, GPU, 5.0)
    assert bench.hand.puts == []
    assert (bench.level(), bench.record.exists()) == ("original", False)


def test_after_a_crash_and_a_restarted_driver_the_journal_is_dropped(bench: Bench) -> None:
    bench.trial()
    bench.change(values={CLOCK: None, LIMIT: 380}, epoch="2")
    assert bench.start().replay() == {}
    assert (bench.hand.puts, bench.record.exists()) == ([], False)


def test_a_journal_of_another_boot_is_dropped_and_the_device_untouched(bench: Bench) -> None:
    bench.trial()
    bench.boot = "boot 2"
    assert bench.start().replay() == {}
    assert (bench.hand.puts, bench.record.exists()) == ([], False)


@pytest.mark.parametrize("damage", ["truncated", "empty", "list", "other", "unreadable"])
def test_a_damaged_journal_leaves_the_device_untouched_and_says_so(
    bench: Bench, damage: str
) -> None:
    bench.trial()
    whole = bench.record.read_bytes()
    if damage == "unreadable":
        bench.record.unlink()
        bench.record.mkdir()
    else:
        broken = {"truncated": whole[:40], "empty": b"", "list": b"[]"}
        bench.record.write_bytes(broken.get(damage, whole.replace(b"GPU-1", b"GPU-2")))
    told = bench.start().replay()
    assert str(bench.record) in told[GPU]
    with pytest.raises(Conflict, match="by hand"):
        bench.actuator.acquire(ME, GPU, 5.0)
    with pytest.raises(Conflict, match="by hand"):
        bench.actuator.hold(ME, GPU, HELD, 5.0)
    bench.actuator.acquire(ME, OTHER, 5.0)
    bench.actuator.close()
    assert bench.hand.puts == []
    with pytest.raises(Conflict, match="stops"):
        bench.actuator.acquire(YOU, OTHER, 5.0)


@given(junk=st.binary(max_size=60), at=st.integers(0, 400))
def test_whatever_a_journal_holds_the_actuator_starts(
    tmp_path_factory: pytest.TempPathFactory, junk: bytes, at: int
) -> None:
    bench = Bench(tmp_path_factory.mktemp("j") / "b")
    bench.trial()
    whole = bench.record.read_bytes()
    bench.record.write_bytes(whole[:at] + junk + whole[at + len(junk) :])
    told = bench.start().replay()
    # Put back as it was, or not touched at all and said so: nothing between.
    assert bench.values == FACTORY or (GPU in told and bench.hand.puts == [])


def test_a_journal_whose_device_is_not_there_is_told(bench: Bench) -> None:
    (bench.journal / "GPU-9.json").write_text("{}")
    assert bench.start().replay() == {"GPU-9.json": "its device is not there"}


def test_what_was_changed_goes_back_even_where_the_grants_no_longer_fit(bench: Bench) -> None:
    bench.trial()
    bench.terms = {"grant": {CLOCK: (1, 2)}}
    with pytest.raises(ConfigError):
        bench.start()
    assert bench.actuator.replay() == {}
    assert bench.values == FACTORY


def test_on_a_full_disk_no_hardware_is_written(bench: Bench) -> None:
    bench.disk.full = True
    for verb in (bench.trial, bench.hold):
        with pytest.raises(StoreError, match="No space left"):
            verb()
        assert bench.hand.puts == []
        assert bench.level() == "original"


def test_a_disk_that_fills_up_in_a_trial_does_not_hinder_the_way_back(bench: Bench) -> None:
    bench.hold()
    bench.trial()
    bench.disk.full = True
    bench.passes(11.0)
    assert bench.values == FACTORY


def test_the_failsafe_is_written_in_place_of_the_original(tmp_path: Path) -> None:
    bench = capped(tmp_path)
    bench.trial({CLOCK: 810, LIMIT: 200})
    bench.actuator.gone(ME)
    assert bench.values == {CLOCK: 1410, MEMORY: None, LIMIT: 250}
    assert not bench.record.exists()
    assert bench.actuator.capabilities(ME)["devices"][0]["original"] == {CLOCK: 1410}


def capped(tmp_path: Path) -> Bench:
    grant = {CLOCK: (600, 1410), LIMIT: (150, 250)}
    terms = {"grant": grant, "failsafe": {LIMIT: 250}, "original": {CLOCK: 1410}}
    return Bench(tmp_path / "b", terms)


def test_above_its_fail_safe_a_device_is_never_set_though_it_was_found_there(
    tmp_path: Path,
) -> None:
    bench = capped(tmp_path)
    assert bench.actuator.read(ME, GPU)["found"] == {CLOCK: None, LIMIT: 250}
    bench.trial({LIMIT: None})
    assert bench.values[LIMIT] == 250
    with pytest.raises(OutOfRange):
        bench.trial({LIMIT: 400})
    bench.actuator.release(ME, GPU)
    assert bench.values == {**FACTORY, LIMIT: 250}


def test_capabilities_tell_what_is_granted_and_what_was_found(bench: Bench) -> None:
    bench.trial()
    told = bench.actuator.capabilities(YOU)
    assert told["lease_s"] == 10.0
    granted = told["devices"][0]["granted"]
    assert set(granted) == {CLOCK, LIMIT}
    assert granted[LIMIT][0] >= 150 and granted[LIMIT][-1] <= 350
    assert bench.actuator.read(YOU, GPU)["found"] == {CLOCK: None, LIMIT: 400}


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("acquire"), st.sampled_from([ME, YOU])),
        st.tuples(
            st.sampled_from(["apply", "hold"]),
            st.sampled_from([ME, YOU]),
            st.fixed_dictionaries(
                {},
                optional={
                    CLOCK: st.sampled_from([None, 630, 810, 210, 9999]),
                    LIMIT: st.sampled_from([150, 300, 350, 400, 100]),
                },
            ),
        ),
        st.tuples(st.sampled_from(["renew", "release", "gone"]), st.sampled_from([ME, YOU])),
        st.tuples(st.just("passes"), st.sampled_from([1.0, 11.0, 61.0])),
        st.tuples(st.just("restart")),
    ),
    max_size=25,
)


@given(steps=STEPS)
def test_whatever_agents_do_only_granted_values_are_written_and_all_goes_back(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[Any, ...]]
) -> None:
    bench = Bench(tmp_path_factory.mktemp("s") / "b")
    for name, *rest in steps:
        try:
            match name:
                case "acquire" | "renew":
                    getattr(bench.actuator, name)(rest[0], GPU, 10.0)
                case "apply":
                    bench.actuator.apply(rest[0], GPU, rest[1])
                case "hold":
                    bench.actuator.hold(rest[0], GPU, rest[1], 100.0)
                case "release":
                    bench.actuator.release(rest[0], GPU)
                case "gone":
                    bench.actuator.gone(rest[0])
                case "passes":
                    bench.passes(rest[0])
                case "restart":
                    bench.start().replay()
        except (Conflict, InvalidInput):
            pass
        values = bench.values
        assert values[CLOCK] in (None, 630, 810)
        assert values[LIMIT] in (150, 300, 350, 400)
        assert values == FACTORY or bench.record.exists()
        if bench.level() == "original":
            assert values == FACTORY
    bench.passes(2000.0)
    assert bench.values == FACTORY
