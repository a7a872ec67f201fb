"""The gallery's programs run with small sizes and print what their studies measure."""

from __future__ import annotations

import json
import re
import sys

import pytest

from tests.bench.tuned_command import TOP, chosen, saving
from tests.gallery.bench import beyond, means
from tests.gallery.entries import ENTRIES, PROGRAMS, Entry
from tests.processes import run_to_end

MOST_LINES = 80
NUMPY = [
    name for name, one in ENTRIES.items() if "torch" not in (PROGRAMS / one.program).read_text()
]
TORCH = {one.program: one for name, one in ENTRIES.items() if name not in NUMPY}


def printed(entry: Entry, setting: dict[str, str]) -> dict[str, float]:
    """Return what a program prints with small sizes."""
    words = [str(PROGRAMS / entry.program), *entry.words(setting), *entry.small]
    done = run_to_end([sys.executable, *words], check=True, timeout=300)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def runs_at_both_ends(entry: Entry, setting: dict[str, str]) -> None:
    assert {metric.partition(":")[0] for metric in entry.metrics} <= printed(entry, setting).keys()


@pytest.mark.parametrize("name", NUMPY)
@pytest.mark.parametrize("end", [0, -1])
def test_a_program_of_numpy_prints_its_metrics(name: str, end: int) -> None:
    entry = ENTRIES[name]
    runs_at_both_ends(entry, entry.settings[end])


@pytest.mark.slow
def test_the_programs_of_torch_print_their_metrics() -> None:
    for entry in TORCH.values():
        runs_at_both_ends(entry, entry.settings[-1])


@pytest.mark.parametrize("program", sorted(PROGRAMS.glob("*.py")), ids=lambda path: path.name)
def test_a_program_is_short_and_has_an_entry_and_a_line_of_the_page(program: object) -> None:
    name = str(program).rpartition("/")[2]
    assert len((PROGRAMS / name).read_text().splitlines()) <= MOST_LINES
    assert name in {one.program for one in ENTRIES.values()}
    assert name in (TOP / "docs/gallery.md").read_text()


def test_every_command_of_the_page_names_an_entry_s_program_and_its_knobs() -> None:
    page = (TOP / "docs/gallery.md").read_text().replace("\\\n", " ")
    commands = re.findall(r"^    jouletune run --command .*$", page, re.MULTILINE)
    assert len(commands) >= len({one.program for one in ENTRIES.values()})
    for command in commands:
        (one, *_) = [one for one in ENTRIES.values() if f"{one.program} " in command]
        assert set(re.findall(r"--knob (\w+)=", command)) <= set(one.knobs)


def test_limits_are_judged_by_the_means_beside_the_baselines() -> None:
    entry = ENTRIES["experts"]
    base = {"quality": 0.5, "memory_mb": 1.0}
    assert entry.keeps({"quality": 0.4, "memory_mb": 2.0}, base)
    assert not entry.keeps({"quality": 0.39, "memory_mb": 1.0}, base)
    assert not entry.keeps({"quality": 0.5, "memory_mb": 2.1}, base)


def test_a_study_without_a_winner_chose_the_defaults() -> None:
    defaults = {"cache": "0", "deduplicate": "0"}
    assert chosen({"best": None}, defaults) == defaults
    assert chosen({"best": {"setting": {"cache": 4000}}}, defaults)["cache"] == "4000"


def test_a_loss_counts_beyond_two_standard_errors() -> None:
    assert saving([1.0, 1.0], [2.0, 2.0]) == {"saving_percent": 50.0, "saving_stderr_percent": 0.0}
    assert beyond({"saving_percent": -3.0, "saving_stderr_percent": 1.0})
    assert not beyond({"saving_percent": -1.9, "saving_stderr_percent": 1.0})
    assert means([{"a": 1.0}, {"a": 3.0}]) == {"a": 2.0}
