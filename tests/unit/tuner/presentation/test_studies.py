"""Studies found and put in order, and studies side by side: on the page and by commands alike."""

from __future__ import annotations

import itertools
from datetime import timedelta

import pytest

from tests.builders import START, study
from tests.errors import raised
from tests.unit.tuner.cli.worlds import held
from tuner.core import InvalidInput, Phase, UnreadableStudy
from tuner.presentation.studies import SORTS, StudyFilters, comparable, fronts, side_by_side, titled

OLD = study(Phase.STOPPED, id="s-old", devices=("gpu10",), name="night batch")
NEW = study(id="s-new", devices=("gpu1", "gpu2"), created_at=START + timedelta(days=30))
LOST = UnreadableStudy(
    id="s-lost", devices=("gpu3",), workload="chat", phase=Phase.PAUSED, revision=1,
    created_at=START + timedelta(days=10), error="a newer release wrote it",
)  # fmt: skip
ALL = (OLD, NEW, LOST)


def ids(**filters: str) -> list[str]:
    return [one.id for one in StudyFilters(**filters).of(ALL, START + timedelta(days=40))]


def test_the_active_ones_come_first_then_the_newest() -> None:
    assert ids() == ["s-new", "s-lost", "s-old"]


@pytest.mark.parametrize(
    ("filters", "matching"),
    [
        ({"find": "night"}, ["s-old"]),
        ({"find": "Batch NIGHT"}, ["s-old"]),
        ({"find": "chat"}, ["s-lost"]),
        ({"find": "gpu2"}, ["s-new"]),
        ({"device": "gpu10"}, ["s-old"]),
        ({"device": "gpu1"}, ["s-new"]),
        ({"device": "gpu"}, ["s-new", "s-lost", "s-old"]),
        ({"phase": "stopped"}, ["s-old"]),
        ({"since": "15d"}, ["s-new"]),
        ({"since": "31d", "sort": "oldest"}, ["s-lost", "s-new"]),
        ({"find": "nothing"}, []),
    ],
    ids=str,
)
def test_each_filter_keeps_the_named_trials(filters: dict[str, str], matching: list[str]) -> None:
    assert ids(**filters) == matching


def test_each_order_has_all_studies_however_they_came() -> None:
    for sort, order in itertools.product(SORTS, itertools.permutations(ALL)):
        found = StudyFilters(sort=sort).of(order, START)
        assert [one.id for one in found] == ids(sort=sort)


@pytest.mark.parametrize("name", ["phase", "sort", "since"])
def test_an_unknown_word_is_refused_with_the_known_ones(name: str) -> None:
    with raised(InvalidInput, f"{name} cannot be 'fast'"):
        ids(**{name: "fast"})


def test_a_study_without_a_name_is_called_by_its_workload_and_devices() -> None:
    assert titled(OLD) == "night batch"
    assert titled(LOST) == "chat on gpu3"


def test_two_studies_side_by_side_have_a_text_for_each_fact() -> None:
    verbs, name = held()
    look = verbs.look(name)
    rows = {row[0]: row[1:] for row in side_by_side([look.report, look.report])}
    assert {len(values) for values in rows.values()} == {2}
    assert rows["gpu.clock_mhz"] == ("600", "600")
    assert (
        "energy_j" in rows
        and "baseline energy_j" in rows
        and rows["saving"][0].startswith("40.0 ±")
    )
    chart = fronts([(look.report, look.front)] * 2)
    assert chart is not None and len(chart["data"]) == 2
    assert [trace["name"] for trace in chart["data"]] == [f"{name}, measured"] * 2
    made_up = look.report.model_copy(update={"origins": {"energy_j": "simulated"}})
    assert ("origin", "measured", "simulated") in side_by_side([look.report, made_up])


@pytest.mark.parametrize("count", [0, 1, 5])
def test_only_two_to_four_studies_are_compared(count: int) -> None:
    assert len(comparable("abcd")) == 4
    with raised(InvalidInput, f"{count} name"):
        comparable("abcde"[:count])
