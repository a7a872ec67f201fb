"""Replayed tables: valid and refused files, and the device of a table."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, stdev

import pytest

from agents.devices.catalogue import known_truth, open_device
from agents.target.side import Side
from jouletune_bench.replay import open_replay
from jouletune_bench.replay.table import load_surface
from tests.contracts.actuator import SettableContract
from tests.contracts.meter import MeterContract
from tests.errors import raised
from tuner.core import (
    ConfigError,
    InvalidInput,
    MeasurementError,
    Origin,
    OutOfRange,
    Part,
    Reading,
    Setting,
)

HEADER = "surface,device,workload,batch_size,power_limit_w,zone,energy_j,latency_s,power_w\n"
ROWS = """\
V|net,V,net,8,100,1,9.0,0.090,100
V|net,V,net,8,150,1,8.0,0.060,133
V|net,V,net,16,100,1,7.0,0.160,90
V|net,V,net,16,150,1,6.0,0.100,120
V|net,V,net,16,150,1,6.4,0.104,124
V|net,V,net,32,150,1,5.0,0.190,140
V|net,V,net,64,100,1,4.0,0.500,99
V|net,V,net,64,150,1,4.5,0.400,141
W|net,W,net,8,100,1,3.0,0.1,30
W|net,W,net,8,115.5,1,4.0,0.2,40
"""
AVERAGED = {"batch_size": 16, "power_limit_w": 150}
ROLES = '[table]\nresources = ["power_limit_w"]\nbatch = ["batch_size"]\n'


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table.csv"
    path.write_text(HEADER + ROWS)
    return path


def replayed(path: Path, surface: str = "V|net") -> Side:
    return open_device(f"replay:{path}#{surface}", seed=0, state_dir=None)


@pytest.fixture
def side(table: Path) -> Side:
    return replayed(table)


@pytest.fixture
def later(side: Side) -> Callable[[], None]:
    assert side.clock is not None
    clock = side.clock
    return lambda: clock.sleep(1.0)


class TestReplayActuator(SettableContract):
    def test_a_hole_in_the_table_cannot_be_set(self, side: Side) -> None:
        with raised(OutOfRange, "combination"):
            side.actuator.apply({"batch_size": 32, "power_limit_w": 100})
        assert side.actuator.read() == side.space.default


class TestReplayMeter(MeterContract):
    origin = Origin.REPLAYED

    def test_a_replay_shows_the_row_with_repeats_averaged_and_latency_in_ms(
        self, side: Side, later: Callable[[], None]
    ) -> None:
        side.actuator.apply(AVERAGED)
        window = side.meter.start()
        later()
        shown = window.stop()
        assert {name: e.mean for name, e in shown.estimates.items()} == pytest.approx(
            {"energy_j": 6.2, "latency_ms": 102.0, "power_w": 122.0}
        )
        assert {e.stderr for e in shown.estimates.values()} == {0.0}

    def test_a_setting_changed_within_a_window_gives_no_measurement(
        self, side: Side, later: Callable[[], None]
    ) -> None:
        window = side.meter.start()
        later()
        side.actuator.apply({"batch_size": 8, "power_limit_w": 100})
        assert window.read() == Reading()
        with raised(MeasurementError, "changed"):
            window.stop()

    def test_noise_is_seeded_anew_in_each_window_and_reported_as_error(self, table: Path) -> None:
        def means(seed: int) -> list[float]:
            side = open_replay(
                f"{table}#V|net", seed=seed, state_dir=None, root=Path("/"), noise=0.02
            )
            assert side.clock is not None
            samples = []
            for _ in range(300):
                window = side.meter.start()
                side.clock.sleep(1.0)
                assert window.read() == window.read()
                energy = window.stop().estimates["energy_j"]
                assert energy.stderr == pytest.approx(0.02 * energy.mean)
                samples.append(energy.mean)
            return samples

        first = means(1)
        assert first == means(1) and first != means(2)
        true = load_surface(f"{table}#V|net").row(AVERAGED)["energy_j"]
        assert fmean(first) == pytest.approx(true, rel=0.005)
        assert stdev(first) / true == pytest.approx(0.02, rel=0.15)


class TestReading:
    def test_a_constant_column_is_not_a_knob(self, side: Side) -> None:
        assert {k.name: k.values for k in side.space.knobs} == {
            "batch_size": (8, 16, 32, 64),
            "power_limit_w": (100, 150),
        }
        assert side.space.size == 7

    def test_whole_numbers_are_integers_and_others_are_not(self, table: Path) -> None:
        assert [k.values for k in replayed(table, "W|net").space.knobs] == [(100, 115.5)]

    def test_batch_and_threads_belong_to_the_workload(self, side: Side) -> None:
        assert {k.name: k.part for k in side.space.knobs} == {
            "batch_size": Part.WORKLOAD,
            "power_limit_w": Part.DEVICE,
        }

    def test_resources_at_their_most_then_the_lower_median_batch(self, side: Side) -> None:
        # The batches at 150 W are 8, 16, 32 and 64: the lower median is 16.
        assert side.space.default == AVERAGED

    def test_the_roles_file_names_and_orders_the_resources(self, table: Path) -> None:
        def baseline(roles: str) -> Setting:
            (table.parent / "surfaces.toml").write_text(roles)
            return replayed(table).space.default

        assert baseline(ROLES) == AVERAGED
        greedy = '[table]\nresources = ["batch_size", "power_limit_w"]\nbatch = []\n'
        assert baseline(greedy) == {"batch_size": 64, "power_limit_w": 150}
        median = '[table]\nresources = ["batch_size"]\nbatch = ["power_limit_w"]\n'
        assert baseline(median) == {"batch_size": 64, "power_limit_w": 100}
        assert baseline('[other]\nresources = ["x"]\n') == AVERAGED

    def test_a_file_with_one_surface_needs_no_name(self, tmp_path: Path) -> None:
        path = tmp_path / "one.csv"
        path.write_text(HEADER + "".join(line + "\n" for line in ROWS.splitlines()[-2:]))
        assert open_device(f"replay:{path}", seed=0, state_dir=None).board.startswith("W ")

    def test_a_missing_metric_is_not_offered(self, tmp_path: Path) -> None:
        path = tmp_path / "t.csv"
        path.write_text("surface,device,workload,threads,latency_s\na|b,a,b,1,2\na|b,a,b,2,1\n")
        side = replayed(path, "a|b")
        assert [m.name for m in side.metrics] == ["latency_ms"]
        assert set(side.cannot) == {"energy_j", "power_w"}

    def test_the_version_follows_the_numbers_of_the_surface_alone(self, table: Path) -> None:
        before = replayed(table).version
        table.write_text(
            HEADER + ROWS.replace("W|net,W,net,8,100,1,3.0", "W|net,W,net,8,100,1,3.1")
        )
        assert replayed(table).version == before
        table.write_text(HEADER + ROWS.replace("9.0", "9.1"))
        assert replayed(table).version != before

    def test_the_truth_is_the_table(self, table: Path) -> None:
        truth = known_truth(f"replay:{table}#V|net")
        assert truth is not None
        assert truth({"batch_size": 64, "power_limit_w": 100})["latency_ms"] == 500.0
        with pytest.raises(OutOfRange):
            truth({"batch_size": 32, "power_limit_w": 100})


class TestRefusing:
    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("", "surface, device, workload"),
            ("surface,device,batch_size,energy_j\n", "no column workload"),
            ("surface,device,workload,batch_size\nV|net,V,net,1\n", "energy_j, latency_s"),
            (HEADER, "no rows"),
            (HEADER + ROWS.replace("9.0", "nan", 1), "energy_j = 'nan'"),
            (HEADER + ROWS.replace("9.0", "-9.0", 1), "energy_j = '-9.0'"),
            (HEADER + ROWS.replace("0.090", "0", 1), "latency_s = '0'"),
            (HEADER + ROWS.replace("8,100", "8,inf", 1), "power_limit_w = 'inf'"),
            (HEADER + ROWS.replace("8,100", "eight,100", 1), "batch_size = 'eight'"),
            (HEADER + ROWS.replace("V|net,V,net,8", "V|net,V,8", 1), "row 2"),
            (HEADER + ROWS.replace("0.090,100", "0.090,100,7", 1), "row 2"),
            (HEADER + 'V|net,"V', "unexpected end of data"),
            (HEADER + ROWS.splitlines()[0], "only one configuration"),
        ],
    )
    def test_a_bad_table_is_refused_with_the_place(
        self, table: Path, text: str, words: str
    ) -> None:
        table.write_text(text)
        with pytest.raises(InvalidInput) as refusal:
            replayed(table)
        assert words in str(refusal.value) and str(table) in str(refusal.value)

    def test_a_table_that_is_not_text_is_refused(self, table: Path) -> None:
        table.write_bytes(b"\xff\xfe\x00surface")
        with raised(InvalidInput, "read"):
            replayed(table)

    @pytest.mark.parametrize("surface", ["X|net", ""])
    def test_an_unknown_surface_is_answered_with_those_there_are(
        self, table: Path, surface: str
    ) -> None:
        with pytest.raises(InvalidInput, match=r"V\|net, W\|net"):
            replayed(table, surface)

    def test_a_missing_file_is_named(self, tmp_path: Path) -> None:
        with raised(InvalidInput, "nowhere.csv"):
            replayed(tmp_path / "nowhere.csv")

    @pytest.mark.parametrize(
        "roles",
        [
            "[table\n",
            '[table]\nresources = "power_limit_w"\n',
            '[table]\nresources = ["power"]\n',
            "[table]\nbatch = [1]\n",
            "table = 3\n",
        ],
    )
    def test_a_wrong_roles_file_is_named(self, table: Path, roles: str) -> None:
        (table.parent / "surfaces.toml").write_text(roles)
        with raised(ConfigError, "surfaces.toml"):
            replayed(table)


def measured_surfaces() -> Path | None:
    """The folder of the measured surfaces: from the environment, else beside the checkout."""
    beside = Path(__file__).parents[5].parent / "shared" / "data" / "surfaces"
    folder = Path(os.environ.get("JOULETUNE_SURFACES", beside))
    return folder if folder.is_dir() else None


@pytest.mark.surfaces
def test_every_measured_surface_opens_at_its_baseline() -> None:
    folder = measured_surfaces()
    if folder is None:
        pytest.skip("no measured surfaces: set JOULETUNE_SURFACES to their folder")
    files = sorted(folder.glob("*.csv"))
    assert files
    for file in files:
        lines = file.read_text(encoding="utf-8").splitlines()[1:]
        for name in {line.split(",")[0] for line in lines if not line.startswith('"')}:
            surface = load_surface(f"{file}#{name}")
            base = surface.row(surface.space.default)
            assert all(value > 0.0 for value in base.values())
            rivals = [dict(s) for s in surface.space.only]
            most = {k.name: k.values[-1] for k in surface.space.knobs if k.part is Part.DEVICE}
            if most in [{name: r[name] for name in most} for r in rivals]:
                assert most.items() <= surface.space.default.items()
