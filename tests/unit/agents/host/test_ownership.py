"""The owners of the processes on a device, over a tree like the kernel's /proc.

Situations: NVIDIA/nvidia-docker issue 1483 (no numbers, or others', in containers), Syllo/nvtop issue 149.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from agents.host.processes.ownership import Attribution, ProcessOwners, WorkloadIdentity
from agents.host.processes.process_table import ProcessTable, listening_groups, service_of
from tuner.core import DeviceLost

AGENT = 50
PORT = 8000
BOOT_S = 1_700_000_000
TICKS = os.sysconf("SC_CLK_TCK")
VLLM, OTHER = "/system.slice/vllm.service", "/system.slice/other.service"
CONTAINERS = [
    "/system.slice/docker-{}.scope",
    "/docker/{}",
    "/machine.slice/libpod-{}.scope/container",
    "/kubepods.slice/kubepods-besteffort.slice/kubepods-pod1.slice/cri-containerd-{}.scope",
]


class Kernel:
    """A tree of /proc and /sys/fs/cgroup below a root."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._write("proc/stat", f"cpu  1 2 3 4 5 6 7\nbtime {BOOT_S}\n")
        self._write("proc/net/tcp", "  sl  local_address rem_address st\n")
        self.process(AGENT, "/system.slice/jouletune-agent.service")

    def process(
        self,
        pid: int,
        group: str = "/",
        *,
        parent: int = 1,
        job: int = 0,
        started_s: float = 0.0,
        program: str = "python3",
    ) -> int:
        """Create a process, and return its id."""
        ticks, fields = round(started_s * TICKS), ["0"] * 15
        text = f"{pid} (a b) c) S {parent} {job or pid} {' '.join(fields)} 0 {ticks} 0\n"
        self._write(f"proc/{pid}/stat", text.replace("a b) c", program))
        self._write(f"proc/{pid}/comm", f"{program}\n")
        self._write(f"proc/{pid}/cgroup", f"0::{group}\n")
        (self.root / "sys/fs/cgroup" / group.lstrip("/")).mkdir(parents=True, exist_ok=True)
        return pid

    def listens(self, pid: int, inode: int = 77) -> None:
        """Make a process listen on the port; the agent may read its files."""
        row = f" 0: 0100007F:{PORT:04X} 00000000:0000 0A 0:0 0:0 0 0 0 {inode} 1\n"
        with (self.root / "proc/net/tcp").open("a") as file:
            file.write(row)
        (self.root / f"proc/{pid}/fd").mkdir()
        (self.root / f"proc/{pid}/fd/3").symlink_to(f"socket:[{inode}]")

    def gone(self, pid: int) -> None:
        for file in sorted((self.root / f"proc/{pid}").rglob("*"), reverse=True):
            file.unlink() if not file.is_dir() or file.is_symlink() else file.rmdir()
        (self.root / f"proc/{pid}").rmdir()

    def group_id(self, group: str) -> int:
        return (self.root / "sys/fs/cgroup" / group.lstrip("/")).stat().st_ino

    def whose(
        self,
        pids: Collection[int],
        listening: Callable[[int], frozenset[int]] = lambda _: frozenset(),
        **fields: object,
    ) -> Attribution:
        """Return the owners of these processes for an agent with this identity of its workload."""
        identity = WorkloadIdentity(**fields)  # type: ignore[arg-type]
        owners = ProcessOwners(ProcessTable(self.root), identity, AGENT, listening)
        return owners.attribute(pids)

    def _write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def whose(ours: Collection[int], foreign: Collection[int] = ()) -> Attribution:
    return Attribution(frozenset(ours), frozenset(foreign))


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    return Kernel(tmp_path)


def test_a_unit_that_was_started_again_with_other_numbers_is_still_ours(kernel: Kernel) -> None:
    kernel.process(100, VLLM)
    kernel.process(200, OTHER)
    assert kernel.whose({100, 200}, unit="vllm.service") == whose({100}, {200})
    kernel.gone(100)
    kernel.process(300, f"{VLLM}/worker")
    assert kernel.whose({200, 300}, unit="vllm.service") == whose({300}, {200})


def test_the_process_of_the_pid_file_and_its_children_are_ours(kernel: Kernel) -> None:
    for pid in (100, 300):
        kernel.process(pid)
        kernel.process(pid + 1, parent=pid)
    kernel.process(200)
    numbers = [100]
    for first in (100, 300):
        numbers[0] = first
        attribution = kernel.whose({first + 1, 200}, processes=lambda: numbers)
        assert attribution == whose({first + 1}, {200})


@pytest.mark.parametrize("group", CONTAINERS)
def test_a_container_is_one_user_and_a_second_one_is_foreign(kernel: Kernel, group: str) -> None:
    kernel.process(100, group.format("a" * 8))
    kernel.process(101, group.format("a" * 8))
    kernel.process(200, group.format("b" * 8))
    kernel.listens(100)
    assert kernel.whose({101, 200}, port=PORT) == whose({101}, {200})


def test_work_of_an_mps_server_for_others_is_unknown(kernel: Kernel) -> None:
    kernel.process(100, VLLM, program="nvidia-cuda-mps")
    assert "clients not listed" in kernel.whose({100}, unit="vllm.service").unknown


def test_the_owner_of_a_port_is_found_by_its_group_if_its_files_are_another_users(
    kernel: Kernel,
) -> None:
    """An agent without rights may not look into /proc/PID/fd of other users' services."""
    kernel.process(100, f"{VLLM}/engine")
    kernel.process(200, OTHER)
    listening = frozenset({kernel.group_id(VLLM)})
    attribution = kernel.whose(
        {100, 200}, lambda port: listening if port == PORT else frozenset(), port=PORT
    )
    assert attribution == whose({100}, {200})


