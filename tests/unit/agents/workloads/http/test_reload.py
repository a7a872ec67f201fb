"""A service without HTTP: a file and a signal, read back by a command, measured by a program's runs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from agents.host.machine import HostClock
from agents.target.rehearsal import rehearse
from agents.target.side import MeasuresRuns, Restartable, Side
from agents.target.target import Target
from agents.target.window import TargetWindow, Usage
from agents.workloads import open_workload
from tests.contracts.actuator import SettableContract
from tests.errors import raised
from tests.processes import proc, until
from tuner.core import ActuationError, ConfigError, DeviceLost, MeasurementError

SERVICE = """
import os, signal, sys, time
def take_up(*_):
    with open("level.conf") as file: text = file.read()
    with open("new", "w") as file: file.write(text.split()[-1])
    os.rename("new", "in-force")
signal.signal(signal.SIGHUP, take_up)
take_up()
with open("pid", "w") as file: file.write(str(os.getpid()))
while True:
    time.sleep(0.002)
    with open("in-force") as file: level = int(file.read())
    end = time.process_time() + 0.001 * level
    while time.process_time() < end: pass
"""
RUN = """
import json, sys, time
time.sleep(0.2)
end = time.process_time() + 0.1
while time.process_time() < end: pass
with open("in-force") as file: level = int(file.read())
print("done: 50 items"); print(json.dumps({"wait": {"ms": level / 2}}))
"""
FILE = """
name = "packer"
version = "3"

[process]
pid_file = "{folder}/pid"
program = "{program}"

[[knob]]
name = "level"
values = [1, 3, 9]
default = 9
seconds = 30
write = {{ file = "{folder}/level.conf", text = "level {{value}}\\n" }}
read = {{ command = ["cat", "{folder}/in-force"], pattern = '([0-9]+)' }}

[reload]
signal = "HUP"

[load]
run = [{python}, "-c", {run}]
runs = 3
folder = "{folder}"

[load.items]
pattern = 'done: ([0-9]+) items'

[[load.metric]]
name = "wait_ms"
json = "wait.ms"
better = "less"
"""


class Packer:
    """The service in a folder, and the sides that its file makes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "packer.toml"
        self.in_force = folder / "in-force"
        self.sides: list[Side] = []
        self.processes: list[subprocess.Popen[bytes]] = []
        (folder / "level.conf").write_text("level 9\n")
        self.start()
        self.text = FILE.format(
            folder=folder,
            program=proc(self.processes[0].pid, "comm").strip(),
            python=json.dumps(sys.executable),
            run=json.dumps(RUN),
        )

    def start(self) -> None:
        pid = self.folder / "pid"
        process = subprocess.Popen([sys.executable, "-c", SERVICE], cwd=self.folder)
        self.processes.append(process)
        until(lambda: pid.exists() and pid.read_text() == str(process.pid), "it does not start")

    def open(self, **changes: str) -> Side:
        text = self.text
        for old, new in changes.items():
            assert old in text
            text = text.replace(old, new)
        return self.by(text)

    def by_unit(self, unit: str, **changes: str) -> Side:
        """Open the service with a systemd unit in place of the written file."""
        start, end = self.text.index("write = {"), self.text.index("[reload]")
        return self.open(**{self.text[start:end]: f"unit = {{ {unit} }}\n", **changes})

    def by(self, text: str) -> Side:
        self.file.write_text(text)
        spec = f"service:{self.file}"
        self.sides.append(open_workload(spec, seed=0, state_dir=self.folder, clock=HostClock()))
        return self.sides[-1]

    def close(self) -> None:
        for side in self.sides:
            side.close()
        for process in self.processes:
            process.kill()
            process.wait()


@pytest.fixture
def packer(tmp_path: Path) -> Iterator[Packer]:
    with closing(Packer(tmp_path)) as running:
        yield running


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Packer]:
    """Yield a service whose files are refused, so that nothing happens to it."""
    with closing(Packer(tmp_path_factory.mktemp("untouched"))) as running:
        yield running


@pytest.fixture
def side(packer: Packer) -> Side:
    return packer.open()


class TestKnobs(SettableContract):
    pass


def test_a_signal_reloads_the_service_and_a_command_reads_the_value(packer: Packer) -> None:
    side, written = packer.open(), packer.folder / "level.conf"
    written.chmod(0o604)
    side.actuator.apply({"level": 3})
    assert packer.in_force.read_text() == "3"
    assert side.actuator.read() == {"level": 3}
    assert not side.unproven
    assert written.stat().st_mode & 0o777 == 0o604


def test_whole_runs_are_a_window_and_the_cpu_time_is_the_services(side: Side) -> None:
    assert isinstance(side.meter, MeasuresRuns)
    target, clock = Target((), side), HostClock()
    window = TargetWindow(target, clock, Usage(2, lambda: 0.0))
    for _ in range(3):
        while not window.wait(1.0):
            pass
        window.read()
    window.stop()
    shown = window.estimates()
    assert shown.keys() == {metric.name for metric in side.metrics}
    assert window.total("items") == 150.0
    assert shown["wait_ms"].mean == 4.5
    load_s, service_s = window.total("load_cpu_s"), window.total("cpu_s")
    assert load_s is not None and load_s > 0.25
    assert service_s is not None and service_s > 0.2
    assert shown["cpu_time_ms"].mean == pytest.approx(1000.0 * service_s / 150.0)


@pytest.mark.promise(
    "a PID file is stale, a log is rotated or truncated, or a service restarts during a window"
)
def test_a_service_that_is_started_again_is_another_and_spoils_its_window(packer: Packer) -> None:
    side = packer.open()
    assert isinstance(side.actuator, Restartable)
    before, window = side.actuator.incarnation(), side.meter.start()
    packer.start()
    assert side.actuator.incarnation() != before
    with raised(MeasurementError, "window"):
        window.read()


