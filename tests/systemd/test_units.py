"""A service's flag under a real systemd: tuned with a GPU's clock, killed, rebooted, removed.

One machine, in the order of the file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.nvml.fake import A100
from tests.systemd.machine import STEPS_S
from tests.systemd.test_services import DESK, INSTALL, ORIGINAL, SERVICES, Site, booted_site

pytestmark = pytest.mark.timeout(STEPS_S)

UNIT = "answers.service"
FOLDER = f"/run/systemd/system/{UNIT}.d"
PROGRAM = """
import sys, time
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

rounds, began = int(sys.argv[sys.argv.index("--rounds") + 1]), time.time()
time.sleep(1.0)  # it does not answer as soon as systemd has started it


class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = f"# TYPE process_start_time_seconds gauge\\nprocess_start_time_seconds {began}\\n"
        if self.path == "/work":
            word = b"x" * 20000
            for _ in range(rounds):
                word = sha256(word).digest() * 600
            body = "done"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_):
        pass


ThreadingHTTPServer(("127.0.0.1", 8123), Answers).serve_forever()
"""
COMMAND = "/usr/bin/python3 /opt/answers.py --rounds 800"
SERVICE = f"""
[Service]
ExecStart={COMMAND}
Restart=on-failure
RestartSec=1
[Install]
WantedBy=multi-user.target
"""
WORKLOAD = """
name = "answers"
url = "http://127.0.0.1:8123"
version = "1"
[load]
path = "/work"
method = "GET"
callers = 1
"""
ACTUATOR = f"""
drivers = ["nvidia", "unit:{UNIT}"]
lease_s = 3.0
agent_grace_s = 45.0
min_restart_s = 0.1
[[device]]
match = "{A100}"
[device.grant]
"gpu.clock_mhz" = {{ min = 1200, max = 1410 }}
[[device]]
match = "unit:{UNIT}"
[device.grant]
"--rounds" = [50, 100, 800]
"""
AGENT = f"""
[[device]]
spec = "nvidia:0+unit:{UNIT}"
workload = "service:/etc/jouletune/answers.toml"
"""
SET = """
from pathlib import Path
from agents.actuator_client.client import open_remote
from agents.host.machine import HostClock
knobs = open_remote(Path("/run/jouletune/actuator.sock"), "unit:answers.service", HostClock())
knobs.apply({"--rounds": 50})
"""


class UnitSite(Site):
    """A machine with a fake GPU, and a service whose flag sets the work per answer."""

    def configure(self) -> None:
        super().configure()
        self.machine.write("/etc/jouletune/actuator.toml", ACTUATOR)
        agent = self.machine.root / "etc/jouletune/agent.toml"
        agent.write_text(agent.read_text().partition("\n[[device]]\n")[0] + AGENT)
        self.machine.write("/etc/jouletune/answers.toml", WORKLOAD)

    def serve(self) -> None:
        """Install the service, which starts at every boot."""
        self.machine.write("/opt/answers.py", PROGRAM)
        self.machine.write(f"/etc/systemd/system/{UNIT}", SERVICE)
        self.systemctl("daemon-reload")
        self.systemctl("enable", "--now", UNIT)

    @property
    def protects(self) -> bool:
        """Whether systemd can make files read-only here, which some containers prevent."""
        command = ("systemd-run", "--wait", "--quiet", "-p", "ProtectSystem=strict")
        return self.machine.call(*command, "touch", "/run/systemd/system/written").returncode != 0

    @property
    def process(self) -> str:
        return self.shown(UNIT, "MainPID")

    @property
    def command(self) -> str:
        """The command line of the running service; empty while it does not run."""
        told = self.machine.call("cat", f"/proc/{self.process}/cmdline").stdout
        return told.replace("\0", " ").strip()

    @property
    def rounds(self) -> str:
        return self.command.rpartition(" ")[2]

    @property
    def holds(self) -> bool:
        """Whether the study holds, by the tuner's answer."""
        shown = self.machine.call("jouletune", "study", "show", self.study, *DESK)
        return shown.returncode == 0 and json.loads(shown.stdout)["study"]["phase"] == "holding"

    @property
    def set_anew(self) -> bool:
        """Whether the service runs with a granted word, and the GPU has the held setting."""
        return self.command.startswith("/usr/bin/python3") and self.rounds != "800"

    def flag(self) -> dict[str, Any]:
        return self.device(f"unit:{UNIT}")

    def is_own(self) -> bool:
        """Whether the service runs with its own command, and no file of ours is left in /run."""
        left = self.machine.call("ls", FOLDER).stdout
        return self.command == COMMAND and not left and self.shown(UNIT, "DropInPaths") == ""

    def settled(self, process: str) -> None:
        """Wait until both devices hold again, and check that the service was not restarted."""
        self.until(lambda: self.flag().get("level") == "hold" and self.held(), "not held")
        assert self.process == process and self.set_anew


