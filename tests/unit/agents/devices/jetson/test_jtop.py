"""jetson-stats in its own process: with a fake of its client, and without a client."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.devices.jetson import jtop
from agents.devices.jetson.diagnosis import examine
from agents.devices.jetson.jtop import ask_jtop, read_report
from tests.boards.fixtures import Mount, boards, mount

__all__ = ["boards", "mount"]
HERE = Path(__file__).parents[5]
CLIENT = """
class JtopException(Exception):
    pass

class Mode(str):
    models = ["MAXN", "MODE_30W"]

class jtop:
    board = {"hardware": {"Model": "NVIDIA Jetson AGX Orin", "Jetpack": "6.1", "L4T": "36.4.0"}}
    power = {"rail": {}, "tot": {"power": POWER, "avg": POWER}}
    temperature = {"gpu": {"temp": 61.5, "online": True}, "cv0": {"temp": -256, "online": False}}
    processes = [[1, "root", "I", "Graphic", 20, "S", 1.0, 1, 2, "infer"]]
    nvpmodel = Mode("MAXN")
    jetson_clocks = CLOCKS

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def ok(self, spin=False):
        return OK
"""


def client(folder: Path, power: int = 54000, clocks: bool = False, ok: str = "True") -> None:
    text = CLIENT.replace("POWER", str(power)).replace("CLOCKS", str(clocks)).replace("OK", ok)
    (folder / "jtop.py").write_text(text)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Yield a folder from which only the probe imports."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(HERE)]))
    monkeypatch.setenv("JOULETUNE_ACTUATOR", str(tmp_path / "nobody.sock"))
    return tmp_path


def test_the_clients_values_come_through_the_probe(folder: Path) -> None:
    client(folder)
    report = ask_jtop()
    assert report.error == ""
    assert (report.model, report.jetpack, report.mode) == ("NVIDIA Jetson AGX Orin", "6.1", "MAXN")
    assert (report.power_w, report.hottest_c, report.gpu_processes) == (54.0, 61.5, 1)
    assert list(report.modes) == ["MAXN", "MODE_30W"] and not report.jetson_clocks


def test_a_host_without_jtop_is_reported_as_such(folder: Path) -> None:
    (folder / "jtop.py").write_text("raise ImportError('no jtop here')\n")
    assert ask_jtop().error == "jetson-stats is not installed here"


def test_an_absent_service_is_reported(folder: Path) -> None:
    client(folder, ok="(_ for _ in ()).throw(JtopException('no service'))")
    assert ask_jtop().error == "the jtop service does not answer: no service"


def test_a_probe_that_hangs_or_breaks_is_given_up(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "jtop.py").write_text("import time; time.sleep(60)\n")
    monkeypatch.setattr(jtop, "DEADLINE_S", 1.0)
    assert ask_jtop().error == "jetson-stats did not answer within 1 s"
    assert "could not be queried" in ask_jtop(python="/bin/false").error


@given(
    st.dictionaries(
        st.sampled_from(["model", "power_mw", "temperatures_c", "modes", "gpu_processes", "error"]),
        st.none()
        | st.integers()
        | st.text()
        | st.lists(st.text())
        | st.dictionaries(st.text(), st.none()),
    )
)
def test_any_answer_is_read_or_left_out(answer: dict[str, object]) -> None:
    report = read_report(answer)
    assert report.power_w is None or isinstance(answer["power_mw"], int)


def test_the_doctor_names_a_rival_and_another_total(mount: Mount, folder: Path) -> None:
    board = mount("orin")
    board.do(manual=True, pass_s=5.0)
    client(folder, power=90000, clocks=True)
    symptoms = {symptom.about: symptom for symptom in examine(board.root)}
    assert (
        "JetPack 6.1, mode MAXN of MAXN, MODE_30W, hottest 62 °C" in symptoms["jetson: jtop"].seen
    )
    assert not symptoms["jetson: jtop runs jetson_clocks"].well
    assert "90.0 W by jtop" in symptoms["jetson: power, two sources"].seen


def test_the_agent_never_imports_it(folder: Path) -> None:
    client(folder)
    rooms = ", ".join(f"agents.devices.jetson.{name}" for name in ("device", "diagnosis", "jtop"))
    script = f"import sys, {rooms}; sys.exit('jtop' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
