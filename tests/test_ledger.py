"""tests/house.toml has the size of every part, and every growth is named in a commit."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests import ledger
from tests.generated import generated
from tests.promises import PAGE

IDENTITY = ("-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false")


def commit(house: Path, message: str) -> None:
    for words in (("add", "-A"), (*IDENTITY, "commit", "-q", "-m", message)):
        subprocess.run(["git", *words], cwd=house, check=True)


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small repository with a current ledger."""
    for name, text in {
        "agents/actuator/main.py": 'def serve():\n    """Serve."""\n    from tuner import errors\n',
        "agents/devices/cpu/knobs.py": "import json\nimport tuner.errors\n",
        "tuner/errors.py": "\n".join(f"a{n} = {n}" for n in range(100)),
        "tuner/web/page.html": "<p>\n\n</p>\n",
        "tests/unit/tuner/web/test_page.py": "import tuner\n",
        "docs/page.md": "äh\n",
        "docs/promises.md": "made\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "docs/link.md").symlink_to("page.md")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    monkeypatch.setattr(ledger, "ROOT", tmp_path)
    ledger.main()
    commit(tmp_path, "Begin")
    return tmp_path


def found(house: Path) -> list[str]:
    return ledger.wrong(ledger.counted(house), ledger.read((house / ledger.FILE).read_text()))


def test_the_ledger_is_current() -> None:
    if not ledger.git(ledger.ROOT, "rev-parse", "--git-dir"):
        pytest.skip("not a git checkout: the ledger counts the files that git tracks")
    wrong = found(ledger.ROOT)
    assert not wrong, "\n".join(wrong)


def test_each_commit_names_the_entries_that_it_lets_rise() -> None:
    unnamed = ledger.unnamed(ledger.ROOT)
    assert not unnamed, "name each entry in the commit's body and say why:\n" + "\n".join(unnamed)


def test_an_entry_that_rises_without_its_name_is_found(house: Path) -> None:
    for body, lines in (
        ("For tuner/web: a reason.", 5),
        ("For tuner/website.", 7),
        ("A reason.", 3),
    ):
        (house / "tuner/web/page.html").write_text("<p>\n" * lines)
        ledger.main()
        commit(house, f"Write {lines}\n\n{body}")
    last = ledger.git(house, "log", "-1", "--format=%h", "--abbrev=8", "HEAD^").strip()
    assert ledger.unnamed(house) == [f"{last} does not name tuner/web"]


def test_the_generated_files_are_those_that_tests_compare() -> None:
    rules = ledger.ROOT / "docs/measurement.md"  # tests/unit/tuner/core/test_witnesses.py
    made = {file for file in (*generated(), PAGE, rules) if file.suffix in (".md", ".py")}
    assert {str(file.relative_to(ledger.ROOT)) for file in made} == {*ledger.GENERATED}


def test_every_file_has_one_entry_and_a_link_no_size(house: Path) -> None:
    counts = ledger.counted(house)
    assert counts["documentation", "docs", "by_hand"] == len("äh\n".encode())
    assert counts["documentation", "docs", "generated"] == len("made\n")
    assert counts["other", "tuner/web", "lines"] == 2
    assert counts["tests", "tests/unit/tuner/web", "lines"] == 1
    assert counts["root_process", "cpu", "lines"] == 2 + 2 + 100
    assert counts["product", "tuner", "files"] == 1
    assert counts["longest_file", "tuner/errors.py", "lines"] == 100
    assert ledger.read((house / ledger.FILE).read_text()) == counts


@pytest.mark.parametrize(
    ("name", "lines", "named"),
    [
        ("tuner/errors.py", 110, ["goals", "product", "root_process"]),
        ("tuner/errors.py", 99, []),
        ("tuner/errors.py", 40, ["goals", "product", "root_process"]),
        ("tuner/new/room.py", 1, ["product", "product"]),
        ("tuner/web/page.js", 1, ["other"]),
        ("tests/unit/tuner/web/test_page.py", 2, ["tests"]),
        ("docs/page.md", 2, ["documentation"]),
    ],
)
def test_counts_above_or_far_below_their_entry_are_refused(
    house: Path, name: str, lines: int, named: list[str]
) -> None:
    (house / name).parent.mkdir(exist_ok=True)
    (house / name).write_text("a = 1\n" * lines)
    assert [row.split()[0] for row in found(house)] == named
    ledger.main()
    assert not found(house)


def test_a_ledger_with_a_merge_conflict_or_none_is_written_again(house: Path) -> None:
    file = house / ledger.FILE
    whole = file.read_text()
    file.write_text("<<<<<<< HEAD\n" + whole.replace("[other]", "=======\n>>>>>>> other\n[other]"))
    assert found(house)
    ledger.main()
    assert file.read_text() == whole
    file.unlink()
    ledger.main()
    assert file.read_text() == whole


def test_each_rise_is_printed_with_its_reason_since_the_last_tag(
    house: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = house / "tuner/web/page.html"
    for tag, lines in (("one", 5), ("two", 7), ("", 3)):
        page.write_text("<p>\n" * lines)
        ledger.main()
        commit(house, f"Write {lines}\n\nA reason for {lines}.")
        if tag == "one":
            subprocess.run(["git", "tag", tag], cwd=house, check=True)
    capsys.readouterr()
    ledger.main("rises")
    printed = capsys.readouterr().out
    assert printed.startswith("rises since one:")
    assert "A reason for 7.\n  other tuner/web lines: 5 → 7 (+2)" in printed
    assert "reason for 5" not in printed and "reason for 3" not in printed
