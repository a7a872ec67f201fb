"""Make the frozen files of 0.2.0 fit a host with the fake GPU.

The names of device, driver, workload and its sides, the boot id, the time and the clocks become those
of this host. Reports that end the hold are omitted.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.frozen.content import AGENT, AGENT_TOKEN
from tests.nvml.fake import A100
from tests.systemd.machine import SOURCE, Machine
from tests.systemd.test_services import ACTUATOR, FAKE

FROZEN = SOURCE / "tests/frozen/0.2.0"
DEVICE, ENTRY = "nvidia-0@edge", f"nvidia:{A100}"
CLOCKS = {400: 405, 600: 600, 800: 795, 1000: 1005}
"""The frozen clocks, and those nearest to them on this GPU."""
HELD_MHZ = 795.0
"""The clock of the frozen hold, on this GPU."""
CONFIG = f"""
name = "{AGENT.partition("@")[2]}"
token_file = "/run/credentials/jouletune-agent.service/token"
state_dir = "/var/lib/jouletune-agent"
[[device]]
spec = "nvidia:0"
workload = "simulated"
"""
GRANTED = ACTUATOR.replace('"gpu.power_limit_w" = { min = 100, max = 400 }\n', "")
"""0.2.0's hold sets the clock and no power limit."""


def place(machine: Machine) -> None:
    """Put database, configuration, hold, journals and tokens into 0.2.0's places, with their owners."""
    sysusers = SOURCE / "deploy/jouletune.sysusers"
    machine.write("/root/jouletune.sysusers", sysusers.read_text())
    machine.run("systemd-sysusers", "/root/jouletune.sysusers")
    machine.write("/etc/jouletune/agent.toml", CONFIG)
    machine.write("/etc/jouletune/actuator.toml", GRANTED)
    for service in ("agent", "actuator"):
        machine.write(f"/etc/systemd/system/jouletune-{service}.service.d/fake.conf", FAKE)
    state = machine.root / "var/lib"
    _database(state / "jouletune-tuner")
    shutil.copytree(FROZEN / "agent/actuator", state / "jouletune-actuator")
    _agent(state / "jouletune-agent", Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    for user in ("tuner", "agent"):
        group = "jouletune" if user == "agent" else "jouletune-tuner"
        machine.run("chown", "-R", f"jouletune-{user}:{group}", f"/var/lib/jouletune-{user}")
    machine.run("sh", "-c", "chmod 0700 /var/lib/jouletune-*")


def _database(folder: Path) -> None:
    folder.mkdir()
    text = _renamed((FROZEN / "sqlite.sql").read_text().replace("sim@edge", DEVICE))
    with closing(sqlite3.connect(folder / "jouletune.sqlite")) as made:
        made.executescript(text)
        made.commit()


def _agent(folder: Path, boot: str) -> None:
    hold: dict[str, Any] = json.loads(
        _renamed((FROZEN / "agent/holds/fake@host.hold.json").read_text())
    )
    hold |= {"boot": boot, "driver": "580.95.05", "workload_version": "1"}
    hold["granted_at"] = datetime.now(UTC).isoformat()
    _write(folder / f"holds/{DEVICE}.hold.json", json.dumps(hold))
    noted = (FROZEN / "agent/journal/fake@host.journal").read_text().splitlines()
    head, *sides = (json.loads(line) for line in noted)
    attached = {"spec": ENTRY, "configured": "nvidia:0", "seed": "0", "workload": "simulated"}
    head |= {"device": DEVICE, "boot": boot, "attached": attached}
    sides[0] |= {"side": "nvidia", "setting": {"gpu.clock_mhz": 1410}}
    sides[1] |= {"setting": {"batch_size": 16}}
    lines = ({k: v for k, v in line.items() if k != "sum"} for line in (head, *sides))
    sealed = "".join(json.dumps({**line, "sum": _sum(line)}) + "\n" for line in lines)
    _write(folder / f"journal/{DEVICE}.journal", sealed)
    waiting = (FROZEN / "agent/spool/000000000002-window.json").read_text()
    _write(
        folder / "spool/000000000002-window.json", _renamed(waiting.replace("fake@host", DEVICE))
    )
    _write(folder / "agent-token", f"{AGENT} {AGENT_TOKEN}\n")


def _sum(line: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(line, sort_keys=True).encode()).hexdigest()


def _renamed(text: str) -> str:
    """Return a text with the clocks of this GPU."""
    for frozen, here in CLOCKS.items():
        text = text.replace(f'"gpu.clock_mhz": {frozen}', f'"gpu.clock_mhz": {here}')
        text = text.replace(f'"gpu.clock_mhz":{frozen}', f'"gpu.clock_mhz":{here}')
    values, clocks = ([*map(str, side)] for side in (CLOCKS, CLOCKS.values()))
    text = text.replace(f'"values": [{", ".join(values)}]', f'"values": [{", ".join(clocks)}]')
    return text.replace('"default": 1000', '"default": 1005')


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(0o600)
