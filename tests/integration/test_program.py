"""`jouletune run --command`: a program that runs to its end, tuned on this machine as users start it."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.folder import REPOSITORY, Folder

PROGRAM = """
import json, sys
batch = int(sys.argv[1])
left = 6_000_000 // batch
while left:
    left -= 1
print(json.dumps({"accuracy": 0.9 - batch / 1000}))
"""

TRAINING = """
import argparse, json, os
p = argparse.ArgumentParser()
p.add_argument("--batch", type=int)
batch = p.parse_args().batch
left = 8_000_000 // batch
while left:
    left -= 1
assert os.environ["OMP_NUM_THREADS"] in ("1", "2")
print("loss=1.5")
print("loss=0.25")
print(json.dumps({"images": 1000, "accuracy": 0.95}))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    (tmp_path / "train.py").write_text(PROGRAM)
    found = Folder(tmp_path)
    yield found
    found.close()


@pytest.mark.slow
@pytest.mark.quiet
def test_a_program_is_tuned_within_its_limit(folder: Folder) -> None:
    command = f"{sys.executable} train.py {{batch}}"
    study = folder.run(
        "--command", command, "--knob", "batch=1,2,4,8,16@2", "--metric", "accuracy:more",
        "--constraint", "accuracy >= 0.7", "--runs", "3", "--trials", "4", "--foreign-share", "1",
    )  # fmt: skip
    assert study["baseline"]["setting"] == {"batch": 2}
    assert study["best"]["setting"]["batch"] > 2, json.dumps(study)
    assert study["saving"]["mean"] > 0.2
    code, out, err = folder.ask("trial", "list", study["study"]["id"], "--json")
    assert code == 0, err
    tried = json.loads(out)
    assert {t["setting"]["batch"] for t in tried} <= {1, 2, 4, 8, 16}
    done = [t for t in tried if t["state"] == "completed"]
    assert all(t["metrics"]["accuracy"]["mean"] == pytest.approx(0.9 - t["setting"]["batch"] / 1000)
               for t in done)  # fmt: skip
    assert not folder.processes()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--command", "train 'x"), "--command cannot be read"),
        (("--command", " "), "--command has no program"),
        (("--command", "train", "--knob", "batch=1,2"), "{batch} is neither in run nor in env"),
        (("--command", "train {batch}", "--knob", "batch"), "has no name or no values"),
        (("--command", "train {batch}", "--knob", "batch=1,2@3"), "is not among its values"),
        (("--command", "train {batch}", "--knob", "batch=1,1"), "has a value twice"),
        (("--command", "train", "--metric", "loss:lower"), "better cannot be 'lower'"),
        (("--command", "train", "--runs", "2"), "runs must be at least 3"),
        (("--command", "train", "--workload", "text"), "--command, --llm, --workload"),
        (("--knob", "batch=1,2"), "need --command; give --command, too"),
        (("--command", "train", "--foreign-share", "2"), "--foreign-share"),
    ],
)
def test_an_invalid_request_is_refused_at_once_and_leaves_nothing(
    folder: Folder, options: tuple[str, ...], says: str
) -> None:
    code, out, err = folder.ask("run", *options)
    assert (code, out) == (2, "")
    assert says in " ".join(err.split()), err
    assert not list(folder.path.rglob("program*"))


@pytest.mark.slow
@pytest.mark.quiet
def test_the_page_followed_word_by_word_leads_there(folder: Folder) -> None:
    page = (REPOSITORY / "docs" / "workloads.md").read_text()
    section = page[page.index("## A program that runs to an end") :]
    text = section[section.index("```toml\n") + 8 :]
    text = text[: text.index("```")].replace("/srv/train", str(folder.path))
    (folder.path / "train.toml").write_text(text)
    (folder.path / "train.py").write_text(TRAINING)
    code, out, err = folder.ask("workload", "check", "train.toml")
    assert code == 0, out + err
    command = shlex.split(next(x for x in section.splitlines() if "run --device cpu" in x))
    place = command.index("command:/etc/jouletune/train.toml")
    command[place] = f"command:{folder.path}/train.toml"
    study = folder.run(*command[2:], "--trials", "4", "--foreign-share", "1")
    assert study["study"]["constraints"] == ["accuracy >= 0.9"]
    best = study["best"]["metrics"]
    assert best["accuracy"]["mean"] >= 0.9
    assert best["loss"]["mean"] == pytest.approx(0.25)


def test_a_file_is_tried_before_an_agent_serves_it(folder: Folder) -> None:
    text = f"""
name = "train"
run = ["{sys.executable}", "{folder.path}/train.py", "{{batch}}"]
runs = 3
[[knob]]
name = "batch"
values = [8, 16]
default = 8
[[metric]]
name = "accuracy"
json = "KEY"
"""
    file = folder.path / "train.toml"
    file.write_text(text.replace("KEY", "accuracy"))
    code, out, err = folder.ask("workload", "check", "train.toml", "--json")
    assert code == 0, err
    found = {f["about"]: f for f in json.loads(out)["findings"]}
    assert found["batch"]["seen"].startswith("8 → 16")
    assert found["the meter"]["seen"].startswith("3 items and 0 failures")
    assert found["accuracy"]["there"] and found["cpu_time_ms"]["there"]
    file.write_text(text.replace("KEY", "accurate"))
    code, out, err = folder.ask("workload", "check", f"command:{file}")
    assert code == 1
    assert "printed no number at 'accurate'" in " ".join(out.split())
    code, out, err = folder.ask("workload", "check", "nowhere.toml")
    assert (code, out) == (2, "")
    assert "cannot read" in err
