"""Jobs of a real Slurm: their requested settings are in force while they run, and restored afterwards."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nvml.fake import FakeNvml
from tests.nvml.fixtures import library
from tests.slurm.cluster import HELD, SlurmNode, missing, slurm_node

__all__ = ["library"]

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(550),
    pytest.mark.skipif(bool(missing()), reason=missing()),
]
ORIGINALS = (400.0, 300.0)
WISH = "jouletune:gpu.power_limit_w=200"


@pytest.fixture
def node(library: Path, tmp_path: Path) -> Iterator[SlurmNode]:
    nvml = FakeNvml(library, tmp_path / "nvml.state", manual=False, root_only=0.0)
    with slurm_node(tmp_path, nvml) as started:
        nvml.set("load", 1.0, 0)
        nvml.set("noise", 0.0)  # a busy GPU then draws its limit
        assert started.limits() == ORIGINALS
        yield started
        started.until(lambda: started.node_state() == "idle", "the node is in use, or drained")


def over(node: SlurmNode, job: int) -> bool:
    return node.state(job) in ("COMPLETED", "CANCELLED", "FAILED", "NODE_FAIL", "TIMEOUT")


def test_a_wish_is_in_force_on_the_jobs_own_gpu_and_its_energy_is_counted(node: SlurmNode) -> None:
    job = node.submit("sleep 8", WISH)
    node.until(lambda: node.record(job).get("state") == "leased", "the lease")
    assert node.limits() == (200.0, 300.0)
    node.until(lambda: node.record(job)["state"] == "ended", "the epilog")
    assert node.limits() == ORIGINALS
    record = node.record(job)
    assert record["ended_by"] == "the epilog" and record["lost"] == {}
    ((uuid, energy),) = record["energy"].items()
    assert record["devices"] == [uuid]
    assert abs(energy["energy_j"] - 200.0 * energy["seconds"]) <= 2.0 * energy["error_j"]
    assert 0.0 < energy["error_j"] < 0.1 * energy["energy_j"]


def test_twenty_jobs_leave_nothing_behind(node: SlurmNode) -> None:
    wishes = {
        "jouletune:gpu.power_limit_w=200": "ended",
        "jouletune:gpu.power_limit_w=400": "refused",
        "jouletune:gpu.clock_mhz=900": "refused",
        "jouletune:gpu.power_limit_w=200;reboot": "refused",
        "jouletune:gpu.power_limit_w=$(id -u)": "refused",
        "a user's own words": "",
    }
    jobs = {
        node.submit("sleep 1", comment): state
        for comment, state in [*wishes.items(), *wishes.items(), *wishes.items()]
    }
    cancelled = node.submit("sleep 60", WISH)
    refused = node.submit("true", WISH, "--gres=none")
    node.until(lambda: node.runs(cancelled), "the cancelled job", 200.0)
    node.ask("scancel", str(cancelled))
    jobs |= {cancelled: "ended", refused: "refused"}
    assert len(jobs) == 20
    node.until(lambda: all(over(node, job) for job in jobs), "all jobs", 300.0)
    node.until(
        lambda: {job: node.record(job).get("state", "") for job in jobs} == jobs, "their records"
    )
    assert node.limits() == ORIGINALS
    assert "no GPU of its own" in node.record(refused)["reason"]


@pytest.mark.parametrize("command", ["scancel", "scontrol requeue"])
def test_a_job_that_ends_in_its_prolog_leaves_nothing_behind(node: SlurmNode, command: str) -> None:
    job = node.submit("sleep 30", WISH)
    node.until(lambda: node.record(job).get("state") == "leased", "the lease")
    node.ask(*command.split(), str(job))
    node.until(lambda: node.record(job)["state"] == "ended", "the end of the lease")
    assert node.limits() == ORIGINALS


def test_a_requeued_job_has_a_new_lease(node: SlurmNode) -> None:
    job = node.submit("sleep 30", WISH, "--requeue")
    node.until(lambda: node.runs(job), "the first start")
    node.ask("scontrol", "requeue", str(job))
    node.until(lambda: node.record(job)["state"] == "ended", "the end of the first start")
    node.until(lambda: node.record(job, 1).get("state") == "leased", "the second start", 200.0)
    node.until(lambda: node.runs(job), "the second start")
    node.ask("scancel", str(job))
    node.until(lambda: node.record(job, 1)["state"] == "ended", "the end of the second start")
    assert node.limits() == ORIGINALS


@pytest.mark.parametrize("killed", ["slurmd", "actuator", "keeper"])
def test_every_kill_leaves_the_gpu_restored(node: SlurmNode, killed: str) -> None:
    job = node.submit("sleep 20", WISH)
    node.until(lambda: node.runs(job), "the job")
    assert node.limits()[0] == 200.0
    if killed == "keeper":
        os.kill(node.record(job)["pid"], signal.SIGKILL)
        node.until(lambda: node.limits() == ORIGINALS, "the actuator's grace")
    else:
        node.kill(killed)
        node.start(killed)
        node.until(lambda: node.limits()[0] == 200.0, "the lease again")
    node.until(lambda: over(node, job), "the job", 120.0)
    node.until(lambda: node.limits() == ORIGINALS, "the originals")
    node.until(lambda: node.record(job)["state"] == "ended", "the record")
    assert (node.record(job)["ended_by"] == "the epilog") == (killed != "keeper")
    assert bool(node.record(job).get("lost")) == (killed == "actuator")


@pytest.mark.parametrize("delay_s", [0.0, 0.3, 2.0, 4.0])
@pytest.mark.parametrize("killed", ["slurmd", "actuator", "agent"])
def test_a_hold_is_back_after_the_job_after_any_kill(
    node: SlurmNode, killed: str, delay_s: float
) -> None:
    """The delays fall before, into and after the prolog, and before the epilog."""

    def holds() -> bool:
        return node.nvml.get("limit_w", 0) == HELD["gpu.power_limit_w"]

    node.start("agent")
    node.until(holds, "the hold")
    job = node.submit("sleep 3", WISH)
    if delay_s == 4.0:
        node.until(lambda: node.runs(job), "the job")
        assert node.limits()[0] == 200.0
        delay_s = 2.5
    time.sleep(delay_s)
    node.kill(killed)
    if killed == "agent":
        node.until(lambda: over(node, job), "the job", 120.0)
        node.until(lambda: node.limits() == ORIGINALS, "the end of the agent's hold")
        return
    node.start(killed)
    node.until(lambda: over(node, job), "the job", 120.0)
    node.until(lambda: node.record(job).get("state") in ("ended", "refused"), "the record")
    node.until(holds, "the hold again")
    assert node.limits()[1] == ORIGINALS[1]


def test_a_job_with_a_whole_node_sets_its_cpus_too(node: SlurmNode) -> None:
    wish = f"{WISH},cpu.max_mhz=2000"
    refused = node.submit("true", wish)
    node.until(lambda: over(node, refused), "the job without the node")
    assert node.record(refused)["state"] == "refused"
    with node.drawing():
        job = node.submit("sleep 5", wish, "--partition=whole")
        node.until(lambda: node.runs(job), "the job")
        # it is allocated all GPUs
        assert (node.limits(), node.cpu_mhz) == ((200.0, 200.0), 2000.0)
        node.until(lambda: node.record(job)["state"] == "ended", "the end")
    assert (node.limits(), node.cpu_mhz) == (ORIGINALS, 2500.0)
    cpu = node.record(job)["energy"]["cpu"]
    assert abs(cpu["energy_j"] - 120.0 * cpu["seconds"]) <= 2.0 * cpu["error_j"]
    assert len(node.record(job)["energy"]) == 3


def test_a_job_takes_the_setting_of_a_hold_by_its_study(node: SlurmNode) -> None:
    row = {"setting": {"gpu.power_limit_w": 220, "gpu.clock_mhz": 1410}}
    baseline = {"gpu.power_limit_w": 400, "gpu.clock_mhz": 1410}
    hold = {"order": {"study": "fast-1", "plan": {"rows": [row]}, "baseline": baseline}, "row": 0}
    (node.folder / "holds").mkdir()
    (node.folder / "holds/gpu0.hold.json").write_text(json.dumps(hold))
    job = node.submit("sleep 3", "jouletune:profile=fast-1")
    node.until(lambda: node.record(job).get("state") == "leased", "the lease")
    assert node.limits() == (220.0, 300.0)
    node.until(lambda: node.record(job)["state"] == "ended", "the end")
    assert node.limits() == ORIGINALS


@pytest.mark.parametrize(
    ("changed", "gres", "why"),
    [
        (("PrologFlags=Alloc", "PrologFlags=Serial"), "gpu:1", "PrologFlags=Alloc"),
        (("Gres=gpu:2", "Gres=gpu:2,shard:4"), "shard:1", "Gres=shard"),
    ],
)
def test_what_a_prolog_cannot_know_is_refused(
    library: Path, tmp_path: Path, changed: tuple[str, str], gres: str, why: str
) -> None:
    nvml = FakeNvml(library, tmp_path / "nvml.state", manual=False, root_only=0.0)
    with slurm_node(tmp_path, nvml, changed) as node:
        job = node.submit("srun true", WISH, f"--gres={gres}")
        node.until(lambda: over(node, job), "the job")
        node.until(lambda: node.record(job).get("state") == "refused", "the record")
        assert why in node.record(job)["reason"]
        assert node.limits() == ORIGINALS
