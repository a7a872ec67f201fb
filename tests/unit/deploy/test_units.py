"""The units, checked by systemd."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from agents.actuator.driver import INIT_S
from agents.actuator.grants import ActuatorConfig
from tests.processes import run_to_end
from tuner.service.http.http_limits import HttpLimits

DEPLOY = Path(__file__).parents[3] / "deploy"
MOST_EXPOSED = {"tuner": 3.0, "agent": 3.0, "actuator": 5.0, "metrics": 3.0}
SERVICES = ("tuner", "agent", "actuator")
RIVALS = {"tuned", "power-profiles-daemon", "tlp", "auto-cpufreq"}

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None,
    reason="no systemd-analyze here to judge units with: apt install systemd",
)


def unit(name: str) -> str:
    return (DEPLOY / f"jouletune-{name}.service").read_text()


def values(name: str, key: str) -> list[str]:
    return re.findall(rf"^{key}=(.*)$", unit(name), re.MULTILINE)


def exposure(path: Path) -> float:
    done = run_to_end(["systemd-analyze", "security", "--offline=true", str(path)], check=True)
    found = re.search(r"exposure level for \S+: ([\d.]+)", done.stdout)
    assert found is not None, done.stdout
    return float(found[1])


@needs_systemd
def test_the_units_are_clean(tmp_path: Path) -> None:
    """Verify copies whose programs exist, because nothing is installed on this machine."""
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    copies = []
    for name in MOST_EXPOSED:
        copy = tmp_path / f"jouletune-{name}.service"
        copy.write_text(re.sub(r"/opt/jouletune/current/bin/\w+", str(program), unit(name)))
        copies.append(str(copy))
    timer = tmp_path / "jouletune-metrics.timer"
    timer.write_text((DEPLOY / timer.name).read_text())
    copies.append(str(timer))
    done = run_to_end(["systemd-analyze", "verify", "--man=no", *copies])
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@needs_systemd
@pytest.mark.parametrize("name", MOST_EXPOSED)
def test_a_unit_is_hardened(name: str) -> None:
    assert exposure(DEPLOY / f"jouletune-{name}.service") <= MOST_EXPOSED[name]


@needs_systemd
@pytest.mark.parametrize("board", ["cpu", "drm", "jetson"])
def test_the_actuator_stays_hardened_although_it_writes_files(board: str, tmp_path: Path) -> None:
    drop_in = (DEPLOY / f"actuator-{board}.conf").read_text()
    whole = tmp_path / "jouletune-actuator.service"
    whole.write_text(f"{unit('actuator')}\n{drop_in}")
    assert exposure(whole) <= MOST_EXPOSED["actuator"]
    written = re.findall(r"^ReadWritePaths=(.*)$", drop_in, re.MULTILINE)
    paths = [path.lstrip("-") for line in written for path in line.split()]
    assert paths or board == "drm"  # its paths are those of the host's cards
    assert all(path.count("/") >= 3 for path in paths)
    assert "ReadOnlyPaths=/sys /proc/sys" in drop_in


@pytest.mark.parametrize("name", SERVICES)
def test_a_unit_is_watched_and_always_started_again(name: str) -> None:
    assert values(name, "Type") == ["notify"]
    assert values(name, "Restart") == ["always"]
    assert values(name, "StartLimitIntervalSec") == ["0"]
    assert float(values(name, "WatchdogSec")[0]) > 0


def test_the_tuner_has_files_for_ten_thousand_agents_that_wait() -> None:
    (files,) = values("tuner", "LimitNOFILE")
    assert HttpLimits.within(int(files), 1).running > 10_000


def test_the_actuator_restores_after_any_end_and_has_no_network() -> None:
    (serve,) = values("actuator", "ExecStart")
    # It needs no configuration: a wrong one may have ended the actuator.
    assert values("actuator", "ExecStopPost") == [f"{serve.partition(' serve ')[0]} restore"]
    assert values("actuator", "PrivateNetwork") == ["yes"]
    assert values("actuator", "RestrictAddressFamilies") == ["AF_UNIX"]


def test_below_run_the_actuator_writes_only_its_own_folder_and_drop_ins() -> None:
    """In systemd 252 ProtectSystem=strict alone leaves /run writable if ProtectProc= is set."""
    assert values("actuator", "ReadOnlyPaths") == ["/run"]
    assert values("actuator", "ReadWritePaths") == ["/run/jouletune"]
    drop_in = (DEPLOY / "actuator-unit.conf").read_text()
    assert re.findall(r"^(\w+)=(.*)$", drop_in, re.M) == [("ReadWritePaths", "/run/systemd/system")]


def test_only_where_cpus_are_tuned_do_other_tuners_of_cpus_stop() -> None:
    # With NVML knobs only, stopping TuneD rolls its profile back, which would change the baseline.
    assert values("actuator", "Conflicts") == []
    for board in ("cpu", "drm"):
        drop_in = (DEPLOY / f"actuator-{board}.conf").read_text()
        assert "tuned.service power-profiles-daemon.service tlp.service" in drop_in
    (rivals,) = re.findall(r"^Conflicts=(.*)$", (DEPLOY / "actuator-cpu.conf").read_text(), re.M)
    assert {rival.removesuffix(".service") for rival in rivals.split()} == RIVALS


@pytest.mark.parametrize("name", ["agent", "actuator"])
def test_gpu_services_start_after_the_driver_or_restart_with_it(name: str) -> None:
    assert "nvidia-persistenced.service" in values(name, "After")[0].split()
    rule = (DEPLOY / "nvidia.rules").read_text().splitlines()[-1]
    assert 'ACTION=="bind"' in rule and 'DRIVER=="nvidia"' in rule
    assert "try-restart jouletune-actuator.service jouletune-agent.service" in rule


def test_starting_and_stopping_wait_for_drivers_and_eight_devices() -> None:
    """A restore takes at most nine calls within the default deadline; devices run in parallel."""
    longest_s = INIT_S + INIT_S + 9 * ActuatorConfig().deadline_s
    for key in ("TimeoutStartSec", "TimeoutStopSec"):
        assert float(values("actuator", key)[0]) >= longest_s


@pytest.mark.parametrize("name", MOST_EXPOSED)
def test_every_capability_is_explained(name: str) -> None:
    (granted,) = values(name, "CapabilityBoundingSet")
    above = unit(name).partition("CapabilityBoundingSet=")[0].rpartition("\n\n")[2]
    assert above.startswith("#")
    for capability in granted.split():
        assert capability in above


def test_only_the_actuator_is_root() -> None:
    users = {
        line.split()[1]
        for line in (DEPLOY / "jouletune.sysusers").read_text().splitlines()
        if line.startswith("u ")
    }
    assert {values(name, "User")[0] for name in ("tuner", "agent", "metrics")} == users
    assert values("actuator", "User") == []
    assert values("agent", "Group") == values("actuator", "SupplementaryGroups") == ["jouletune"]
    assert values("tuner", "Group") != ["jouletune"]


JETPACK_6 = 249
"""systemd of Ubuntu 22.04."""
SINCE = {
    "AmbientCapabilities": 229,
    "InaccessiblePaths": 231,
    "IPAddressDeny": 235,
    "LoadCredential": 247,
    "LockPersonality": 235,
    "PrivateIPC": 248,
    "PrivateUsers": 232,
    "ProtectClock": 245,
    "ProtectControlGroups": 232,
    "ProtectHostname": 242,
    "ProtectKernelLogs": 244,
    "ProtectKernelModules": 232,
    "ProtectKernelTunables": 232,
    "ProtectProc": 247,
    "ReadOnlyPaths": 231,
    "ReadWritePaths": 231,
    "RemoveIPC": 232,
    "RestrictNamespaces": 233,
    "RestrictRealtime": 231,
    "RestrictSUIDSGID": 242,
    "RuntimeDirectoryPreserve": 235,
    "StartLimitIntervalSec": 230,
    "StateDirectory": 235,
    "StateDirectoryMode": 235,
}
"""The release of systemd that introduced a directive, by its manual pages and NEWS."""
OLDER = frozenset(
    (  # noqa: SIM905
        "AccuracySec After CapabilityBoundingSet Conflicts Description DeviceAllow DevicePolicy "
        "Documentation ExecStart ExecStopPost Group LimitNOFILE NoNewPrivileges OnActiveSec "
        "OnUnitInactiveSec PrivateDevices PrivateNetwork PrivateTmp ProtectHome ProtectSystem Restart "
        "RestartPreventExitStatus RestartSec RestrictAddressFamilies RuntimeDirectory "
        "RuntimeDirectoryMode SuccessExitStatus SupplementaryGroups "
        "SystemCallArchitectures SystemCallErrorNumber SystemCallFilter TimeoutStartSec TimeoutStopSec "
        "Type UMask User WantedBy Wants WatchdogSec WorkingDirectory "
    ).split()
)
"""Directives that systemd 229 had."""


def test_jetpack_6_knows_every_directive() -> None:
    texts = [
        file.read_text()
        for kind in ("service", "timer", "conf")
        for file in DEPLOY.glob(f"*.{kind}")
    ]
    used = {key for text in texts for key in re.findall(r"^(\w+)=", text, re.MULTILINE)}
    unknown = used - OLDER - SINCE.keys()
    assert not unknown, "look up since when systemd has it, and add it to SINCE"
    assert {key: SINCE[key] for key in used & SINCE.keys() if SINCE[key] > JETPACK_6} == {}
