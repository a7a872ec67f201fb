"""Programs that run to their end: their metrics, and no run outlives its window."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from agents.host.machine import HostClock
from agents.host.processes.program_runs import RunWindow
from agents.target.side import Side
from agents.target.window import RATIOS
from agents.workloads import open_workload
from tests.contracts.actuator import SettableContract
from tests.errors import raised
from tests.processes import gone, until
from tuner.core import ConfigError, InvalidInput, MeasurementError, OutOfRange, quantity_of

FILE = """
name = "train"
run = [{python}, "{folder}/train.py", "--batch={{batch}}", "{{left}} alone"]
folder = "{folder}"
runs = 3
{more}

[env]
THREADS = "{{threads}}"

[items]
json = "rows"

[[knob]]
name = "batch"
values = [8, 16, 32]
default = 16
role = "batch"

[[knob]]
name = "threads"
values = [1, 2]
default = 1

[[metric]]
name = "accuracy"
json = "scores.accuracy"
better = "more"

[[metric]]
name = "loss"
pattern = 'loss=([0-9.]+)'
"""
GOOD = """
import json, os, sys
batch = int(sys.argv[1].removeprefix("--batch="))
assert sys.argv[2] == "{left} alone", sys.argv
print("loss=9.0")
print("loss=0.25")
shown = {"text": "a\u2028b", "rows": 100, "scores": {"accuracy": 0.5 + batch / 1000}}
print("99 %", json.dumps(shown, ensure_ascii=False), sep="\\r")
print("{ not JSON")
print(os.environ["THREADS"], os.getcwd(), file=sys.stderr)
"""
LINGERS = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
with open("pids.new", "w") as file:
    file.write(f"{os.getpid()} {child.pid}")
os.rename("pids.new", "pids")
time.sleep(600)
"""
Opened = Callable[..., Side]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    sides: list[Side] = []

    def open_it(
        program: str = GOOD, more: str = "", changes: Mapping[str, str] | None = None
    ) -> Side:
        (tmp_path / "train.py").write_text(program)
        text = FILE.format(python=f'"{sys.executable}"', folder=tmp_path, more=more)
        for old, new in (changes or {}).items():
            assert old in text
            text = text.replace(old, new)
        (tmp_path / "train.toml").write_text(text)
        spec = f"command:{tmp_path}/train.toml"
        sides.append(open_workload(spec, seed=0, state_dir=tmp_path, clock=HostClock()))
        return sides[-1]

    yield open_it
    for side in sides:
        side.close()


def whole(side: Side) -> RunWindow:
    """Run a complete window, as the agent's loop does."""
    window = side.meter.start()
    assert isinstance(window, RunWindow)
    for _ in range(3):
        while not window.wait(1.0):
            pass
        window.read()
    return window


def lingering(folder: Path) -> list[int]:
    until((folder / "pids").exists, "no process lingers")
    return [int(word) for word in (folder / "pids").read_text().split()]


class TestRunKnobs(SettableContract):
    @pytest.fixture
    def side(self, opened: Opened) -> Side:
        return opened()


def test_a_window_is_whole_runs_and_shows_all_that_is_listed(opened: Opened) -> None:
    side = opened()
    side.actuator.apply({"batch": 32})
    shown = whole(side).stop()
    assert shown.totals["items"] == 300.0
    assert shown.totals["cpu_s"] > 0.0
    assert shown.estimates["accuracy"].mean == pytest.approx(0.532)
    assert shown.estimates["accuracy"].stderr == pytest.approx(0.0, abs=1e-12)
    assert shown.estimates["loss"].mean == pytest.approx(0.25)
    assert shown.estimates["latency_ms"].n == 3
    assert shown.estimates["latency_ms"].mean > 1.0
    for metric in side.metrics:
        total = RATIOS[metric.quantity].total if metric.quantity in RATIOS else ""
        assert metric.name in shown.estimates or total in shown.totals
    better = quantity_of("accuracy", {m.name: m.quantity for m in side.metrics}).better
    assert str(better) == "more"


@pytest.mark.promise("the agent dies while a program runs for a trial")
def test_a_run_that_was_cut_off_does_not_count(opened: Opened, tmp_path: Path) -> None:
    side = opened(LINGERS)
    window = side.meter.start()
    pids = lingering(tmp_path)
    shown = window.stop()
    assert shown.totals["items"] == 0.0 and not shown.estimates
    until(lambda: gone(*pids), "a process lingers")
    assert window.stop() == shown and window.read() == shown


def test_closing_the_side_ends_its_process(opened: Opened, tmp_path: Path) -> None:
    side = opened(LINGERS)
    side.meter.start()
    pids = lingering(tmp_path)
    side.close()
    until(lambda: gone(*pids), "a process lingers")