@pytest.fixture(scope="module")
def site() -> Iterator[UnitSite]:
    with booted_site(UnitSite) as site:
        yield site


def test_the_folder_of_drop_ins_is_written_only_with_ours(site: UnitSite) -> None:
    site.serve()
    site.install()
    site.configure()
    site.systemctl("start", "jouletune-actuator")
    assert "/run/systemd/system" not in site.shown("jouletune-actuator", "ReadWritePaths")
    python = "/opt/jouletune/current/bin/python"
    if site.protects:
        refused = site.machine.call(python, "-c", SET)
        assert "Read-only file system" in refused.stderr
        assert site.is_own()
    site.machine.run(*INSTALL, "--unit")
    drop_in = "/etc/systemd/system/jouletune-actuator.service.d/unit.conf"
    assert (site.machine.root / drop_in.lstrip("/")).exists()
    site.systemctl("restart", "jouletune-actuator")
    assert "/run/systemd/system" in site.shown("jouletune-actuator", "ReadWritePaths")
    before = site.process
    site.machine.run(python, "-c", SET)  # its connection ends with it, and so its trial
    site.until(site.is_own, "a trial outlives its client")
    assert site.process != before


def test_a_study_of_clock_and_flag_comes_to_holding(site: UnitSite) -> None:
    site.systemctl("enable", "--now", *SERVICES)
    site.until(lambda: site.ask("device", "list"), "no device")
    device = site.ask("device", "list")[0]["device"]
    assert device["kind"] == "nvidia+unit"
    knobs = {knob["name"]: knob for knob in device["space"]["knobs"]}
    assert knobs["--rounds"]["cost"]["restart"] and "gpu.clock_mhz" in knobs
    terms = ["--trials", "8", "--window", "2", "--max-window", "6", "--no-constraint"]
    terms += ["--choose", "gpu.clock_mhz=1200,1410"]  # six settings: each is tried
    site.study = site.ask("study", "create", "--device", device["id"], *terms)["id"]
    site.until(lambda: site.phase() == "holding", "no hold")
    site.until(lambda: site.flag().get("level") == "hold", "the winner is not in force")
    states = [trial["state"] for trial in site.ask("trial", "list", site.study)]
    assert "failed" not in states and states.count("completed") > 8, states
    assert site.set_anew and site.shown(UNIT, "DropInPaths") == f"{FOLDER}/zzz-jouletune.conf"


@pytest.mark.parametrize("service", SERVICES)
def test_a_restart_or_a_kill_of_ours_restarts_no_service_at_its_hold(
    service: str, site: UnitSite
) -> None:
    held, process = site.rounds, site.process
    site.systemctl("restart", service)
    site.settled(process)
    own = site.shown(service, "MainPID")
    site.kill(service)
    site.until(lambda: site.started_again(service, own), f"{service} is not started again")
    site.settled(process)
    site.until(lambda: site.holds, "the study is over")
    assert site.rounds == held


def test_a_service_that_is_restarted_or_killed_keeps_its_flag(site: UnitSite) -> None:
    held, process = site.rounds, site.process
    site.systemctl("restart", UNIT)
    assert site.rounds == held and site.process != process
    process = site.process
    site.kill("answers")
    site.until(lambda: site.started_again("answers", process), "systemd does not start it again")
    site.until(lambda: site.rounds == held, "it has another flag")
    assert site.holds


def test_a_boot_ends_the_drop_in_and_the_hold_sets_it_anew(site: UnitSite) -> None:
    held = site.rounds
    site.machine.stop()
    site.machine.boot()
    site.until(lambda: site.flag().get("level") == "hold", "the hold is not requested again")
    assert site.rounds == held
    log = site.machine.call("journalctl", "-b", "--no-pager", "-u", UNIT).stdout
    assert log.count("Started") == 2, log  # with its own command, then with the held flag


def test_purging_leaves_the_service_at_its_own_command(site: UnitSite) -> None:
    assert site.set_anew
    site.machine.run(*INSTALL, "--purge", "--yes")
    assert site.is_own() and site.gpu == ORIGINAL
    assert site.up("answers")
    assert not (site.machine.root / "etc/systemd/system/jouletune-actuator.service.d").exists()
    left = site.machine.run("find", "/run/systemd", "/etc/systemd", "-name", "*jouletune*")
    assert left == ""
