"""The root process itself, its fake devices in a file, and how small it is."""

from __future__ import annotations

import ast
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from unittest import mock

import pytest

from agents.actuator.grants import DRIVERS
from agents.actuator_client.client import open_remote
from agents.actuator_client.line import ActuatorClient
from agents.devices.fake import knobs as fake
from agents.host.machine import HostClock
from tests.actuation import answers
from tests.ledger import root_process
from tests.processes import proc, run_to_end
from tests.unit.agents.actuator.site import CLOCK, FACTORY, GPU, HERE, LIMIT, TRIED, Site
from tuner.cli.app import main as jouletune
from tuner.cli.host import doctor
from tuner.core import Conflict, DeviceLost

MOST_MIB = 40


def test_the_actuator_is_small_and_restores_at_its_end(site: Site) -> None:
    process = site.serve()
    remote = site.remote()
    remote.apply(TRIED)
    remote.hold(TRIED, "s1", 1, 1000.0)
    assert site.values == {**FACTORY, **TRIED}
    status = proc(process.pid, "status")
    (resident,) = [line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")]
    assert int(resident) / 1024 < MOST_MIB
    process.send_signal(signal.SIGTERM)
    assert process.wait(10.0) == 0
    assert site.values == FACTORY


def test_a_killed_actuator_leaves_the_restore_to_the_next_one(site: Site) -> None:
    process = site.serve()
    remote = site.remote()
    remote.apply(TRIED)
    process.kill()
    process.wait()
    assert site.values == {**FACTORY, **TRIED}
    for _ in range(2):
        assert site.start("restore").wait(20.0) == 0
        assert site.values == FACTORY


def test_an_administrator_takes_devices_out_of_their_budgets(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    floor = '[device.budget]\nfloor = { "gpu.power_limit_w" = 150 }\n'
    site.config.write_text(site.config.read_text() + floor)
    process = site.serve()
    steps = [{"in_s": 0.0, "cap_w": 300.0, "at_most": {LIMIT: 300}}]
    with closing(ActuatorClient(site.socket)) as line:
        line.ask("cap", device=GPU, group="rack", revision=1, steps=steps)
    assert site.values == {**FACTORY, LIMIT: 150}
    common = ["--config", str(site.config), "--socket", str(site.socket)]
    assert jouletune(["actuator", "status", *common]) == 0
    assert "rack" in capsys.readouterr().out
    assert jouletune(["actuator", "leave-budget", GPU, *common]) == 0
    assert site.values == FACTORY
    with closing(ActuatorClient(site.socket)) as line:
        line.ask("cap", device=GPU, group="rack", revision=1, steps=steps)
    process.kill()
    process.wait()
    assert site.start("leave").wait(20.0) == 0
    assert site.values == FACTORY


def test_restore_reports_by_its_code_that_something_is_left(site: Site) -> None:
    site.killed_in_a_trial()
    site.fault({CLOCK: "refuse"})
    assert site.start("restore").wait(20.0) == 1
    assert site.values == {**FACTORY, CLOCK: 810}
    assert "refuses gpu.clock_mhz" in site.log


def test_a_driver_that_hangs_does_not_hang_it(site: Site) -> None:
    site.configure('"gpu.clock_mhz" = { min = 600, max = 1410 }', "deadline_s = 0.3")
    site.serve()
    remote = site.remote()
    site.fault({CLOCK: "hang"})
    with pytest.raises(DeviceLost, match="did not answer"):
        remote.apply(TRIED)
    assert remote.read()[LIMIT] == 400
    site.fault({})
    site.until(lambda: site.values == FACTORY)


def test_two_actuators_do_not_run_at_once(site: Site) -> None:
    site.serve()
    for verb in ("serve", "restore"):
        assert site.start(verb).wait(20.0) == 1
    assert "another actuator" in site.log


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("leases = 3", "unknown key"),
        ("agent_grace_s = -1", "agent_grace_s"),
        ("lease_s = ", "TOML"),
        ('drivers = ["nvidea"]', "TOML"),
    ],
)
def test_a_configuration_that_cannot_be_read_is_refused_after_all_was_put_back(
    site: Site, more: str, says: str
) -> None:
    site.killed_in_a_trial()
    site.configure('"gpu.clock_mhz" = { min = 600, max = 1410 }', more)
    # As under systemd: an unreadable configuration does not name the journal's folder.
    assert site.start(STATE_DIRECTORY=str(site.folder / "state")).wait(20.0) == 2
    assert says in site.log
    assert site.values == FACTORY


