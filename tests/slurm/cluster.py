"""A Slurm with one node: its daemons are children of the test, in a separate folder."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.actuation import answers
from tests.nvml.fake import A40, A100, FakeNvml
from tests.processes import reserved_port, run_to_end

PAGE = Path(__file__).parents[2] / "docs/slurm.md"
"""The page whose scripts are run here."""
PROGRAMS = ("slurmctld", "slurmd", "sbatch", "srun", "scancel", "scontrol", "sinfo")
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
START_S = 60.0
HOST = socket.gethostname().partition(".")[0]

CONFIG = """ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
ReturnToService=2
SlurmdTimeout=30
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
PrologFlags=Alloc
GresTypes=gpu,shard
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
Prolog={folder}/prolog
Epilog={folder}/epilog
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 RealMemory=1000 Gres=gpu:2
PartitionName=all Nodes={host} Default=YES State=UP MaxTime=INFINITE
PartitionName=whole Nodes={host} State=UP MaxTime=INFINITE OverSubscribe=EXCLUSIVE
"""
CEILING = "sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq"
CPU = {
    CEILING: "2500000",
    CEILING.replace("scaling_max", "cpuinfo_max"): "2500000",
    CEILING.replace("scaling_max", "cpuinfo_min"): "1500000",
    CEILING.replace("scaling_max", "scaling_min"): "1500000",
    CEILING.replace("scaling_max_freq", "affected_cpus"): "0",
    CEILING.replace("scaling_max_freq", "related_cpus"): "0",
}
"""The files of a CPU with one policy."""
ZONES = {
    "intel-rapl:0": ("package-0", 100.0),
    "intel-rapl:0:0": ("core", 80.0),
    "intel-rapl:0:1": ("dram", 20.0),
    "intel-rapl:1": ("psys", 150.0),
}
"""The folders of its energy counters, with their names and power in W: the kernel lists parts beside."""
GRANTS = """socket = "{folder}/actuator.sock"
state_dir = "{folder}/actuator"
drivers = ["nvidia", "cpu:{folder}/root"]
agent_grace_s = 4
job_absent_s = 8
[[device]]
match = "GPU-*"
[device.grant]
"gpu.power_limit_w" = {{ min = 100, max = 300 }}
"gpu.clock_mhz" = {{ min = 210, max = 1410 }}
[[device]]
match = "cpu"
[device.grant]
"cpu.max_mhz" = {{ min = 1500, max = 2500 }}
[job.grant]
"gpu.power_limit_w" = {{ min = 150, max = 300 }}
"cpu.max_mhz" = {{ min = 2000, max = 2500 }}
"""


HELD = {"gpu.power_limit_w": 280, "gpu.clock_mhz": 1200}
AGENT = f"""
import sys, time
from pathlib import Path
from agents.actuator_client.client import open_remote
from tests.nvml.fake import A100
from agents.host.machine import HostClock
remote = open_remote(Path(sys.argv[1]), A100, HostClock())
remote.hold({HELD}, "s1", 1, 9e5)
time.sleep(9e5)
"""
"""An agent that holds a setting on the first GPU, and renews it."""


def missing() -> str:
    """Return the reason why no Slurm can run here; empty if one can."""
    absent = [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]
    if absent:
        return f"no {', '.join(absent)}: apt install --no-install-recommends slurmctld slurmd slurm-client"
    return "" if os.geteuid() == 0 else "Slurm's daemons run as root"


@dataclass
class SlurmNode:
    """The node, its actuator and its GPUs."""

    folder: Path
    nvml: FakeNvml
    changed: tuple[str, str] = ("", "")
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def environ(self) -> dict[str, str]:
        """The environment of the daemons, the actuator and the commands."""
        ours = {
            "JOULETUNE_ROOT": str(self.folder / "root"),
            "SLURM_CONF": f"{self.folder}/slurm.conf",
        }
        return {**os.environ, **self.nvml.environment(), **ours, "PATH": PATH}

    def write(self) -> None:
        """Write the configuration, the two scripts and the driver's tree."""
        for name in ("state", "spool", "root", "root/dev"):
            (self.folder / name).mkdir()
        for file, text in CPU.items():
            path = self.folder / "root" / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{text}\n")
        for zone, (name, _) in ZONES.items():
            self.count(zone, 0.0)
            for file, text in {"name": name, "max_energy_range_uj": "262143328850"}.items():
                (self.folder / "root/sys/class/powercap" / zone / file).write_text(f"{text}\n")
        below_root = self.folder / "root" / str(self.folder).lstrip("/")
        below_root.parent.mkdir(parents=True)
        below_root.symlink_to(self.folder)  # where steps show
        for minor, uuid in enumerate((A100, A40)):
            device = self.folder / f"root/dev/nvidia{minor}"
            os.mknod(device, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
            shown = self.folder / f"root/proc/driver/nvidia/gpus/0000:0{minor}:00.0/information"
            shown.parent.mkdir(parents=True)
            shown.write_text(f"Model: \t\t fake\nGPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n")
        ports = (reserved_port(), reserved_port())
        text = CONFIG.replace(*self.changed).format(host=HOST, ports=ports, folder=self.folder)
        (self.folder / "slurm.conf").write_text(text)
        (self.folder / "gres.conf").write_text(
            f"Name=gpu File={self.folder}/root/dev/nvidia[0-1]\n"
        )
        (self.folder / "actuator.toml").write_text(GRANTS.format(folder=self.folder))
        environ = {
            k: v
            for k, v in self.environ.items()
            if k in self.nvml.environment() or k == "JOULETUNE_ROOT"
        }
        exports = "".join(f"export {name}='{value}'\n" for name, value in environ.items())
        options = f"{self.folder}/actuator.toml {self.folder}/jobs {self.folder}/holds"
        for name in ("prolog", "epilog"):
            (text,) = re.findall(
                rf"`/etc/slurm/{name}.d/jouletune`.*?```sh\n#!/bin/sh\n(.*?)```",
                PAGE.read_text(),
                re.DOTALL,
            )
            ours = text.replace("/opt/jouletune/current/bin/python", sys.executable)
            ours = re.sub(r"(agents.job.main \w+)", rf"\1 {options}", ours)
            script = self.folder / name
            script.write_text(f"#!/bin/sh\nexec >>{self.folder}/{name}.log 2>&1\n{exports}{ours}")
            script.chmod(0o755)

    def count(self, zone: str, joules: float) -> None:
        """Set a zone's energy counter, as a read never finds half of it."""
        file = self.folder / "root/sys/class/powercap" / zone / "energy_uj"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.with_suffix(".new").write_text(f"{int(1e6 * joules)}\n")
        file.with_suffix(".new").replace(file)

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """Let the CPU's counters run at the power of `ZONES`."""
        over, began = threading.Event(), time.monotonic()

        def run() -> None:
            while not over.wait(0.05):
                for zone, (_, watts) in ZONES.items():
                    self.count(zone, watts * (time.monotonic() - began))

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def start(self, name: str) -> None:
        """Start one of the processes."""
        command = {
            "slurmctld": ["slurmctld", "-D", "-f", f"{self.folder}/slurm.conf"],
            "slurmd": ["slurmd", "-D", "-f", f"{self.folder}/slurm.conf"],
            "actuator": [
                sys.executable, "-I", "-m", "agents.actuator.main", "serve", f"{self.folder}/actuator.toml"
            ],
            "agent": [sys.executable, "-c", AGENT, f"{self.folder}/actuator.sock"],
        }[name]  # fmt: skip
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                command, env=self.environ, stdout=log, stderr=log
            )

    def kill(self, name: str) -> None:
        """End one as kill -9 does."""
        self.processes[name].kill()
        self.processes.pop(name).wait()

    def script(self, name: str, comment: str, job: int, **environ: str) -> float:
        """Run the page's prolog or epilog as slurmd does, with one GPU; return its seconds."""
        ours = {"SLURM_JOB_ID": str(job), "SLURM_JOB_UID": "1000", "SLURM_JOB_COMMENT": comment}
        shown = {**ours, "SLURM_CONF": f"{self.folder}/slurm.conf", "SLURM_JOB_GPUS": "0"}
        began = time.monotonic()
        subprocess.run([self.folder / name], env={"PATH": PATH, **shown, **environ}, check=True)
        return time.monotonic() - began

    def ask(self, *command: str) -> str:
        """Return the output of a Slurm command."""
        done = run_to_end(command, env=self.environ, timeout=60)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout.strip()

    def submit(self, script: str, comment: str = "", *options: str) -> int:
        """Submit a job with one GPU and return its id."""
        asked = ["--gres=gpu:1", *options, *([f"--comment={comment}"] if comment else [])]
        out = str(self.folder / "out-%j")
        return int(self.ask("sbatch", "--parsable", "-o", out, *asked, "--wrap", script))

    def runs(self, job: int) -> bool:
        """Return whether a job's script has been started, and is running."""
        spool = self.folder / "spool"
        return any(spool.glob(f"job{job:05}/slurm_script")) and self.state(job) == "RUNNING"

    def state(self, job: int) -> str:
        """Return a job's state as Slurm shows it."""
        shown = self.ask("scontrol", "-o", "show", "job", str(job))
        return shown.partition("JobState=")[2].partition(" ")[0]

    def node_state(self) -> str:
        """Return the node's state."""
        return "".join({*self.ask("sinfo", "-h", "-o", "%T").split()})

    def record(self, job: int, restart: int = 0) -> Mapping[str, Any]:
        """Return a job's record; empty if there is none."""
        path = self.folder / f"jobs/{job}-{restart}.json"
        found: Mapping[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        return found

    @property
    def cpu_mhz(self) -> float:
        """The CPU's ceiling in its file."""
        return int((self.folder / "root" / CEILING).read_text()) / 1000.0

    def limits(self) -> tuple[float, float]:
        """Return the power limits of both GPUs in watts."""
        return self.nvml.get("limit_w", 0), self.nvml.get("limit_w", 1)

    def until(self, done: Callable[[], object], why: str, seconds: float = START_S) -> None:
        """Wait until a condition holds; otherwise fail with the logs."""
        end = time.monotonic() + seconds
        while not done():
            logs = {
                f.name: f.read_text(errors="replace")[-1500:] for f in self.folder.glob("*.log")
            }
            assert time.monotonic() < end, f"{why}: not within {seconds:g} s: {logs}"
            time.sleep(0.1)


@contextmanager
def slurm_node(
    folder: Path, nvml: FakeNvml, changed: tuple[str, str] = ("", ""), *, slurm: bool = True
) -> Iterator[SlurmNode]:
    """Start a node with idle GPUs at their original settings; end all processes afterwards.

    Without `slurm` only the actuator runs, for `SlurmNode.script`.
    """
    node = SlurmNode(folder, nvml, changed)
    node.write()
    try:
        for name in ("actuator", "slurmctld", "slurmd") if slurm else ("actuator",):
            node.start(name)
        node.until(lambda: answers(folder / "actuator.sock"), "the actuator")

        def idle() -> bool:
            done = run_to_end(("sinfo", "-h", "-o", "%T"), env=node.environ)
            return {*done.stdout.split()} == {"idle"}

        if slurm:
            node.until(idle, "the node")
        yield node
    finally:
        for process in reversed(node.processes.values()):
            process.terminate()
        for process in node.processes.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
