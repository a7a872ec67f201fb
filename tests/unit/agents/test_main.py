from __future__ import annotations

import platform
import socket
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest

import agents.main
from agents.agent.loop import DeviceAgent
from agents.config import AgentConfig, Attachment, load_agent_config
from agents.devices import catalogue
from agents.main import (
    _serving_metrics,
    device_ids,
    open_target,
    refuse_shared,
    serve,
    wait_for_device,
)
from agents.target.side import Side
from tests.errors import raised
from tests.fakes import Rig
from tests.processes import reserved_port, run_to_end
from tests.unit.agents.left_behind import hold
from tuner.core import (
    ConfigError,
    DeviceLost,
    InvalidInput,
    LinkError,
    Setting,
    TuningError,
    Unauthorised,
)

HEAVY = ("torch", "numpy", "sqlalchemy", "scipy", "pandas", "botorch", "fastapi")
A100 = Attachment("simulated:a100")
ORIN = Attachment("simulated:orin")
DEVICE = "simulated-a100@host"


def configured(folder: Path, *devices: Attachment, **terms: Any) -> AgentConfig:  # noqa: ANN401
    """Return the configuration of an agent with a token, whose tuner does not answer."""
    (folder / "token").write_text("secret")
    given = {"tuner": "http://127.0.0.1:9", "token_file": folder / "token", **terms}
    return AgentConfig(state_dir=folder / "state", devices=devices or (A100,), **given)


def test_the_agent_stays_light() -> None:
    code = f"""
import sys
import agents.main, agents.devices, agents.workloads
from agents.main import open_target
from agents.agent.loop import DeviceAgent
from agents.target.side import Side
from agents.config import Attachment
from pathlib import Path
import tempfile
with tempfile.TemporaryDirectory() as folder:
    open_target(Attachment("simulated:a100"), "d", 0, Path(folder), Path("/")).close()
    open_target(Attachment("cpu"), "c", 0, Path(folder), Path("/")).close()
print([name for name in {HEAVY!r} if name in sys.modules])
"""
    printed = run_to_end([sys.executable, "-c", code], check=True, timeout=60)
    assert printed.stdout.strip() == "[]"


def test_ids_are_stable_unlike_and_fit_for_a_url() -> None:
    devices = [
        Attachment("simulated:a100/bert"),
        Attachment("simulated:a100/bert"),
        Attachment("replay:../data/table.csv#jetson"),
        Attachment("cpu", "reference"),
    ]
    assert device_ids(devices, "host") == [
        "simulated-a100-bert@host",
        "simulated-a100-bert~2@host",
        "replay-..-data-table.csv-jetson@host",
        "cpu@host",
    ]


@pytest.mark.parametrize(
    ("attachment", "message"),
    [
        (Attachment("toaster"), "toaster"),
        (Attachment("simulated:a100", "no-such"), "no-such"),
    ],
)
def test_a_device_that_cannot_be_opened_ends_the_agent_at_its_start(
    tmp_path: Path, attachment: Attachment, message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        serve(configured(tmp_path, A100, attachment), threading.Event())


def test_a_device_that_cannot_be_parked_is_closed_and_ends_the_agent_at_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tmp_path)
    monkeypatch.setattr(agents.main, "open_target", lambda *_: rig.target)
    parked = Attachment("fake", "served", park_after_s=30.0, park_added_ms=600.0)
    with raised(InvalidInput, "park_after_s needs a workload"):
        serve(configured(tmp_path, parked), threading.Event())
    assert sorted(rig.closed) == ["device", "workload"]


def test_a_missing_token_ends_the_agent(tmp_path: Path) -> None:
    with raised(Unauthorised, "nowhere"):
        serve(configured(tmp_path, token_file=tmp_path / "nowhere"), threading.Event())


def test_a_stop_ends_the_agent_though_no_tuner_is_there(tmp_path: Path) -> None:
    config = configured(tmp_path)
    stop = threading.Event()
    failed: list[BaseException] = []

    def work() -> None:
        try:
            serve(config, stop)
        except LinkError as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    stop.set()
    thread.join(timeout=10.0)
    assert not thread.is_alive() and failed == []


def test_a_device_loop_that_fails_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = threading.Event()
    steps: list[str] = []
    step = DeviceAgent.step

    def broken(agent: DeviceAgent) -> None:
        steps.append(agent.device.id.split("@")[0])
        if steps.count("simulated-orin") >= 2:
            stop.set()
        if steps[-1] == "simulated-a100":
            raise ZeroDivisionError("a bug")
        step(agent)

    monkeypatch.setattr(DeviceAgent, "step", broken)
    with raised(TuningError, "simulated-a100@"):
        serve(configured(tmp_path, A100, ORIN), stop)
    assert steps.count("simulated-a100") == 1