@pytest.mark.parametrize(
    ("grant", "says"),
    [
        ('"gpu.clock_mhz" = { min = 10, max = 1410 }', "it supports 210 to 1410"),
        ('"gpu.clock" = { min = 10, max = 1410 }', "its knobs: gpu.clock_mhz"),
    ],
)
def test_a_grant_that_fits_nothing_is_an_error_and_ends_nothing_else(
    site: Site, grant: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    site.configure(grant)
    site.serve()
    remote = site.remote()
    remote.apply({LIMIT: 250})
    assert site.console("status") == 1
    shown = capsys.readouterr().out
    assert "error: GPU-1: gpu.clock" in shown and says in shown
    assert "may be set: gpu.power_limit_w 150 to 350" in shown
    assert jouletune(["actuator", "status", "--socket", str(site.socket), "--json"]) == 1
    assert says in json.loads(capsys.readouterr().out)["errors"][0]
    with mock.patch.dict(os.environ, JOULETUNE_ACTUATOR=str(site.socket)):
        findings = [f for f in doctor.examine(site.folder, "") if f.about == "actuator: grants"]
    (finding,) = findings
    assert not finding.there and says in finding.seen and "actuator.toml" in finding.hint


def test_a_restore_needs_only_the_journal(site: Site) -> None:
    """The configuration is missing, and with it the fail-safe that only it declared."""
    site.configure('"gpu.clock_mhz" = { min = 600, max = 1410 }')
    with site.config.open("a") as file:
        file.write('[device.failsafe]\n"gpu.power_limit_w" = 350\n')
    site.killed_in_a_trial()
    site.config.unlink()
    assert site.start("restore").wait(20.0) == 0
    assert site.values == {**FACTORY, LIMIT: 350}


def test_on_a_read_only_disk_the_device_is_restored_too(site: Site) -> None:
    site.killed_in_a_trial()
    state = site.folder / "state"
    site.config.write_text("this is = no TOML at all")
    with read_only(state):
        assert site.start("restore").wait(20.0) == 1  # the journal is kept, and reported
    assert site.values == FACTORY
    assert "cannot write the journal" in site.log
    assert site.start("restore").wait(20.0) == 0
    assert not list(state.glob("*.json"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
def test_the_folder_is_that_of_the_last_serve_unless_one_is_given(site: Site) -> None:
    site.killed_in_a_trial()
    bare = [sys.executable, "-m", "agents.actuator.main", "restore"]
    environ = {k: v for k, v in os.environ.items() if k != "STATE_DIRECTORY"}
    environ |= {"PYTHONSAFEPATH": "1", "PYTHONPATH": str(HERE)}
    elsewhere = {**environ, "STATE_DIRECTORY": str(site.folder / "none")}
    assert subprocess.run(bare, env=elsewhere, check=False).returncode == 0
    assert site.values == {**FACTORY, **TRIED}
    assert subprocess.run(bare, env=environ, check=False).returncode == 0
    assert site.values == FACTORY


def test_a_file_in_place_of_the_folder_is_refused_after_all_was_put_back(site: Site) -> None:
    site.killed_in_a_trial()
    command = [sys.executable, "-m", "agents.actuator.main", "restore", str(site.config)]
    environ = {
        "PYTHONSAFEPATH": "1",
        "PYTHONPATH": str(HERE),
        "STATE_DIRECTORY": str(site.folder / "state"),
    }
    done = subprocess.run(command, env={**os.environ, **environ}, check=False)
    assert done.returncode == 2
    assert site.values == FACTORY


def test_two_actuators_with_different_folders_share_no_device(
    site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = site.serve()
    remote = site.remote()
    remote.apply(TRIED)
    second = tmp_path / "second.toml"
    text = site.config.read_text().replace("/state", "/other").replace("/socket", "/second")
    second.write_text(text)
    other = site.start(config=second)
    site.until(lambda: answers(tmp_path / "second"))
    assert jouletune(["actuator", "status", "--config", str(second)]) == 0
    assert "GPU-1: another actuator on this host uses GPU-1" in capsys.readouterr().out
    assert site.values == {**FACTORY, **TRIED}
    remote.close()
    first.terminate()
    first.wait(20.0)
    with closing(ActuatorClient(tmp_path / "second")) as line:
        site.until(lambda: line.ask("capabilities")["devices"])  # the search is repeated
    other.terminate()
    assert other.wait(20.0) == 0
    assert site.values == FACTORY


def test_a_removed_socket_is_made_again(site: Site) -> None:
    site.serve()
    site.socket.unlink()
    site.until(lambda: answers(site.socket))
    site.until(lambda: site.mode == 0o660)
    assert site.mode == 0o660


def test_without_its_journal_nothing_is_called_the_original(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.killed_in_a_trial()
    shutil.rmtree(site.folder / "state")
    site.serve()
    assert site.console("status") == 0
    shown = capsys.readouterr().out
    assert "deleted" in shown and "unknown" in shown and "original" not in shown
    assert site.values == FACTORY, "its defaults, as for a damaged journal"


def test_without_a_journal_after_a_boot_a_limit_other_than_the_default_is_not_the_original(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.killed_in_a_trial()
    shutil.rmtree(site.folder / "state")
    (Path(os.environ["JOULETUNE_RUN"]) / "journal" / GPU).unlink()
    site.serve()
    assert site.console("status") == 0
    shown = capsys.readouterr().out
    assert "gpu.power_limit_w was 250 when first read, its default is 400" in shown
    assert "original" not in shown


def test_systemd_is_notified(site: Site) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(site.folder / "notify"))
        receiver.settimeout(10.0)
        site.start(NOTIFY_SOCKET=str(site.folder / "notify"))
        lines = [receiver.recv(200)]
        while lines[-1] != b"READY=1":  # it also notifies the watchdog while drivers initialise
            lines.append(receiver.recv(200))
        assert {line.split(b"\n")[0] for line in lines[:-1]} == {b"WATCHDOG=1"}
        assert receiver.recv(200) == b"WATCHDOG=1\nSTATUS=GPU-1: original"


def test_the_socket_is_its_groups_alone(site: Site) -> None:
    site.serve()
    assert site.socket.is_socket()
    site.until(lambda: site.mode == 0o660)  # it exists a moment earlier
    assert site.mode == 0o660


def test_the_console_shows_the_progress(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.serve()
    remote = site.remote()
    remote.apply(TRIED)
    assert site.console("status") == 0
    shown = capsys.readouterr().out
    assert "GPU-1" in shown and "trial" in shown and "gpu.clock_mhz=810" in shown
    assert "may be set: gpu.clock_mhz 630 to 1410, gpu.power_limit_w 150 to 350" in shown
    assert "no device matches" not in shown
    with site.config.open("a") as file:
        file.write('[[device]]\nmatch = "GPU-7*"\n')
    assert site.console("status") == 1
    assert "no device matches 'GPU-7*'; there are: GPU-1" in capsys.readouterr().out
    assert jouletune(["actuator", "status", "--socket", str(site.socket), "--json"]) == 0
    (device,) = json.loads(capsys.readouterr().out)["devices"]
    assert (device["level"], device["values"][LIMIT]) == ("trial", 250)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root restores")
def test_an_operator_ends_a_pause_while_it_runs(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.serve()
    remote = site.remote()
    remote.apply(TRIED)
    state = fake.load(site.hardware)
    state["devices"][GPU]["values"][LIMIT] = 222
    fake.save(site.hardware, state)
    remote.beat()
    with pytest.raises(Conflict) as refused:
        remote.apply(TRIED)
    message = str(refused.value)
    assert "another program set gpu.power_limit_w to 222 instead of 250" in message
    assert f"jouletune actuator restore {GPU}" in message
    assert site.console("restore", GPU) == 0
    assert capsys.readouterr().out == f"{GPU}: original\n"
    remote.apply(TRIED)
    remote.release()
    assert site.values == {**FACTORY, LIMIT: 222}
    remote.close()
    site.fault({CLOCK: "refuse"})
    assert site.console("restore", "GPU-9") != 0
    assert "there is no device 'GPU-9'" in capsys.readouterr().err


def test_a_device_that_hangs_holds_up_no_other(site: Site) -> None:
    other = "GPU-2"
    fake.save(site.hardware, fake.blank(GPU, other))
    site.configure('"gpu.clock_mhz" = { min = 600, max = 1410 }', "deadline_s = 4.0")
    site.serve()
    hung, kept = (open_remote(site.socket, uuid, HostClock()) for uuid in (GPU, other))
    kept.apply(TRIED)
    site.fault({"*": "hang"})
    began = time.monotonic()
    with ThreadPoolExecutor() as pool:
        refused = pool.submit(hung.apply, TRIED)
        time.sleep(0.2)
        while time.monotonic() - began < 3.0:
            assert kept.read() == TRIED
            time.sleep(0.1)
        kept.close()
        site.until(lambda: fake.load(site.hardware)["devices"][other]["values"] == FACTORY)
        assert time.monotonic() - began < 4.0
        assert not refused.done()
        with pytest.raises(DeviceLost, match="did not answer within 4 s"):
            refused.result()
    hung.close()


def test_prometheus_shows_the_applied_settings(site: Site) -> None:
    file, process = site.folder / "jouletune.prom", site.serve()
    remote = site.remote()
    remote.apply(TRIED)
    command = ["actuator", "metrics", str(file), "--config", str(site.config)]
    assert jouletune(command) == 0
    metrics = file.read_text().splitlines()
    assert "jouletune_actuator_up 1.0" in metrics
    assert f'jouletune_device_level{{device="{GPU}",level="trial"}} 1.0' in metrics
    assert f'jouletune_device_level{{device="{GPU}",level="hold"}} 0.0' in metrics
    assert f'jouletune_knob{{device="{GPU}",knob="{LIMIT}"}} 250.0' in metrics
    assert f'jouletune_device_wrong{{device="{GPU}"}} 0.0' in metrics
    assert f'jouletune_device_altered_without_lease{{device="{GPU}"}} 0.0' in metrics
    remote.close()
    process.kill()
    process.wait()
    assert jouletune(command) == 0
    samples = [line for line in file.read_text().splitlines() if not line.startswith("#")]
    assert samples == ["jouletune_actuator_up 0.0"]


def test_without_an_actuator_the_console_reports_that(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    assert site.console("status") == 1
    assert "does not answer" in capsys.readouterr().err


def test_the_console_becomes_the_bare_process(site: Site) -> None:
    command = "import sys; from tuner.cli.app import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", command, "actuator", "restore", "--config", str(site.config)],
        env={**os.environ, "PYTHONPATH": str(HERE)},
        check=False,
    )
    assert done.returncode == 0


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Mount a read-only folder; skip the test if mounting is not permitted."""
    bound = subprocess.run(["mount", "--bind", str(folder), str(folder)], check=False)
    if bound.returncode:
        pytest.skip("a read-only disk is a bind mount: needs root and CAP_SYS_ADMIN")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", str(folder)], check=True)
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize("driver", sorted({*DRIVERS} - {"fake"}))
def test_the_root_process_loads_only_nvml_and_files_that_the_ledger_counts(driver: str) -> None:
    module = f"agents.devices.{driver}.knobs"
    script = (
        f"import agents.actuator.main, {module}, sys\n"
        "print([(n, getattr(x, '__file__', None)) for n, x in sys.modules.items()])"
    )
    done = run_to_end([sys.executable, "-c", script], check=True, cwd=HERE)
    ours = set()
    for name, file in ast.literal_eval(done.stdout):
        top = name.split(".")[0]
        if top in ("agents", "tuner", "policies", "db"):
            ours.add(str(Path(file).relative_to(HERE)))
        elif "site-packages" in (file or ""):
            assert top in ("pynvml", "tomli", "_virtualenv") or top.startswith(
                ("__editable__", "_distutils")
            )
    assert {"agents/actuator/device.py", f"agents/devices/{driver}/knobs.py"} <= ours
    assert ours <= root_process(HERE, driver)