def test_processes_left_by_a_run_end_with_it(opened: Opened, tmp_path: Path) -> None:
    side = opened(
        LINGERS.replace("time.sleep(600)\n", "", 1).replace("\ntime.sleep(600)", "") + GOOD
    )
    whole(side)
    until(lambda: gone(*lingering(tmp_path)[1:]), "a process lingers")


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("import sys; print('no data here'); sys.exit(3)", "exited with code 3: no data here"),
        ("import os; os.kill(os.getpid(), 9)", "was killed by SIGKILL: it printed nothing"),
        ("print('loss=0.25')", "no number at 'rows' of its last line in JSON: loss=0.25"),
        ("print('{\"rows\": true}')", "no number at 'rows'"),
        ('print(\'{"rows": 1, "scores": 2}\')', "no number at 'scores.accuracy'"),
        (GOOD.replace("loss=", "lost="), "no number that matches 'loss=([0-9.]+)'"),
        (GOOD.replace("100", "-100"), "reports -100 items"),
    ],
)
def test_a_run_that_fails_gives_no_measurement(opened: Opened, program: str, says: str) -> None:
    window = opened(program).meter.start()
    assert isinstance(window, RunWindow)
    while not window.wait(1.0):
        pass
    with pytest.raises(MeasurementError) as failed:
        window.read()
    assert says in failed.value.message
    window.stop()


def test_a_run_that_takes_too_long_is_ended(opened: Opened, tmp_path: Path) -> None:
    window = opened(LINGERS, more="timeout_s = 1.5").meter.start()
    assert isinstance(window, RunWindow)
    pids = lingering(tmp_path)
    with raised(MeasurementError, "1.5"):
        while True:
            window.wait(0.5)
    until(lambda: gone(*pids), "a process lingers")


def test_a_missing_program_is_reported_by_name(opened: Opened) -> None:
    side = opened(changes={f'"{sys.executable}"': '"no-such-program"'})
    window = side.meter.start()
    assert isinstance(window, RunWindow)
    while not window.wait(1.0):
        pass
    with raised(MeasurementError, "no-such-program"):
        window.read()


@pytest.mark.promise(
    "the agent dies while a program runs for a trial",
    "the program and its children end; an aborted run is not counted",
)
def test_a_run_ends_with_its_caller(opened: Opened, tmp_path: Path) -> None:
    opened(LINGERS)
    code = (
        "import sys, time; from pathlib import Path; from agents.workloads import open_workload;"
        "from agents.host.machine import HostClock;"
        f"s = open_workload('command:{tmp_path}/train.toml', seed=0, state_dir=Path('.'),"
        "clock=HostClock()); s.meter.start(); time.sleep(600)"
    )
    owner = os.spawnv(os.P_NOWAIT, sys.executable, [sys.executable, "-c", code])
    pids = lingering(tmp_path)
    os.kill(owner, signal.SIGKILL)
    os.waitpid(owner, 0)
    until(lambda: gone(*pids), "a process lingers")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"--batch={batch}"', '"--batch"', "{batch} is neither in run nor in env"),
        ("runs = 3", "runs = 2", "runs must be at least 3, not 2; the standard error"),
        ("runs = 3", "timeout_s = 0", "timeout_s must be above 0"),
        ('name = "train"', "", "has no name"),
        ('folder = "', 'folder = "/nowhere', "folder must be the absolute path of a folder"),
        ('json = "rows"', "count = 0", "needs a count of at least 1"),
        ('json = "scores.accuracy"', "", "needs a json or a pattern"),
        ('better = "more"', 'better = "higher"', "better cannot be 'higher'"),
        ("loss=([0-9.]+)", "loss=(", "pattern is not a regular expression"),
        ("loss=([0-9.]+)", "loss=[0-9.]+", "pattern must have one group"),
        ('name = "accuracy"', 'name = "energy_j"', "duplicate metric energy_j"),
        ('name = "accuracy"', 'name = "latency_p99_ms"', "what latency_p99_ms means is standard"),
        ('name = "loss"', 'name = "Loss"', "name cannot be 'Loss'"),
        ("default = 16", "default = 17", "default 17 is not in its list"),
        ('role = "batch"', 'role = "bach"', "role cannot be 'bach'"),
        ("THREADS =", '"A-B" =', "env: A-B"),
        ("runs = 3", "run_s = 3", "unknown key 'run_s'"),
    ],
)
def test_an_invalid_service_file_is_refused_with_the_place_of_the_error(
    opened: Opened, old: str, new: str, says: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        opened(changes={old: new})
    assert says in str(caught.value) and "train.toml" in caught.value.message


def test_a_path_without_a_root_is_refused(tmp_path: Path) -> None:
    with raised(InvalidInput, "path"):
        open_workload("command:train.toml", seed=0, state_dir=tmp_path, clock=HostClock())


def test_a_value_that_is_not_listed_is_refused(opened: Opened) -> None:
    side = opened()
    with pytest.raises(OutOfRange):
        side.actuator.apply({"batch": 64, "threads": 2})
    assert side.actuator.read() == side.space.default
