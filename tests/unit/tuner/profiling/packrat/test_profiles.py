"""Every profile is read in full, or refused with a TuningError."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tuner.core import TuningError
from tuner.profiling.packrat.profiles import COLUMNS, read_profile

NUMBERS = st.one_of(
    st.integers(-2, 64).map(str),
    st.floats().map(str),
    st.sampled_from(["", " ", "1e3", "1e400", "0x10", "١", "nan", "-0", "4.0", "1_0", "a,b", '"']),
)
ROWS = st.lists(st.tuples(st.sampled_from(["m", "n", ""]), *[NUMBERS] * 5), max_size=4)
CLEAN = st.lists(
    st.tuples(st.integers(1, 4), st.integers(1, 8), st.floats(1e-6, 1e3), st.floats(0.0, 1.0)),
    min_size=1,
    max_size=20,
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("profiles") / "profile.csv"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(ROWS)
def test_odd_cells_are_read_as_numbers_or_refused(
    file: Path, rows: list[tuple[str, str, str, str, str, str]]
) -> None:
    header = ",".join([*COLUMNS, "latency_stderr_s", "instances"])
    file.write_text("\n".join([header, *(",".join(row) for row in rows)]), "utf-8")
    try:
        read = read_profile(file, "m")
    except TuningError as error:
        assert error.hint
        return
    for (threads, items), point in read.profile.points.items():
        assert threads >= 1
        assert items >= 1
        assert 0.0 < point.latency_s < math.inf


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    with pytest.raises(TuningError):
        read_profile(file)


@given(CLEAN)
def test_written_rows_are_read_and_repeats_averaged(
    file: Path, rows: list[tuple[int, int, float, float]]
) -> None:
    lines = [f"m,{t},{b},{s!r},{e!r}" for t, b, s, e in rows]
    file.write_text("\n".join([",".join([*COLUMNS, "latency_stderr_s"]), *lines]), "utf-8")
    read = read_profile(file)
    assert set(read.profile.points) == {(t, b) for t, b, _, _ in rows}
    for cell, point in read.profile.points.items():
        own = [(s, e) for t, b, s, e in rows if (t, b) == cell]
        assert point.latency_s == pytest.approx(math.fsum(s for s, _ in own) / len(own))
        assert point.stderr_s >= math.hypot(*(e for _, e in own)) / len(own) - 1e-12