@pytest.mark.parametrize(("name", "shown"), [("board-7", "board-7"), ("", platform.node())])
def test_agent_and_devices_are_called_by_the_name_that_is_given_or_the_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, shown: str
) -> None:
    stop = threading.Event()
    met: list[tuple[str, str]] = []

    def step(agent: DeviceAgent) -> None:
        met.append((agent.device.id, agent.device.agent))
        stop.set()

    monkeypatch.setattr(DeviceAgent, "step", step)
    serve(configured(tmp_path, name=name), stop)
    assert met == [(f"simulated-a100@{shown}", f"agent@{shown}")]


def test_a_device_that_answers_later_is_worked_when_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then the other devices work; its hold is resumed once the device answers."""
    before = hold(tmp_path / "state", datetime.now(UTC))
    target = open_target(A100, DEVICE, 0, tmp_path / "state", Path("/"))
    held = target.read()
    target.apply(before)
    opened = threading.Event()
    stop = threading.Event()
    open = catalogue.open_device
    steps: list[tuple[str, Setting]] = []

    def late(spec: str, **options: Any) -> Side:  # noqa: ANN401
        if spec == A100.spec and not opened.is_set():
            raise DeviceLost("it does not answer")
        return open(spec, **options)

    def step(agent: DeviceAgent) -> None:
        steps.append((agent.device.id, agent._target.read()))
        opened.set()
        if agent.device.id == DEVICE:
            stop.set()
        stop.wait(0.01)

    monkeypatch.setattr(catalogue, "open_device", late)
    monkeypatch.setattr(DeviceAgent, "step", step)
    ended = threading.Timer(30.0, stop.set)
    ended.start()
    serve(configured(tmp_path, A100, ORIN, name="host", root=tmp_path), stop)
    ended.cancel()
    assert steps[0][0] == "simulated-orin@host"
    assert steps[-1] == (DEVICE, held)


def test_an_agent_none_of_whose_devices_answers_waits_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stop = threading.Event()
    tries: list[str] = []

    def away(spec: str, **_: object) -> Side:
        tries.append(spec)
        if len(tries) > 2:
            stop.set()
        raise DeviceLost("it does not answer")

    monkeypatch.setattr(catalogue, "open_device", away)
    serve(configured(tmp_path), stop)
    assert len(tries) >= 3
    assert "event=not_opened" in caplog.text


def test_a_device_is_part_of_one_target_or_refused_by_name() -> None:
    refuse_shared([Attachment("nvidia:0+cpu"), Attachment("nvidia:1")])
    refuse_shared([Attachment("cpu", "reference"), Attachment("cpu", "http://127.0.0.1:8000")])
    with raised(ConfigError, "nvidia:0+cpu"):
        refuse_shared([Attachment("nvidia:0+cpu"), Attachment("nvidia:1+cpu")])


def test_several_devices_are_opened_as_one_and_closed_if_one_fails(tmp_path: Path) -> None:
    target = open_target(Attachment("cpu"), "d", 0, tmp_path, Path("/"))
    assert list(target.sides) == ["cpu"]
    target.close()
    with pytest.raises(ConfigError, match="simulated time"):
        open_target(Attachment("simulated:a100+cpu"), "d", 0, tmp_path, Path("/"))


def test_a_port_of_figures_that_is_taken_is_logged_and_keeps_no_device_waiting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    around = Rig(tmp_path).agent().around
    port = reserved_port()
    where = f"127.0.0.1:{port}"
    with (
        socket.create_server(("127.0.0.1", port)),
        _serving_metrics(AgentConfig(devices=(A100,), metrics=where), [], around),
    ):
        assert "event=metrics_not_served" in caplog.text
        assert where in caplog.text
    with _serving_metrics(AgentConfig(devices=(A100,), metrics=where), [], around):
        assert "jouletune_agent_build_info" in httpx2.get(f"http://{where}/metrics").text


def test_an_agent_without_a_device_is_ready_and_searches_until_it_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    notices: list[str] = []
    monkeypatch.setattr(agents.main, "notify", notices.append)
    monkeypatch.setattr(agents.main, "LOOK_S", 0.01)
    file, looks = tmp_path / "agent.toml", list[int]()
    file.write_text("seed = 1\n")

    def read() -> AgentConfig:
        looks.append(1)
        if len(looks) == 3:
            file.write_text("seed = 1\n[[device]]\nworkload = 'w'\n")
        if len(looks) == 4:
            file.write_text("seed = 1\n[[device]]\nspec = 'cpu'\n")
        return load_agent_config(file)

    config = wait_for_device(read)
    assert config is not None and config.devices == (Attachment("cpu"),)
    assert notices[0].startswith("READY=1") and "no device" in notices[0]
    assert len([text for text in notices if text.startswith("READY")]) == 1
    assert "[[device]]" in caplog.text
    assert "has no spec" in caplog.text


def test_a_stop_ends_the_wait_for_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = threading.Event()

    def read() -> AgentConfig:
        stop.set()
        return AgentConfig(devices=())

    assert wait_for_device(read, stop) is None


def test_a_wrong_configuration_is_not_waited_out() -> None:
    with pytest.raises(ConfigError, match="tuner cannot be"):
        wait_for_device(lambda: AgentConfig(devices=(Attachment("cpu"),), tuner="h:1"))
