from __future__ import annotations

import random
import re
import subprocess
import sys
import zipfile
from collections import Counter
from pathlib import Path

import pytest

from agents.devices.catalogue import open_device
from agents.target.target import Target
from tests.builders import Time
from tests.evidence import (
    FITTED,
    KINDS,
    LISTED,
    Damage,
    closed,
    drafted,
    opened,
    packed,
    simulated,
    written,
)
from tests.extend.lab import lab
from tests.unit.tuner.cli import worlds
from tuner import verify
from tuner.core import Setting
from tuner.presentation.reports import account, comparison, verdict
from tuner.presentation.standing import StudyOutcome
from tuner.service.evidence import exported
from tuner.service.operations import Operations

UNITS = "%|µJ|mJ|J|kJ|MJ|mW|W|kW|µs|ms|s|min|h|days|/s|kWh"
FIGURE = re.compile(rf"[+-]?\d[\d,]*\.?\d*(?: ± \d[\d,]*\.?\d*)? (?:{UNITS})(?![\w/])")
SCRIPTED = {s.__name__: s for s in (worlds.slope, worlds.costly, worlds.broken_at_800, worlds.flat)}
PRESETS = ("a100", "a100-host", "v100", "a40", "orin", "tx2")
STUDIES = [*SCRIPTED, *(f"{preset} {seed}" for preset in PRESETS for seed in range(3))]


def made(name: str, folder: Path) -> tuple[Operations, str]:
    """Return the operations and the id of a study by its name in `STUDIES`."""
    if name in SCRIPTED:
        return worlds.held(SCRIPTED[name])
    preset, seed = name.split()
    return simulated(folder / "lab", preset, int(seed), trials=3 + int(seed), hold=4 * int(seed))