def test_a_service_that_reports_its_start_time_is_identified_by_it(kernel: Kernel) -> None:
    kernel.process(100, started_s=500.0)
    kernel.process(101, parent=100, started_s=530.0)
    kernel.process(200, started_s=90.0)
    attribution = kernel.whose({101, 200}, started_s=lambda: BOOT_S + 500.7)
    assert attribution == whose({101}, {200})
    assert kernel.whose({101, 200}, started_s=lambda: BOOT_S + 700.0).unknown


def test_a_start_at_the_same_moment_does_not_outweigh_the_port(kernel: Kernel) -> None:
    kernel.process(100, VLLM, started_s=10.0)
    kernel.process(200, OTHER, started_s=10.0)
    kernel.listens(100)
    attribution = kernel.whose({100, 200}, port=PORT, started_s=lambda: BOOT_S + 10.0)
    assert attribution == whose({100}, {200})


def test_siblings_of_one_job_are_one_user_unless_the_agent_is_in_it(kernel: Kernel) -> None:
    """A launcher starts the router that listens and the shards that compute."""
    kernel.process(100, job=90)
    kernel.process(101, job=90)
    kernel.process(200, job=190)
    kernel.listens(100)
    assert kernel.whose({101, 200}, port=PORT) == whose({101}, {200})
    kernel.process(AGENT, job=90)
    assert kernel.whose({101, 200}, port=PORT).unknown


def test_only_children_of_the_agent_are_ours_not_its_whole_control_group(kernel: Kernel) -> None:
    own = "/system.slice/jouletune-agent.service"
    kernel.process(100, own, parent=AGENT)
    kernel.process(200, own)
    assert kernel.whose({100, 200}) == whose({100}, {200})


@pytest.mark.parametrize(
    ("why", "listed", "words"),
    [
        ("numbers of another PID namespace, or hidepid", {100, 4_000_001}, "4000001"),
        ("only such", {4_000_001, 4_000_002}, "4000001, 4000002"),
        ("a proxy owns the port of an engine in another service", {200}, "200"),
    ],
)
def test_an_undeterminable_owner_is_unknown_and_not_foreign(
    kernel: Kernel, why: str, listed: set[int], words: str
) -> None:
    kernel.process(100, VLLM)
    kernel.process(200, OTHER)
    kernel.listens(100)
    attribution = kernel.whose(listed, port=PORT)
    assert not attribution.foreign, why
    assert words in attribution.unknown


def test_a_workload_that_is_restarting_owns_no_processes(kernel: Kernel) -> None:
    def away() -> list[int]:
        raise DeviceLost("it does not run")

    kernel.process(200, OTHER)
    attribution = kernel.whose({200}, processes=away, started_s=away)
    assert not attribution.foreign
    assert "200" in attribution.unknown


def test_the_server_of_mps_belongs_to_no_workload(kernel: Kernel) -> None:
    kernel.process(100, VLLM)
    kernel.process(60, OTHER, program="nvidia-cuda-mps-server"[:15])
    assert kernel.whose({60, 100}, unit="vllm.service") == whose({100})


@pytest.mark.parametrize(
    ("path", "service"),
    [
        ("/", ""),
        ("/system.slice", ""),
        ("/init.scope", ""),
        ("/user.slice/user-1000.slice/session-3.scope", ""),
        ("/user.slice/user-1000.slice/user@1000.service/init.scope", ""),
        (
            "/user.slice/user-1000.slice/user@1000.service/app.slice/llm.service/w",
            "/user.slice/user-1000.slice/user@1000.service/app.slice/llm.service",
        ),
        (
            "/system.slice/system-vllm.slice/vllm@1.service",
            "/system.slice/system-vllm.slice/vllm@1.service",
        ),
        (
            "/system.slice/slurmstepd.scope/job_7/step_0/user/task_1",
            "/system.slice/slurmstepd.scope/job_7",
        ),
        ("/slurm/uid_1000/job_7/step_batch/task_0", "/slurm/uid_1000/job_7"),
        (
            "/system.slice/n1_slurmstepd.scope/s5K1KKYAYG5D00/step_batch/user/task_0",
            "/system.slice/n1_slurmstepd.scope/s5K1KKYAYG5D00",
        ),
        ("/pbs_jobs.service/jobid/7.head", "/pbs_jobs.service/jobid/7.head"),
        ("/system.slice/htcondor/condor_slot1_1@n1", "/system.slice/htcondor/condor_slot1_1@n1"),
        ("/lxc.payload.llm/init.scope", "/lxc.payload.llm"),
        ("/lxc.payload/llm/user.slice/user-0.slice/session-1.scope", "/lxc.payload/llm"),
        ("/../..", ""),
        ("/../../system.slice/llm.service", "/../../system.slice/llm.service"),
        *(
            (path, path)
            for path in (f"/system.slice/containerd.service/pod1.slice:cri-containerd:{64 * 'a'}",)
        ),
    ],
)
def test_a_login_or_the_whole_machine_is_not_a_service(path: str, service: str) -> None:
    assert service_of(path) == service


def test_the_kernel_reports_the_listeners_of_this_host() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert ProcessTable().owners(port) == {os.getpid()}
        groups = listening_groups(port)
    if not groups:
        pytest.skip("this kernel tells no control group of a socket (before Linux 5.8)")
    assert len(groups) == 1
    assert not listening_groups(port)


def test_a_process_is_found_below_its_parent() -> None:
    command = [sys.executable, "-c", "input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as child:
        table = ProcessTable()
        assert list(table.line(child.pid))[:2] == [child.pid, os.getpid()]
        started_s, mine_s = table.started_s(child.pid), table.started_s(os.getpid())
        child.communicate(b"\n")
    assert started_s is not None and mine_s is not None and started_s >= mine_s
