"""The three services under a real systemd: installed, tuned, killed, broken, removed.

One machine, in the order of the file: installing takes most of the time.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.nvml.fake import A100, LIBRARY, FakeNvml, build
from tests.systemd.machine import STEPS_S, CannotRun, Machine, booted, until, why_not

pytestmark = pytest.mark.timeout(STEPS_S)

INSTALL = ("bash", "/root/source/deploy/install.sh")
SERVICES = ("jouletune-tuner", "jouletune-actuator", "jouletune-agent")
DESK = ("--tuner", "http://127.0.0.1:8790", "--token-file", "/etc/jouletune/token", "--json")
LEASE_S, GRACE_S = 3.0, 45.0
"""A lease ends before systemd restarts an agent (5 s), a grace period long after that."""
ORIGINAL = (0.0, 400.0)
ACTUATOR = f"""
lease_s = {LEASE_S}
agent_grace_s = {GRACE_S}
[[device]]
match = "{A100}"
[device.grant]
"gpu.clock_mhz" = {{ min = 210, max = 1410 }}
"gpu.power_limit_w" = {{ min = 100, max = 400 }}
"""
AGENT = """
[[device]]
spec = "nvidia:0"
workload = "simulated"
"""
FAKE = """
[Service]
Environment=LD_LIBRARY_PATH=/opt/fakenvml FAKENVML_STATE=/var/lib/fakenvml/state
ReadWritePaths=/var/lib/fakenvml
"""
CPUFREQ = "/sys/devices/system/cpu/cpufreq"
POLICY = f"""
mount -t tmpfs tmpfs {CPUFREQ}
mkdir {CPUFREQ}/policy0
cd {CPUFREQ}/policy0
for file in cpuinfo_min_freq=800000 cpuinfo_max_freq=3000000 scaling_min_freq=800000 \\
    scaling_max_freq=3000000 scaling_governor=powersave \\
    "scaling_available_governors=performance powersave"; do
  echo "${{file#*=}}" >"${{file%%=*}}"
done
"""
"""A fake clock policy in the kernel's place, on a machine that has none."""
CPU_GRANTS = """
[[device]]
match = "cpu"
[device.grant]
"cpu.max_mhz" = { min = 1000, max = 3000 }
"cpu.governor" = ["performance", "powersave"]
"""
SET_AND_DIE = """
import os
from pathlib import Path
from agents.actuator_client.client import open_remote
from agents.host.machine import HostClock
knobs = open_remote(Path("/run/jouletune/actuator.sock"), "cpu", HostClock())
knobs.apply({"cpu.max_mhz": 1500, "cpu.governor": "performance"})
shown = Path("/sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq").read_text()
print(knobs.read(), shown, flush=True)
os._exit(9)
"""
LIMIT = """
import json
from agents.host.machine import HostClock
from agents.host.processes.service_process import UnitProcess
from agents.workloads.http.knob_config import UnitProperty
from agents.workloads.http.units import KnobInUnit
from tuner.core import ActuationError, Knob, Part
knob = Knob("quota", (50, "infinity"), "infinity", Part.WORKLOAD)
mine, other = (
    KnobInUnit(knob, UnitProperty(f"{name}.service", "CPUQuota"), HostClock())
    for name in ("thumbnails", "other")
)
values = [mine.read()]
for value in (50, "infinity"):
    mine.set(value)
    values.append(mine.read())
refused = ""
try:
    other.set(50)
except ActuationError as error:
    refused = error.message
process = UnitProcess("thumbnails.service")
started = process.started()
process.cpu_s()
print(json.dumps({
    "values": values, "refused": refused, "unproven": mine.unproven(), "started": started,
    "unit_ended": process.started() != started,
}))
"""
BROKEN = """
[Service]
ExecStart=
ExecStart=/bin/false
"""
NOISE = (
    "/proc",
    "/sys",
    "/dev",
    "/run",
    "/tmp",
    "/root",
    "/var/log",
    "/var/cache",
    "/wheels",
    "/var/lib/fakenvml",
)
"""Paths whose files change by themselves, or belong to the test."""


