"""The output of every command, compared with its golden file: help, results and refusals."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import typer

from db import open_store
from tests.builders import device
from tests.errors import has_a_next_step
from tests.golden import FOLDER, golden, steady
from tests.unit.tuner.cli import worlds
from tuner.cli.app import app, below, main

FLEET = """[[group]]
name = "lab"
select = { id = "sim*" }
policy = "sobol"
constraints = ["latency_p99_ms <= 1.2x baseline"]
"""

CASES: dict[str, list[str]] = {
    "apply": [
        "apply -f fleet.toml",
        "apply -f fleet.toml --yes",
        "apply -f fleet.toml",
        "apply -f none.toml",
    ],
    "audit": ["audit"],
    "best": ["best STUDY", "best STUDY --pareto", "best nothing"],
    "budget event": ["budget event --hours 1 --watts 300", "budget event --hours 1"],
    "budget list": ["budget list"],
    "budget release": ["budget release rack --yes"],
    "budget set": [
        "budget set rack --select 'id=sim*' --watts 300",
        "budget set rack --select sim --watts 300",
        "budget set rack --select 'id=sim*'",
        "budget set rack --select 'id=sim*' --row 22-6=much",
    ],
    "budget show": ["budget show rack"],
    "constraint clear": ["constraint clear STUDY"],
    "constraint list": ["constraint list STUDY", "constraint list nothing"],
    "constraint preview": [
        "constraint preview STUDY 'latency_p99_ms <= 106'",
        "constraint preview STUDY 'latency_p99_ms <= 130' --json",
    ],
    "constraint set": [
        "constraint set STUDY 'latency_p99_ms <= 130'",
        "constraint set STUDY 'latency_p99_ms <= 130'",
        "constraint list STUDY",
        "constraint set STUDY 'latency below 50'",
    ],
    "db check": ["db check --db sqlite:///none.sqlite"],
    "diff": ["diff -f fleet.toml", "diff"],
    "export fleet": ["export fleet"],
    "device forget": [
        "device forget sim",
        "device forget other",
        "study stop STUDY --yes",
        "device forget sim",
        "device list",
    ],
    "device list": [
        "device list",
        "device list --label board=A100 --label workload=inference",
        "device list --label rack=a1",
        "device list --label rack",
    ],
    "device show": ["device show sim", "device show sim --since 7d", "device show nobody"],
    "events": ["events", "events --study STUDY"],
    "history": [
        "history",
        "history --device nobody",
        "history --group lab",
        "history --device nobody --format csv",
        "history --study nothing",
        "history --state happy",
        "history --since yesterday",
        "history --format parquet",
        "history --format xml",
        "history --format csv --json",
    ],
    "notification list": ["notification list"],
    "report": [
        "report STUDY",
        "report STUDY --since 7d",
        "report STUDY --format md",
        "report --since 7x",
        "report nothing",
        "report --group lab",
        "report STUDY --group lab",
        "report STUDY --format md --json",
    ],
    "run": [
        "run --keep",
        "run --device cpu --tuner http://127.0.0.1:9",
        "run --constraint 'a <= 1' --no-constraint",
        "run --trials many",
    ],
    "stop-all": [
        "stop-all --why 'smoke in rack 4'",
        "stop-all --why 'smoke in rack 4' --yes",
        "study list",
        "stop-all --lift",
        "stop-all --lift",
    ],
    "study create": [
        "study stop STUDY --yes",
        "study create --device sim --policy sobol",
        "study create --device sim --policy sobol",
        "study create --device nobody",
        "study create --device sim --constraint fast",
        "study create --device sim --objective 'least joy'",
        "study create --device sim --trials 0",
        "study create --device sim --window -1",
        "study create --device sim --control-share 2",
        "study create --device sim --control-hours 22",
        "study create --device sim --choose voltage=1",
        "study create --device sim --choose batch_size=3",
        "study create --device sim --constraint 'a <= 1' --no-constraint",
        "study create --device sim --policy guess",
    ],
    "study delete": [
        "study delete STUDY --yes",
        "study stop STUDY --yes",
        "study delete STUDY",
        "study delete STUDY --yes",
    ],
    "study explain": ["study explain STUDY"],
    "study freeze": [
        "study freeze STUDY --why 'black friday'",
        "study show STUDY",
        "study thaw --all",
        "study freeze --group lab",
        "study freeze",
        "study freeze STUDY --all",
    ],
    "study thaw": ["study thaw STUDY"],
    "study compare": ["study compare STUDY STUDY", "study compare STUDY"],
    "study list": [
        "study list --find inference --since 3650d --sort oldest",
        "study list --phase stopped",
        "study list --sort fast",
        "study list",
        "study list --group lab",
        "study list --tuner http://127.0.0.1:9 --db sqlite:///x",
        "study list --tuner 127.0.0.1:9",
        "study list --tuner http://h --token-file none",
        "study list --db mysql://h/d",
        "study list --db sqlite:///none.sqlite",
    ],
    "observe": [
        "observe --device simulated:orin --seed 1",
        "observe --device nothing",
        "observe --metric loss",
        "observe --device simulated:orin --for soon",
    ],
    "study pause": [
        "study pause STUDY --why lunch",
        "study pause STUDY",
        "study list",
        "study resume STUDY",
    ],
    "study resume": ["study resume STUDY"],
    "evidence": ["evidence nothing -o study.zip", "evidence STUDY -o none/study.zip"],
    "verify": ["verify none.zip", "verify none.zip --json"],
    "study setting": [
        "study setting STUDY --as json",
        "study setting STUDY --as shell",
        "study setting STUDY --as compose",
        "study setting STUDY --device other",
    ],
    "study show": ["study show STUDY", "study show nothing", "study show"],
    "study stop": [
        "study stop STUDY",
        "study stop STUDY --yes",
        "study stop STUDY",
        "study resume STUDY",
    ],
    "status": ["status"],
    "study wait": ["study wait STUDY", "study wait STUDY --for tuning --timeout 0s"],
    "token create": [
        "token create ann --role chef",
        "token create 'a b'",
        "token create --enrol --role admin",
    ],
    "token list": ["token list"],
    "token revoke": ["token revoke nobody"],
    "trial show": ["trial show STUDY 3", "trial show STUDY 99"],
    "trial list": ["trial list STUDY", "trial list STUDY --limit 1", "trial list nothing"],
    "workload check": ["workload check none.toml"],
}
"""Run in order over a database with one study that holds; each command has its own copy."""

ADVISED = {
    "study approve": ["study list", "study show STUDY", "best STUDY", "events --study STUDY",
                      "study approve STUDY --revision 1", "study approve STUDY", "study show STUDY"],
    "study reject": ["study reject STUDY --why 'too slow'", "study list"],
}  # fmt: skip
"""The cases over a database with one study that proposes."""

LISTS = {
    "best": "best STUDY --pareto",
    "constraint list": "constraint list STUDY",
    "device list": "device list",
    "history": "history",
    "status": "status",
    "study list": "study list",
    "trial list": "trial list STUDY",
}
"""Lists, also shown at 80 and 120 columns: one line per item."""

Ask = Callable[[list[str]], str]


def commands(of: object = None, path: str = "") -> Iterator[str]:
    """Yield every command of the command line that has none below it."""
    of = of or typer.main.get_command(app)
    names = [*getattr(of, "commands", ())]
    if not names:
        yield path
    for name in names:
        yield from commands(below(of, name), f"{path} {name}".strip())


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("held")
    return folder / worlds.FILE, worlds.database(folder)


@pytest.fixture(scope="module")
def proposed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    file = tmp_path_factory.mktemp("proposed") / worlds.FILE
    store = open_store(f"sqlite:///{file}")
    study = worlds.proposed(worlds.operations(store))
    store.close()
    return file, study


@pytest.fixture
def ask(
    request: pytest.FixtureRequest,
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Ask:
    file, made = request.getfixturevalue("proposed" if command in ADVISED else "held")
    monkeypatch.setenv("JOULETUNE_DB", f"sqlite:///{shutil.copy(file, tmp_path)}")
    for name, value in (("COLUMNS", "200"), ("LOGNAME", "ann"), ("TZ", "UTC")):
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fleet.toml").write_text(FLEET)

    def answer(lines: list[str]) -> str:
        text = []
        for line in lines:
            code = main([made if word == "STUDY" else word for word in shlex.split(line)])
            out, err = capsys.readouterr()
            text.append(f"$ jouletune {line}\n{out}{err}exit code {code}\n")
        return steady("\n".join(text), STUDY=made, FOLDER=tmp_path)

    return answer


@pytest.mark.parametrize("command", [*commands()])
def test_the_output_of_a_command_equals_its_golden_file(command: str, ask: Ask) -> None:
    golden(command, "help", ask([f"{command} --help"]))
    if lines := {**CASES, **ADVISED}.get(command):
        golden(command, "what it says", ask(lines))


LONG = "gpu0@ip-10-20-30-40.eu-central-1.compute.internal.cluster-of-the-lab-in-room-731"


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("command", [*LISTS])
def test_a_list_has_one_line_a_thing_at_every_width(
    command: str, columns: int, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    printed = ask([LISTS[command]])
    golden(command, f"{columns} columns", printed)
    assert all(len(line) <= columns for line in printed.splitlines())


@pytest.fixture(scope="module")
def long_named(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The URL of a database whose device has an id of 80 characters, and its study."""
    folder = tmp_path_factory.mktemp("long")
    study = worlds.database(folder, about=device(LONG, agent=LONG.partition("@")[2]))
    return f"sqlite:///{folder / worlds.FILE}", study


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("command", [*LISTS])
def test_a_list_shows_the_deciding_columns_beside_an_id_of_80_characters(
    command: str,
    columns: int,
    ask: Ask,
    long_named: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url, study = long_named
    monkeypatch.setenv("JOULETUNE_DB", url)
    monkeypatch.setenv("COLUMNS", str(columns))
    printed = steady(ask([LISTS[command].replace("STUDY", study)]), STUDY=study)
    golden(command, f"{columns} columns, an id of 80 characters", printed)
    assert "Traceback" not in printed and "exit code 0" in printed
    said = [line for line in printed.splitlines() if "next step" not in line]
    assert all(len(line) <= columns or LONG in line for line in said)


def test_every_golden_file_is_of_a_command_that_there_is() -> None:
    names = {command.replace(" ", "-") for command in commands()}
    assert {file.stem for file in FOLDER.glob("*.txt")} == names
    assert {*CASES, *ADVISED} <= set(commands())


def test_every_refusal_in_a_golden_file_is_one_line_with_a_next_step() -> None:
    for file in FOLDER.glob("*.txt"):
        for part in file.read_text().split("$ jouletune ")[1:]:
            typed, *printed = part.split("exit code 2\n")[0].splitlines()
            if "exit code 2\n" in part and "--json" not in typed:
                errors = [line for line in printed if line.startswith("error: ")]
                assert len(errors) == 1 and has_a_next_step(errors[0]), typed
