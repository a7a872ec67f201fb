"""The users of a GPU's joules, over the fake NVML."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.devices.nvidia import device
from agents.devices.nvidia.diagnosis import examine
from agents.devices.nvidia.nvml import Gpu, listed
from agents.devices.nvidia.sharing import shared_by
from tests.nvml.fake import FakeNvml

pytestmark = pytest.mark.usefixtures("sparse_check")


def gpu() -> Gpu:
    return Gpu(listed().uuids[0])


def process(root: Path, pid: int, group: str) -> float:
    """Create a process in a control group; return its id for the fake NVML."""
    (root / f"proc/{pid}").mkdir(parents=True)
    (root / f"proc/{pid}/cgroup").write_text(f"0::{group}\n")
    return float(pid)


def test_a_gpu_without_other_users_is_not_shared(nvml: FakeNvml, tmp_path: Path) -> None:
    assert shared_by(gpu(), tmp_path) == ""
    nvml.set("own_pid", process(tmp_path, 100, "/system.slice/server.service"))
    nvml.set("foreign_pid", process(tmp_path, 101, "/system.slice/server.service"))
    assert shared_by(gpu(), tmp_path) == ""


@pytest.mark.parametrize(
    ("key", "value", "word"),
    [
        ("mig", 1.0, "whole board"),
        ("vgpu", 1.0, "vGPU"),
        ("mps_clients", 3.0, "processes now: 3"),
    ],
)
def test_the_division_of_a_board_is_named(
    nvml: FakeNvml, tmp_path: Path, key: str, value: float, word: str
) -> None:
    nvml.set(key, value)
    assert word in shared_by(gpu(), tmp_path)


def test_processes_of_two_containers_share_it(nvml: FakeNvml, tmp_path: Path) -> None:
    nvml.set("own_pid", process(tmp_path, 100, "/docker/a"))
    nvml.set("foreign_pid", process(tmp_path, 101, "/docker/b"))
    assert "2 services or containers" in shared_by(gpu(), tmp_path)


HYBRID = "12:devices:{0}\n1:name=systemd:{0}\n0::/system.slice/containerd.service\n"
CGROUPS = {
    "v2": "0::{0}\n",
    "v1": "12:memory:{0}\n11:pids:{0}\n2:cpuset:/\n",
    "hybrid": HYBRID,
    "root beside it": "1:name=systemd:{0}\n0::/\n",
    "within another": "0::/system.slice/docker-c.scope/docker/{1}\n",
    "in a cluster's node": "0::/docker/c/kubelet.slice/kubepods.slice/cri-{1}.scope\n",
}


@pytest.mark.parametrize("text", CGROUPS.values(), ids=list(CGROUPS))
@pytest.mark.parametrize("second", ["a", "b"])
def test_containers_are_distinguished_in_every_hierarchy(
    nvml: FakeNvml, tmp_path: Path, text: str, second: str
) -> None:
    for key, pid, name in (("own_pid", 100, "a"), ("foreign_pid", 101, second)):
        nvml.set(key, process(tmp_path, pid, "/"))
        (tmp_path / f"proc/{pid}/cgroup").write_text(text.format(f"/docker/{name}", name))
    assert ("2 services or containers" in shared_by(gpu(), tmp_path)) is (second == "b")


def test_the_mps_server_is_not_a_second_user(nvml: FakeNvml, tmp_path: Path) -> None:
    nvml.set("own_pid", process(tmp_path, 100, "/docker/a"))
    nvml.set("foreign_pid", process(tmp_path, 101, "/system.slice/mps.service"))
    (tmp_path / "proc/101/comm").write_text("nvidia-cuda-mps\n")
    assert shared_by(gpu(), tmp_path) == ""


def test_from_a_container_others_are_counted_though_not_seen(
    nvml: FakeNvml, tmp_path: Path
) -> None:
    nvml.set("own_pid", process(tmp_path, 100, "/"))
    nvml.set("foreign_pid", 101.0)
    assert "1 more invisible processes compute" in shared_by(gpu(), tmp_path)


def test_an_agent_and_its_doctor_name_the_scope_of_their_joules(
    nvml: FakeNvml, tmp_path: Path
) -> None:
    def said() -> dict[str, bool | None]:
        symptoms = {s.about: s for s in examine(tmp_path, tmp_path / "no.sock", nvml)}
        return {symptoms["nvidia:0: sharing"].seen: symptoms["nvidia:0: sharing"].well}

    (tmp_path / ".dockerenv").touch()
    assert list(said().values()) == [True]
    assert "this container" in next(iter(said()))
    nvml.set("mig", 1.0)
    assert list(said().values()) == [False]
    side = device.attach(
        listed().uuids[0], socket=tmp_path / "none", state_dir=None, clock=nvml, root=tmp_path
    )
    assert "MIG" in side.shared
    side.close()