class Site:
    """A machine with a fake GPU, whose state outlives every process inside."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        for folder in ("opt/fakenvml", "var/lib/fakenvml"):
            (machine.root / folder).mkdir(parents=True)
        (machine.root / "var/lib/fakenvml").chmod(0o777)
        library = build(machine.root / "opt/fakenvml")
        self.nvml = FakeNvml(library, machine.root / "var/lib/fakenvml/state", manual=False)
        self.before = self.files()
        self.study = ""

    @property
    def gpu(self) -> tuple[float, float]:
        return self.nvml.get("lock_max"), self.nvml.get("limit_w")

    def files(self) -> set[str]:
        pruned = " -o ".join(f"-path {path}" for path in NOISE)
        listed = self.machine.run("bash", "-c", f"find / \\( {pruned} \\) -prune -o -print")
        return set(listed.splitlines())

    def install(self) -> str:
        return self.machine.run(*INSTALL)

    def configure(self) -> None:
        self.machine.write("/etc/jouletune/actuator.toml", ACTUATOR)
        agent = self.machine.root / "etc/jouletune/agent.toml"
        agent.write_text(agent.read_text() + AGENT)
        for service in SERVICES[1:]:
            self.machine.write(f"/etc/systemd/system/{service}.service.d/fake.conf", FAKE)
        self.systemctl("daemon-reload")

    def systemctl(self, *options: str) -> str:
        return self.machine.run("systemctl", *options)

    def shown(self, service: str, name: str) -> str:
        return self.systemctl("show", "-P", name, service).strip()

    def up(self, service: str) -> bool:
        return self.shown(service, "ActiveState") == "active"

    def started_again(self, service: str, process: str) -> bool:
        """Return whether a service runs in another process than the given one."""
        return self.up(service) and self.shown(service, "MainPID") != process

    def kill(self, service: str) -> None:
        self.systemctl("kill", "-s", "KILL", "--kill-whom=main", service)

    def device(self, uuid: str) -> dict[str, Any]:
        told = self.machine.call("jouletune", "actuator", "status", "--json").stdout
        devices = json.loads(told)["devices"] if told else []
        return next((d for d in devices if d["uuid"] == uuid), {})

    def status(self) -> dict[str, Any]:
        return self.device(A100)

    def ask(self, *command: str) -> Any:  # noqa: ANN401 - JSON
        return json.loads(self.machine.run("jouletune", *command, *DESK))

    def phase(self) -> str:
        return str(self.ask("study", "show", self.study)["study"]["phase"])

    def held(self) -> bool:
        return self.status().get("level") == "hold" and self.gpu != ORIGINAL

    def until(self, done: Any, why: str) -> None:  # noqa: ANN401
        try:
            until(done, why)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.machine.log()}") from None


SiteT = TypeVar("SiteT", bound=Site)


@contextmanager
def booted_site(kind: type[SiteT]) -> Iterator[SiteT]:
    """Boot a machine with a fake GPU; skip with the reason if that is impossible."""
    if os.environ.get("JOULETUNE_TEST_SYSTEMD") != "1":
        pytest.skip("only `make test-systemd` boots a machine")
    if missing := why_not():
        pytest.skip(missing)
    with ExitStack() as stack:
        try:
            machine = stack.enter_context(booted())
        except CannotRun as error:
            pytest.skip(f"no machine can be had here: {error}")
        site = kind(machine)
        load = f"import ctypes; ctypes.CDLL('/opt/fakenvml/{LIBRARY}')"
        if "GLIBC" in (told := machine.call("python3", "-c", load).stderr):
            pytest.skip(f"what this host compiles does not load in the machine: {told[-200:]}")
        yield site


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with booted_site(Site) as site:
        yield site


def test_the_script_installs_twice_and_starts_nothing(site: Site) -> None:
    told = site.install()
    assert "enable --now" in told
    assert not any(site.up(service) for service in SERVICES)
    site.configure()
    assert "is complete" in site.install()
    assert (site.machine.root / "etc/jouletune/actuator.toml").read_text() == ACTUATOR
    modes = site.machine.run("stat", "-c", "%a %U %G", "/etc/jouletune/tuner.toml")
    assert modes.split() == ["640", "root", "jouletune-tuner"]


def test_three_services_come_up(site: Site) -> None:
    site.systemctl("enable", "--now", *SERVICES)
    assert all(site.up(service) for service in SERVICES), site.machine.log()
    assert site.shown("jouletune-agent", "User") != "root"
    assert site.status()["level"] == "original"


def test_a_rule_of_the_page_lets_the_agents_user_limit_that_unit_and_no_other(site: Site) -> None:
    rule = (Path(__file__).parents[2] / "docs/examples/50-jouletune.rules").read_text()
    site.machine.write("/etc/polkit-1/rules.d/50-jouletune.rules", rule)
    for name in ("thumbnails", "other"):
        unit = "[Service]\nExecStart=/bin/sleep infinity\n"
        site.machine.write(f"/etc/systemd/system/{name}.service", unit)
    site.systemctl("daemon-reload")
    site.systemctl("start", "thumbnails", "other")
    site.systemctl("restart", "polkit")
    python = "/opt/jouletune/current/bin/python"
    command = ("runuser", "-u", "jouletune-agent", "--", python, "-c", LIMIT)
    told = json.loads(site.machine.run(*command))
    assert told["values"] == ["infinity", 50, "infinity"]
    assert told["started"] and not told["unit_ended"]
    assert "other.service" in told["refused"] and "exited with code" in told["refused"]
    # Whether the kernel limits it depends on this host's cgroups; missing limits are reported.
    assert told["unproven"] == "" or "shows no cpu.max" in told["unproven"]
    assert site.shown("other", "CPUQuotaPerSecUSec") == "infinity"
    for name in ("thumbnails", "other"):
        site.systemctl("stop", name)
        (site.machine.root / f"etc/systemd/system/{name}.service").unlink()
    (site.machine.root / "etc/polkit-1/rules.d/50-jouletune.rules").unlink()
    site.machine.run("rm", "-rf", "/run/systemd/system.control/thumbnails.service.d")
    site.systemctl("daemon-reload")


def test_another_user_is_refused(site: Site) -> None:
    connect = "import socket; socket.socket(socket.AF_UNIX).connect('/run/jouletune/actuator.sock')"
    script = ["/usr/bin/python3", "-c", connect]
    assert site.machine.call("runuser", "-u", "nobody", "--", *script).returncode != 0
    assert site.machine.call("runuser", "-u", "jouletune-tuner", "--", *script).returncode != 0
    agent = ["runuser", "-u", "jouletune-agent", "-g", "jouletune", "--", *script]
    assert site.machine.call(*agent).returncode == 0


def test_a_study_comes_to_holding_although_the_agent_is_killed_in_a_trial(site: Site) -> None:
    site.until(lambda: site.ask("device", "list"), "no device")
    device = site.ask("device", "list")[0]["device"]["id"]
    terms = ["--trials", "6", "--window", "1.5", "--max-window", "6"]
    limit = ["--constraint", "latency_p99_ms <= 2x baseline"]
    site.study = site.ask("study", "create", "--device", device, *limit, *terms)["id"]
    process = site.shown("jouletune-agent", "MainPID")
    site.until(lambda: site.status().get("level") == "trial" and site.gpu != ORIGINAL, "no trial")
    site.kill("jouletune-agent")
    site.until(
        lambda: site.gpu == ORIGINAL or site.started_again("jouletune-agent", process),
        "a dead agent's trial stays",
    )
    assert site.gpu == ORIGINAL, "the trial of a dead agent outlived it until another came"
    site.until(lambda: site.phase() == "holding", "no hold")
    site.until(site.held, "the winner is not in force")
    assert site.phase() == "holding"


@pytest.mark.promise("the tuner dies")
def test_a_hold_outlives_the_tuner(site: Site) -> None:
    held = site.gpu
    site.systemctl("stop", "jouletune-tuner")
    end = time.monotonic() + GRACE_S + 2 * LEASE_S
    while time.monotonic() < end:
        assert site.gpu == held
        time.sleep(0.2)
    site.systemctl("start", "jouletune-tuner")
    assert site.held()
    assert site.phase() == "holding"


@pytest.mark.promise(
    "an agent dies during a hold",
    "the setting stays for `agent_grace_s` (60 s), and the agent's next start resumes"
    " it; after its lease the device is OFFLINE in every list",
)
def test_a_hold_outlives_a_killed_agent_but_not_one_that_stays_away(site: Site) -> None:
    held, process = site.gpu, site.shown("jouletune-agent", "MainPID")
    site.kill("jouletune-agent")
    site.until(
        lambda: site.started_again("jouletune-agent", process), "the agent is not started again"
    )
    assert site.gpu == held
    site.systemctl("stop", "jouletune-agent")
    assert site.gpu == held
    site.until(lambda: site.gpu == ORIGINAL, "nobody holds, yet it is held")
    site.systemctl("start", "jouletune-agent")
    site.until(lambda: site.gpu == held, "the hold is not taken up again")


def test_prometheus_shows_held_settings(site: Site) -> None:
    site.systemctl("enable", "--now", "jouletune-metrics.timer")
    told = f'jouletune_device_level{{device="{A100}",level="hold"}} 1.0'
    file = "/run/jouletune-metrics/jouletune.prom"
    site.until(lambda: told in site.machine.call("cat", file).stdout, "no figures")
    assert told in site.machine.call("cat", file).stdout


@pytest.mark.promise("the actuator dies, also by SIGKILL")
def test_a_killed_actuator_restores_and_is_used_again(site: Site) -> None:
    held, before = site.gpu, int(site.shown("jouletune-actuator", "NRestarts"))
    site.kill("jouletune-actuator")
    site.until(lambda: site.gpu == ORIGINAL, "it is not put back")
    site.until(lambda: site.gpu == held, "the hold is not asked for again")
    assert int(site.shown("jouletune-actuator", "NRestarts")) == before + 1


def test_an_actuator_that_cannot_start_any_more_leaves_nothing_set(site: Site) -> None:
    held = site.gpu
    drop_in = "/etc/systemd/system/jouletune-actuator.service.d/broken.conf"
    site.machine.write(drop_in, BROKEN)
    site.systemctl("daemon-reload")
    assert site.gpu == held
    site.kill("jouletune-actuator")
    site.until(lambda: site.gpu == ORIGINAL, "ExecStopPost= does not put back")
    restarts = int(site.shown("jouletune-actuator", "NRestarts"))
    site.until(
        lambda: int(site.shown("jouletune-actuator", "NRestarts")) > restarts + 5,
        "systemd gave up",
    )
    assert site.gpu == ORIGINAL
    (site.machine.root / drop_in.lstrip("/")).unlink()
    site.systemctl("daemon-reload")
    site.until(lambda: site.gpu == held, "it does not recover")


def test_an_upgrade_keeps_the_old_release_and_the_study(site: Site) -> None:
    held, opt = site.gpu, Path("opt/jouletune")
    former = (site.machine.root / opt / "current").readlink()
    version = site.machine.root / "root/source/tuner/__init__.py"
    version.write_text(version.read_text() + "\n# newer\n")
    site.install()
    assert (site.machine.root / opt / "previous").readlink() == former
    assert (site.machine.root / opt / "current").readlink() != former
    assert all(site.up(service) for service in SERVICES), site.machine.log()
    site.until(lambda: site.gpu == held, "the hold is not taken up again")
    assert site.phase() == "holding"


def test_cpu_clocks_are_written_through_the_drop_in_and_restored(site: Site) -> None:
    """The unit alone shows /sys read-only; with the drop-in those files are written, and no others."""
    site.machine.run("bash", "-ec", POLICY)
    site.machine.run(*INSTALL, "--cpu")
    site.machine.write(
        "/etc/jouletune/actuator.toml", f'drivers = ["nvidia", "cpu"]\n{ACTUATOR}{CPU_GRANTS}'
    )
    site.systemctl("restart", "jouletune-actuator")
    died = site.machine.call("/opt/jouletune/current/bin/python", "-c", SET_AND_DIE)
    assert died.returncode == 9, died.stderr
    assert "'cpu.max_mhz': 1500" in died.stdout and "1500000" in died.stdout
    files = [f"{CPUFREQ}/policy0/scaling_{name}" for name in ("max_freq", "governor")]
    site.until(
        lambda: site.machine.run("grep", "-h", "", *files).split() == ["3000000", "powersave"],
        "the CPU is not put back",
    )
    site.until(site.held, "the GPU's hold is not taken up again")


def test_removing_puts_back_and_leaves_nothing(site: Site) -> None:
    assert site.gpu != ORIGINAL
    assert site.machine.call(*INSTALL, "--purge").returncode == 2
    assert site.gpu != ORIGINAL
    site.machine.run(*INSTALL, "--uninstall", "--yes")
    assert site.gpu == ORIGINAL
    for kept in ("etc/jouletune/token", "var/lib/jouletune-tuner/jouletune.sqlite"):
        assert (site.machine.root / kept).exists()
    site.machine.run(*INSTALL, "--purge", "--yes")
    assert site.nvml.get("batch") == 16.0
    left = site.files() - site.before
    assert {path for path in left if "jouletune" in path} == set()
    folders = {"/etc/sysusers.d", "/etc/tmpfiles.d", "/etc/udev", "/etc/udev/rules.d"}
    assert left <= folders | system_files(left), left
    for file in ("passwd", "group"):
        assert "jouletune" not in (site.machine.root / "etc" / file).read_text()


def system_files(left: set[str]) -> set[str]:
    """Return the files that the system writes by itself: backups of user files, state of systemd."""
    own = ("/etc/passwd-", "/etc/group-", "/etc/shadow-", "/etc/gshadow-", "/etc/.pwd.lock")
    return {path for path in left if path in own or path.startswith("/var/lib/systemd")}