BEYOND = ("best ", "baseline ", "trials", " ", "No setting won", "held ", "search")
"""Lines with settings, reasons, and counts of broken limits."""


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive of a simulated study that holds a setting."""
    folder = tmp_path_factory.mktemp("evidence")
    return written(*simulated(folder / "lab", "a100", hold=6), folder / "study.zip")


def printed(verbs: Operations, study: str) -> list[str]:
    """Return every figure with a unit in the printed report, but those listed as not computed."""
    report = verbs.report(study)
    main = StudyOutcome.of(report, verbs.revisions(study), verbs.trials(study))
    rows = [" ".join(row[1:]) for row in comparison(main)]
    text = [*rows, *verdict(main), *account(main)]
    lines = [re.sub("95 % bound|last 24 h", "", t) for t in text if not t.startswith(BEYOND)]
    return [figure for line in lines for figure in FIGURE.findall(line)]


@pytest.mark.parametrize("name", STUDIES)
@pytest.mark.slow
def test_every_printed_figure_follows_from_the_windows(name: str, tmp_path: Path) -> None:
    verbs, study = made(name, tmp_path)
    found = verify.Archive(str(written(verbs, study, tmp_path / "study.zip")))
    assert found.wrong == []
    known = " ".join(found.doc["figures"].values())
    assert found.same == len(found.doc["figures"]) > 5
    assert [figure for figure in printed(verbs, study) if figure not in known] == []


def test_the_figures_of_a_study_that_is_not_done_follow_at_each_step(tmp_path: Path) -> None:
    side, time = open_device("simulated:a100", seed=0, state_dir=None), Time()
    with lab(tmp_path, Target((side,)), time) as opened:
        study = opened.verbs.create(drafted()).id
        for step in range(12):
            opened.agent.step()
            file = written(opened.verbs, study, tmp_path / f"{step}.zip")
            found = verify.Archive(str(file))
            assert found.wrong == []
            known = FIGURE.findall(" , ".join(found.doc["figures"].values()))
            left = [figure for figure in printed(opened.verbs, study) if figure not in known]
            assert left == [], step


def test_an_archive_is_checked_by_python_alone_and_is_the_same_twice(
    archive: Path, tmp_path: Path
) -> None:
    own = tmp_path / "verify.py"
    own.write_bytes(Path(verify.__file__).read_bytes())
    command = [sys.executable, "-I", str(own)]
    done = subprocess.run([*command, str(archive)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "0 contradictions" in done.stdout
    assert len(own.read_text().splitlines()) <= 400
    assert subprocess.run(command, capture_output=True, check=False).returncode == 2
    bad = subprocess.run([*command, str(own)], capture_output=True, text=True, check=False)
    assert (bad.returncode, bad.stderr) == (1, "")
    assert "CONTRADICTION: damaged" in bad.stdout


@pytest.mark.promise(
    "the evidence of a study is edited, with new digests",
    "`jouletune verify` names the contradiction; a change that fits all other numbers is not found",
)
def test_damages_of_the_listed_kinds_are_found_even_with_new_digests(
    archive: Path, tmp_path: Path
) -> None:
    chance, missed, done = random.Random(7), Counter[str](), 0
    while done < 500:
        kind = chance.choice([*KINDS])
        files, doc = opened(archive)
        if not KINDS[kind](chance, files, doc):
            continue
        done += 1
        bad = closed(files, doc, tmp_path / "bad.zip", sums=done % 2 == 0)
        missed[kind] += not verify.Archive(str(bad)).wrong
    assert +missed == Counter()


def fitted(damage: Damage, chance: random.Random, archive: Path, to: Path) -> verify.Archive:
    """Damage an archive, compute its figures and digests anew, and return the check of the result."""
    files, doc = opened(archive)
    assert damage(chance, files, doc)
    doc["figures"] = verify.Archive(str(closed(files, doc, to, sums=True))).figures()
    return verify.Archive(str(closed(files, doc, to, sums=True)))


@pytest.mark.parametrize("kind", FITTED)
def test_damages_that_figures_computed_anew_do_not_hide(
    kind: str, archive: Path, tmp_path: Path
) -> None:
    chance = random.Random(11)
    for _ in range(40):
        assert fitted(FITTED[kind], chance, archive, tmp_path / "bad.zip").wrong


@pytest.mark.parametrize("kind", LISTED)
def test_damages_that_figures_computed_anew_hide_are_listed(
    kind: str, archive: Path, tmp_path: Path
) -> None:
    (damage, name), chance = LISTED[kind], random.Random(13)
    whole, hidden = verify.Archive(str(archive)), 0
    for _ in range(40):
        found = fitted(damage, chance, archive, tmp_path / "bad.zip")
        hidden += not found.wrong
        assert found.wrong or any(name in line for line in found.beyond)
    assert hidden
    assert kind in ("held", "chosen") or not any(name in line for line in whole.beyond)


def test_any_changed_byte_is_found_without_new_digests(archive: Path, tmp_path: Path) -> None:
    whole, chance = archive.read_bytes(), random.Random(3)
    files, _ = opened(archive)
    for _ in range(100):
        name = chance.choice([*files])
        content = bytearray(files[name])
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        bad = packed({**files, name: bytes(content)}, tmp_path / "bad.zip")
        assert verify.Archive(str(bad)).wrong, name
    for _ in range(100):
        torn = bytearray(whole)
        torn[chance.randrange(len(torn))] ^= 1 << chance.randrange(8)
        (tmp_path / "torn.zip").write_bytes(torn)
        found = verify.Archive(str(tmp_path / "torn.zip"))
        assert found.wrong or opened(tmp_path / "torn.zip")[0] == files


def test_hostile_archives_neither_hide_nor_fake_the_result(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files, doc = opened(archive)
    doc["beyond"]["\x1b[2J0 contradictions.\n"] = "x"
    doc["figures"]["saving"] = "99 %"
    bad = closed(files, doc, tmp_path / "bad.zip", sums=True)
    assert verify.main([str(bad)]) == 1
    shown = capsys.readouterr().out
    assert shown.startswith("CONTRADICTION") and "\x1b" not in shown
    assert "\n0 contradictions" not in shown
    files["samples/00001-1.json"] = b" " * 600_000
    assert "too large" in str(verify.Archive(str(packed(files, bad))).wrong)
    with zipfile.ZipFile(archive) as bundle, pytest.warns(UserWarning, match="Duplicate"):
        twice = tmp_path / "twice.zip"
        twice.write_bytes(archive.read_bytes())
        with zipfile.ZipFile(twice, "a") as again:
            again.writestr("UNPROVEN.txt", bundle.read("UNPROVEN.txt"))
    assert "one name" in str(verify.Archive(str(twice)).wrong)


@pytest.mark.parametrize(("name", "at"), [("best", -1), ("baseline", -1), ("baseline", 1)])
def test_a_window_that_confirmed_cannot_be_left_out(
    archive: Path, tmp_path: Path, name: str, at: int
) -> None:
    files, doc = opened(archive)
    assert len(doc["pools"][name]) >= 2
    gone = doc["pools"][name].pop(at)
    bad = closed(files, doc, tmp_path / "bad.zip", sums=True)
    wanted = f"trial {gone} confirmed {name}"
    assert any(wanted in line for line in verify.Archive(str(bad)).wrong)


def test_a_window_that_is_listed_twice_counts_once(archive: Path, tmp_path: Path) -> None:
    files, doc = opened(archive)
    doc["pools"]["best"].append(doc["pools"]["best"][-1])
    twice = verify.Archive(str(closed(files, doc, tmp_path / "twice.zip", sums=True)))
    assert twice.figures() == verify.Archive(str(archive)).figures()


def test_a_value_that_may_be_a_path_is_exported_as_its_digest() -> None:
    setting: Setting = {
        "governor": "powersave",
        "model": "/home/ann/m.gguf",
        "batch": 8,
        "on": True,
    }
    shown = exported(setting)
    assert (
        shown["model"] == exported(setting)["model"] != exported({"model": "other.gguf"})["model"]
    )
    assert shown == {**setting, "model": shown["model"]}
    assert "ann" not in str(shown)


def test_an_archive_names_no_host_person_or_device(archive: Path) -> None:
    files, _ = opened(archive)
    text = b"".join(content for name, content in files.items() if name != "verify.py").decode()
    for word in ("alice", "target@lab", "@lab", "testserver", "/tmp", "simulated-a100"):
        assert word not in text
