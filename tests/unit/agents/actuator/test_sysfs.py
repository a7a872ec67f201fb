"""Knobs that are files: reads, writes and refusals, in plain folders."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.actuator.kernel_text import content, numbers, scaled, span
from agents.actuator.sysfs import FileKnob, cpu_clocks
from tuner.errors import ActuationError


def policy(root: Path, number: int, **files: object) -> Path:
    folder = root / f"sys/devices/system/cpu/cpufreq/policy{number}"
    folder.mkdir(parents=True)
    for name, value in files.items():
        (folder / name).write_text(f"{value}\n")
    return folder


def ranged(root: Path, number: int, low: int = 800_000, high: int = 1_250_000) -> Path:
    return policy(
        root,
        number,
        cpuinfo_min_freq=low,
        cpuinfo_max_freq=high,
        scaling_min_freq=low,
        scaling_max_freq=high,
    )


def tabled(root: Path, number: int, *rungs: int) -> Path:
    folder = ranged(root, number, rungs[0], rungs[-1])
    (folder / "scaling_available_frequencies").write_text(" ".join(map(str, rungs)) + " \n")
    return folder


def knob(folder: Path, *texts: str, unit: int = 1000) -> FileKnob:
    files = [folder / str(n) for n in range(len(texts))]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text)
    return FileKnob(files, (1, 2, 3), unit)


class TestOneKnobOverFiles:
    def test_files_with_equal_content_are_read_as_one_number(self, tmp_path: Path) -> None:
        assert knob(tmp_path, "2000\n", "2000\n").read() == 2

    def test_files_that_differ_are_read_as_one_text_and_written_back(self, tmp_path: Path) -> None:
        both = knob(tmp_path, "2000", "3500")
        original = both.read()
        assert original == "2 3.5"
        both.write(1)
        assert [f.read_text() for f in both.files] == ["1000", "1000"]
        both.write(original)
        assert [f.read_text() for f in both.files] == ["2000", "3500"]

    def test_words_are_written_as_they_are(self, tmp_path: Path) -> None:
        governor = knob(tmp_path, "powersave", unit=0)
        governor.write("performance")
        assert governor.read() == "performance"

    def test_a_reset_causes_no_throttling(self, tmp_path: Path) -> None:
        clock = knob(tmp_path, "1000")
        clock.write(None)
        assert clock.read() == 3

    def test_a_file_without_a_number_is_an_error_not_a_value(self, tmp_path: Path) -> None:
        with pytest.raises(ActuationError, match=r"cannot read .*'<unsupported>'"):
            knob(tmp_path, "<unsupported>").read()


class TestClocksOfAllCpus:
    def test_a_range_becomes_a_ladder_with_both_ends(self, tmp_path: Path) -> None:
        ranged(tmp_path, 0)
        assert cpu_clocks(tmp_path)["cpu.max_mhz"].values == (800, 900, 1000, 1100, 1200, 1250)

    def test_a_table_is_taken_as_it_is(self, tmp_path: Path) -> None:
        folder = ranged(tmp_path, 0)
        (folder / "scaling_available_frequencies").write_text("1200000 1000400 800000 \n")
        assert cpu_clocks(tmp_path)["cpu.max_mhz"].values == (800, 1000.4, 1200)

    def test_nothing_below_a_floor_is_offered(self, tmp_path: Path) -> None:
        (ranged(tmp_path, 0) / "scaling_min_freq").write_text("1100000\n")
        assert cpu_clocks(tmp_path)["cpu.max_mhz"].values == (1100, 1200, 1250)

    def test_two_kinds_of_cores_are_two_knobs_in_the_cpus_order(self, tmp_path: Path) -> None:
        for number in (10, 2, 0):
            ranged(tmp_path, number, high=1_000_000 if number == 10 else 2_000_000)
        knobs = cpu_clocks(tmp_path)
        assert list(knobs) == ["cpu.max_mhz.0", "cpu.max_mhz.10"]
        assert [f.parent.name for f in knobs["cpu.max_mhz.0"].files] == ["policy0", "policy2"]

    def test_preferred_cores_are_one_knob_each_at_its_own_maximum(self, tmp_path: Path) -> None:
        """Zen 4 under amd-pstate: like cores, a `cpuinfo_max_freq` each (apache/tvm 8370)."""
        tops = [
            5_759_000,
            5_759_000,
            5_684_000,
            5_609_000,
            5_534_000,
            5_459_000,
            5_383_000,
            5_308_000,
        ]
        folders = [ranged(tmp_path, n, 400_000, top) for n, top in enumerate(tops)]
        knobs = cpu_clocks(tmp_path)
        assert list(knobs) == ["cpu.max_mhz"]
        knob = knobs["cpu.max_mhz"]
        assert (knob.values[0], knob.values[-1]) == (400, 5759)
        assert knob.read() == 5759
        for value in (5500, 3000, 5759):
            knob.write(value)
            for folder, top in zip(folders, tops, strict=True):  # as the kernel shows it
                (folder / "scaling_max_freq").write_text(str(min(value * 1000, top)))
            assert knob.read() == value

    def test_a_preferred_core_with_a_lower_ceiling_is_restored_to_it(self, tmp_path: Path) -> None:
        tops = (5_759_000, 5_308_000)
        folders = [ranged(tmp_path, n, 400_000, top) for n, top in enumerate(tops)]
        (folders[1] / "scaling_max_freq").write_text("2000000")
        (knob,) = cpu_clocks(tmp_path).values()
        original = knob.read()
        assert original == "5759 2000"
        knob.write(1000)
        knob.write(original)
        assert (folders[1] / "scaling_max_freq").read_text() == "2000000"

    def test_like_cores_with_different_tables_are_one_knob_each_at_its_own_clock(
        self, tmp_path: Path
    ) -> None:
        """acpi-cpufreq takes each core's table from the firmware's _PSS.

        Since Linux 5.16 cpufreq_set_policy lowers a ceiling to the next clock in the table. So only
        clocks of the table are written, and the value read back agrees on every kernel.
        """
        tables = (
            (1_200_000, 1_700_000, 2_300_000),
            (1_200_000, 1_700_000, 2_300_000, 2_400_000),
            (1_200_000, 1_800_000, 2_400_000),
        )
        folders = [tabled(tmp_path, n, *table) for n, table in enumerate(tables)]
        (folders[0] / "cpuinfo_max_freq").write_text("2600000")  # its greatest boosted clock
        knobs = cpu_clocks(tmp_path)
        assert list(knobs) == ["cpu.max_mhz"]
        knob = knobs["cpu.max_mhz"]
        (folders[0] / "scaling_max_freq").write_text("2300000")
        assert knob.values == (1200, 1700, 1800, 2300, 2400)
        assert knob.read() == 2400
        for value in (1800, 1700, 2300, 1200, 2400, None):
            knob.write(value)
            assert knob.read() == (value or 2400)
            requested = (value or 2400) * 1000
            written = [int((f / "scaling_max_freq").read_text()) for f in folders]
            assert written == [max(rung for rung in table if rung <= requested) for table in tables]

    def test_a_ceiling_found_outside_the_table_is_restored_as_it_was(self, tmp_path: Path) -> None:
        """Kernels before 5.16 keep the written value, and list boosted clocks separately."""
        tables = ((1_200_000, 2_300_000), (1_200_000, 2_300_000, 2_400_000))
        folders = [tabled(tmp_path, n, *table) for n, table in enumerate(tables)]
        (folders[0] / "cpuinfo_max_freq").write_text("2600000")
        for folder, khz in zip(folders, (2_600_000, 2_000_000), strict=True):
            (folder / "scaling_max_freq").write_text(f"{khz}\n")
        (knob,) = cpu_clocks(tmp_path).values()
        original = knob.read()
        assert original == "2600 2000"
        knob.write(1200)
        assert knob.read() == 1200
        knob.write(original)
        written = [int((f / "scaling_max_freq").read_text()) for f in folders]
        assert written == [2_600_000, 2_000_000]

    def test_cores_of_two_kinds_stay_two_where_their_tables_are_the_same(
        self, tmp_path: Path
    ) -> None:
        for number, capacity in enumerate((1024, 1024, 623)):
            tabled(tmp_path, number, 800_000, 1_600_000)
            file = tmp_path / f"sys/devices/system/cpu/cpu{number}/cpu_capacity"
            file.parent.mkdir()
            file.write_text(str(capacity))
        assert list(cpu_clocks(tmp_path)) == ["cpu.max_mhz.0", "cpu.max_mhz.2"]

    @pytest.mark.parametrize("how", ["lists", "capacity", "clocks", "tables"])
    def test_a_hybrids_performance_and_efficiency_cores_stay_two(
        self, tmp_path: Path, how: str
    ) -> None:
        """i9-13900K: /sys/devices/cpu_core and cpu_atom list them; `cpu_capacity` since Linux 6.12."""
        for number, (top, capacity) in enumerate(
            [(5_500_000, 1009), (5_800_000, 1024), (5_500_000, 1009), (4_300_000, 623)] * 2
        ):
            made = tabled if how == "tables" else ranged
            made(tmp_path, number, 800_000, 5_500_000 if how == "lists" else top)
            if how == "capacity":
                file = tmp_path / f"sys/devices/system/cpu/cpu{number}/cpu_capacity"
                file.parent.mkdir()
                file.write_text(str(capacity))
        if how == "lists":
            for name, cpus in (("cpu_core", "0-2,4-6"), ("cpu_atom", "3,7")):
                (tmp_path / f"sys/devices/{name}").mkdir()
                (tmp_path / f"sys/devices/{name}/cpus").write_text(f"{cpus}\n")
        knobs = cpu_clocks(tmp_path)
        assert list(knobs) == ["cpu.max_mhz.0", "cpu.max_mhz.3"]
        small = [f.parent.name for f in knobs["cpu.max_mhz.3"].files]
        assert small == ["policy3", "policy7"]

    @pytest.mark.parametrize("text", ["9" * 30, "9" * 5000, "", "-1", "many", "0"])
    def test_an_absurd_end_of_a_range_gives_no_endless_ladder(
        self, tmp_path: Path, text: str
    ) -> None:
        (ranged(tmp_path, 0) / "cpuinfo_max_freq").write_text(text)
        assert all(len(knob.values) < 100 for knob in cpu_clocks(tmp_path).values())

    def test_a_policy_without_a_cpu_at_work_is_left_alone(self, tmp_path: Path) -> None:
        ranged(tmp_path, 0)
        policy(tmp_path, 4, cpuinfo_min_freq=800_000, cpuinfo_max_freq=1_250_000)
        (only,) = cpu_clocks(tmp_path).values()
        assert [f.parent.name for f in only.files] == ["policy0"]

    def test_a_host_without_cpufreq_has_no_cpu_clock(self, tmp_path: Path) -> None:
        assert cpu_clocks(tmp_path) == {}


@given(st.integers(0, 10**10), st.sampled_from([1000, 1_000_000]))
def test_a_number_of_the_kernel_survives_its_way_there_and_back(number: int, unit: int) -> None:
    assert round(float(str(scaled(number, unit))) * unit) == number


@given(st.lists(st.integers(1, 10**7), max_size=6))
def test_a_ladder_ascends_from_end_to_end(ends: list[int]) -> None:
    ladder = span(sorted(ends))
    assert ladder == sorted({*ladder})
    assert not ends or (ladder[0], ladder[-1]) == (min(ends), max(ends))


def test_an_unreadable_number_names_its_file(tmp_path: Path) -> None:
    assert numbers(tmp_path / "nothing") == []
    with pytest.raises(ActuationError, match=r"cannot read .*nothing"):
        content(tmp_path / "nothing")