def test_a_service_that_has_ended_gets_no_signal(packer: Packer) -> None:
    side = packer.open()
    packer.processes[0].kill()
    packer.processes[0].wait()
    with pytest.raises(DeviceLost, match="is not running"):
        side.actuator.apply({"level": 3})
    assert (packer.folder / "level.conf.pending").exists()


def test_a_service_that_does_not_take_it_up_is_an_error(packer: Packer) -> None:
    side = packer.open(**{'"HUP"': '"USR2"', "seconds = 30": "seconds = 0.3"})
    with pytest.raises(ActuationError):  # USR2 ends it: it has no handler
        side.actuator.apply({"level": 3})


@pytest.mark.promise(
    "a knob cannot be read back",
    "the report lists it as unproven and its effect is tested; the kernel's value "
    "outranks systemd's",
)
def test_a_value_without_readback_is_reported_and_its_effect_checked(packer: Packer) -> None:
    read = f"""read = {{ command = ["cat", "{packer.in_force}"], pattern = '([0-9]+)' }}"""
    side = packer.open(**{read: "", "seconds = 30": "seconds = 0.1"})
    assert "the service does not report it" in side.unproven["level"]
    assert "proof of level" in Target((), side).cannot
    symptoms = {symptom.about: symptom for symptom in rehearse(side, HostClock(), 0.1)}
    effect = symptoms["effect of level"]
    assert effect.well and "9 → 1: " in effect.seen and "wait_ms 4.5 → 0.5" in effect.seen
    assert packer.in_force.read_text() == "9"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('signal = "HUP"', 'signal = "KILL"', "the signal 'KILL' cannot reload a service"),
        ('signal = "HUP"', "", "one of them; add command"),
        ("[process]", "[other]", "unknown key 'other'"),
        ('program = "', 'programs = "', "did you mean program?"),
        ('pid_file = "/', 'pid_file = "', "pid_file must be an absolute path"),
        ('pid_file = "', 'unit = "a.service"\npid_file = "', "a unit needs no other keys"),
        ('pid_file = "', 'port = 80\npid_file = "', "a port needs no other keys"),
        *(('pid_file = "', f'port = {n}\npid_file = "', "1 to 65535") for n in (0, -5, 70000)),
        ("runs = 3", "runs = 2", "not 2; the standard error of a window"),
        ("runs = 3", "timeout_s = 0", "timeout_s must be above 0"),
        ("runs = 3", "env = { 'A=B' = 'c' }", "env: A=B = 'c' is not valid; write NAME"),
        ('"cat", ', '"c\\u0000at", ', "a command is a list of words"),
        ('signal = "HUP"', 'signal = "HUP"\nseconds = 0', "seconds must be above 0, not 0"),
        ("[load.items]\npattern", "[load.item]\npattern", "did you mean items?"),
        ("'done: ([0-9]+) items'", "'done'", "pattern must have one group"),
        ("'([0-9]+)' }", "'[0-9]+' }", "pattern must have one group"),
        ('read = { command = ["cat"', 'read = { path = "/a", command = ["cat"', "has no path"),
        ("read = {", "unit = {name='a.service',property='CPUWeight'}\nread = {", "one of them"),
        ("seconds = 30", "seconds = 30\nrestart = true", "needs a restart, but there is no"),
        ("[reload]", "[restart]\ncommand = 'ls'\n[reload]", "command must be a list"),
        ('name = "wait_ms"', 'name = "latency_ms"', "duplicate metric latency_ms"),
        ("[reload]", "[reload]\nready = '/up'", "has no url, and ready in [reload] needs one"),
        ("[reload]", "[latency]\nhistogram='a'\n[reload]", "has no url, and [latency] needs one"),
        ("[reload]", "[signal]\nname='a'\ngauge='a'\n[reload]", "no counters of the service"),
        (
            "[reload]",
            "[[json]]\nname='wait_ms'\npath='/'\njson='a'\n[reload]",
            "has no url, and [json] needs one",
        ),
    ],
)
def test_an_invalid_service_file_is_refused_with_the_place_of_the_error(
    untouched: Packer, old: str, new: str, says: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        untouched.open(**{old: new})
    assert says in str(caught.value) and "packer.toml" in caught.value.message


@pytest.mark.parametrize(
    ("unit", "says"),
    [
        ('name = "*.service", property = "CPUQuota"', "is not a systemd unit"),
        ('name = "--help.service", property = "CPUQuota"', "is not a systemd unit"),
        ('name = "a.timer", property = "CPUQuota"', "is not a systemd unit"),
        ('name = "a.service", property = "ExecStart"', "property cannot be 'ExecStart'"),
        ('name = "a.service", property = "CPUQuotas"', "choose 'CPUQuota'"),
        ('name = "a.service", property = "AllowedCPUs", x = 1', "unknown key 'x'"),
    ],
)
def test_an_invalid_unit_is_refused(untouched: Packer, unit: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        untouched.by_unit(unit)
    assert says in str(caught.value)


@pytest.mark.parametrize("value", ["0", "1.5", "-1", "true", '"50 MemoryMax=1"', '"50%"'])
def test_a_units_values_are_numbers_or_infinity(untouched: Packer, value: str) -> None:
    with raised(ConfigError, "CPUQuota"):
        untouched.by_unit(
            'name = "a.service", property = "CPUQuota"', **{"[1, 3, 9]": f"[9, {value}]"}
        )
