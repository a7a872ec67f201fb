"""The protocol on surfaces: baseline, limit, oracle, captured saving; and unusable folders."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.bench.contest.surfaces import load_problems, remarks
from tests.bench.contest.tables import FLAT, HEADER, ROLES, STEEP, at, steep, write_tables
from tests.errors import raised
from tuner.core import ConfigError, InvalidInput, Limit


def test_the_baseline_has_resources_at_their_most_and_then_the_lower_median_batch(
    tmp_path: Path,
) -> None:
    assert steep(tmp_path).surface.space.default == at(1000, 2)


def test_the_roles_file_orders_the_resources(tmp_path: Path) -> None:
    write_tables(tmp_path)
    rows = "H|w,H,w,1,4,5,1,\nH|w,H,w,2,2,6,1,\nH|w,H,w,2,1,7,1,\n"
    (tmp_path / "tiny.csv").write_text(HEADER + rows)
    both = ROLES.replace('batch = ["batch_size"]', "batch = []")
    first = both.replace('["gpu_clock_mhz"]', '["gpu_clock_mhz", "batch_size"]')
    (tmp_path / "surfaces.toml").write_text(first)
    assert load_problems(tmp_path)[0].surface.space.default == at(2, 2)
    other = both.replace('["gpu_clock_mhz"]', '["batch_size", "gpu_clock_mhz"]')
    (tmp_path / "surfaces.toml").write_text(other)
    assert load_problems(tmp_path)[0].surface.space.default == at(1, 4)


def test_limit_and_oracle_follow_the_slack(tmp_path: Path) -> None:
    problem = steep(tmp_path)
    assert [str(x) for x in problem.limits(1.25)] == ["latency_ms <= 1250.0"]
    assert problem.oracle(1.1) == 8.0
    assert problem.oracle(1.25) == 6.0
    assert problem.saving(1.1) == pytest.approx(0.2)
    assert problem.saving(1.25) == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("clock", "batch", "slack", "captured"),
    [
        (1000, 2, 1.1, 0.0),
        (500, 2, 1.1, 1.0),
        (500, 1, 1.1, 0.5),
        (1000, 1, 1.1, -1.0),
        (1000, 1, 1.25, -0.5),
        (500, 4, 1.1, 0.0),
        (500, 4, 1.25, 1.0),
    ],
)
def test_captured_is_the_share_of_the_best_saving_and_nothing_above_the_limit(
    tmp_path: Path, clock: int, batch: int, slack: float, captured: float
) -> None:
    assert steep(tmp_path).captured(at(clock, batch), slack) == pytest.approx(captured)


def test_the_excess_is_the_share_above_the_limit(tmp_path: Path) -> None:
    problem = steep(tmp_path)
    assert problem.excess(at(1000, 4), 1.25) == pytest.approx(0.2)
    assert problem.excess(at(500, 4), 1.25) == 0.0


def test_the_roles_file_sets_the_objective_and_the_limited_metric(tmp_path: Path) -> None:
    write_tables(tmp_path)
    table = (tmp_path / "tiny.csv").read_text().replace("energy_j", "cost").replace(",\n", ",5\n")
    (tmp_path / "tiny.csv").write_text(table.replace("latency_s", "wait_s"))
    (tmp_path / "surfaces.toml").write_text(
        ROLES.replace('"energy_j"', '"cost"').replace('"latency_s"', '"wait_s"')
    )
    problem = load_problems(tmp_path)[0]
    assert problem.aim.metric == "cost"
    assert problem.limits(1.25) == (Limit("wait_s", "<=", 1.25),)
    assert [k.name for k in problem.surface.space.knobs] == ["gpu_clock_mhz", "batch_size"]


def test_further_metrics_are_shown_if_all_their_cells_are_numbers(tmp_path: Path) -> None:
    write_tables(tmp_path)
    with_power = FLAT.replace(",\n", ",75\n")
    (tmp_path / "tiny.csv").write_text(HEADER + STEEP + with_power)
    without, beside = (p.surface for p in load_problems(tmp_path))
    assert set(without.row(at(500, 1))) == {"energy_j", "latency_ms"}
    assert beside.row(at(500, 1)) == {"energy_j": 10.02, "latency_ms": 1000.0, "power_w": 75.0}


def test_constant_columns_and_remarks_are_not_knobs(tmp_path: Path) -> None:
    write_tables(tmp_path)
    header, *rows = (HEADER + STEEP).splitlines()
    lines = [header + ",split,fan,note", *(f"{r},dev,3,n{i}" for i, r in enumerate(rows))]
    (tmp_path / "tiny.csv").write_text("\n".join(lines) + "\n")
    assert [k.name for k in load_problems(tmp_path)[0].surface.space.knobs] == [
        "gpu_clock_mhz",
        "batch_size",
    ]


def test_an_unlisted_column_of_numbers_is_a_knob_at_its_most_in_the_baseline(
    tmp_path: Path,
) -> None:
    write_tables(tmp_path)
    header, *rows = (HEADER + STEEP).splitlines()
    lines = [f"{header},mem_clock_mhz", *(f"{r},{m}" for r in rows for m in (5, 7))]
    (tmp_path / "tiny.csv").write_text("\n".join(lines) + "\n")
    (problem,) = load_problems(tmp_path)
    assert problem.surface.space.default == {**at(1000, 2), "mem_clock_mhz": 7}
    assert problem.surface.space.size == 12


def test_a_surface_of_one_configuration_and_unnamed_tables_are_remarks(tmp_path: Path) -> None:
    write_tables(tmp_path)
    with (tmp_path / "tiny.csv").open("a") as file:
        file.write("O|w,O,w,1000,1,10,1,\n")
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    assert [p.surface.name for p in load_problems(tmp_path)] == ["T|w", "F|w"]
    with (tmp_path / "surfaces.toml").open("a") as roles:
        roles.write("[more]\n")
    roles_file = tmp_path / "surfaces.toml"
    roles_file.write_text(f"version = 2\n{roles_file.read_text()}")
    assert [p.surface.name for p in load_problems(tmp_path)] == ["T|w", "F|w"]
    assert remarks(tmp_path) == [
        "left out more: there is no more.csv",
        "left out other.csv: surfaces.toml does not name it",
    ]


def test_a_column_without_a_role_is_announced_as_a_knob(tmp_path: Path) -> None:
    write_tables(tmp_path)
    header, *rows = (HEADER + STEEP).splitlines()
    lines = [f"{header},throughput_per_s,note", *(f"{r},{n},good" for n, r in enumerate(rows))]
    (tmp_path / "tiny.csv").write_text("\n".join(lines) + "\n")
    assert remarks(tmp_path) == [
        "tiny.csv: throughput_per_s taken for knobs: surfaces.toml gives them no role"
    ]
    (tmp_path / "surfaces.toml").write_text("[tiny]\n")
    assert remarks(tmp_path) == []


def test_rows_that_differ_only_in_a_text_are_averaged_with_a_note(tmp_path: Path) -> None:
    write_tables(tmp_path)
    header, *rows = (HEADER + STEEP).splitlines()
    lines = [f"{header},kind,day", *(f"{r},{kind},mo" for r in rows for kind in ("int8", "fp16"))]
    (tmp_path / "tiny.csv").write_text("\n".join(lines) + "\n")
    assert remarks(tmp_path) == [
        "tiny.csv: rows that differ in kind alone are averaged as repeats: only numbers make a knob"
    ]


def test_a_roles_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    write_tables(tmp_path)
    before = load_problems(tmp_path)
    roles = tmp_path / "surfaces.toml"
    roles.write_text(roles.read_text(), encoding="utf-8-sig")
    assert load_problems(tmp_path) == before


def test_a_table_may_have_no_metric_but_its_own(tmp_path: Path) -> None:
    write_tables(tmp_path)
    table = (HEADER + STEEP).replace("energy_j", "cost").replace("latency_s", "wait_s")
    lines = [line.rsplit(",", 1)[0] for line in table.splitlines()]
    (tmp_path / "tiny.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "surfaces.toml").write_text(
        ROLES.replace('"energy_j"', '"cost"').replace('"latency_s"', '"wait_s"')
    )
    (problem,) = load_problems(tmp_path)
    assert problem.surface.metrics == ("cost", "wait_s")


def test_a_column_that_cannot_be_a_metric_is_refused_with_the_next_step(tmp_path: Path) -> None:
    write_tables(tmp_path)
    path = tmp_path / "tiny.csv"
    path.write_text(path.read_text().replace("energy_j", "Energy_J"))
    (tmp_path / "surfaces.toml").write_text(ROLES.replace('"energy_j"', '"Energy_J"'))
    with raised(ConfigError, "tiny.objective", "Energy_J") as refused:
        load_problems(tmp_path)
    assert "rename the column" in (refused.value.hint or "")


def test_blanks_after_the_commas_change_nothing(tmp_path: Path) -> None:
    write_tables(tmp_path)
    before = load_problems(tmp_path)
    path = tmp_path / "tiny.csv"
    path.write_text(path.read_text().replace(",", ", "))
    after = load_problems(tmp_path)
    assert [p.surface.values for p in after] == [p.surface.values for p in before]


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (None, "names no table"),
        ((HEADER + STEEP).replace("latency_s", "p99"), "latency_s"),
        (HEADER + STEEP.replace("10,1.0", "nan,1.0"), "energy_j = 'nan'"),
        (HEADER + STEEP.replace("10,1.0", "10,"), "latency_s = ''"),
        (HEADER + STEEP.replace("1000,2,10", ",2,10"), "gpu_clock_mhz = ''"),
        (HEADER + STEEP.replace("0.9", "-0.9"), "latency_s = '-0.9'"),
        (HEADER + STEEP.replace("0.9", "-0.9"), r"correct or remove the row T\|w,T,w,"),
        (HEADER.replace("latency_s", "energy_j") + STEEP, "two columns energy_j"),
        (HEADER, "no rows"),
        (HEADER + FLAT.splitlines()[0] + "\n", "nothing|anything to tune"),
    ],
)
def test_a_table_that_cannot_be_used_is_named_with_the_cell(
    tmp_path: Path, table: str | None, words: str
) -> None:
    write_tables(tmp_path)
    if table is None:
        (tmp_path / "tiny.csv").unlink()
    else:
        (tmp_path / "tiny.csv").write_text(table)
    with pytest.raises(InvalidInput, match=words):
        load_problems(tmp_path)


@pytest.mark.parametrize(
    ("roles", "words"),
    [
        ("[tiny\n", r"surfaces\.toml"),
        ("tiny = 3\n", r"surfaces\.toml"),
        (ROLES.replace("energy_j", "joules"), "joules"),
        (ROLES.replace("latency_s", "p99"), "p99"),
        (ROLES.replace('["gpu_clock_mhz"]', '["clock"]'), "clock"),
        (ROLES.replace('["gpu_clock_mhz"]', '["mode"]'), "mode of tiny.csv holds no numbers"),
    ],
)
def test_a_wrong_roles_file_is_named_with_the_key(tmp_path: Path, roles: str, words: str) -> None:
    write_tables(tmp_path)
    header, *rows = (HEADER + STEEP).splitlines()
    lines = [f"{header},mode", *(f"{r},{'eco' if n else 'max'}" for n, r in enumerate(rows))]
    (tmp_path / "tiny.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "surfaces.toml").write_text(roles)
    with pytest.raises(ConfigError, match=words):
        load_problems(tmp_path)


def test_a_folder_without_a_roles_file_is_refused(tmp_path: Path) -> None:
    with raised(InvalidInput, "surfaces.toml"):
        load_problems(tmp_path)
    with pytest.raises(InvalidInput, match="there is no folder"):
        load_problems(tmp_path / "nowhere")


@pytest.mark.surfaces
def test_every_measured_surface_is_a_problem() -> None:
    beside = Path(__file__).parents[3].parent / "shared" / "data" / "surfaces"
    folder = Path(os.environ.get("JOULETUNE_SURFACES", beside))
    if not folder.is_dir():
        pytest.skip("no measured surfaces: set JOULETUNE_SURFACES to their folder")
    problems = load_problems(folder)
    assert not remarks(folder)
    for problem in problems:
        default = problem.surface.space.default
        assert problem.excess(default, 1.0) == 0.0
        assert 0.0 <= problem.saving(1.1) <= problem.saving(1.25) < 1.0
        if problem.saving(1.1) > 0.0:
            assert problem.captured(default, 1.1) == 0.0
