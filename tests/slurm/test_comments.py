"""A comment is any user's text: the page's scripts run with it, on fake GPUs without Slurm."""

from __future__ import annotations

import random
import re
import statistics
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.job.record import JobRecords
from tests.nvml.fake import FakeNvml
from tests.nvml.fixtures import library
from tests.slurm.cluster import PAGE, SlurmNode, slurm_node

__all__ = ["library"]

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
PARTS = (
    "gpu.power_limit_w=", "gpu.clock_mhz=", "cpu.max_mhz=", "gpu.power_limit_w", "profile=", "=", ",",
    "200", "149", "301", "250.5", "1e9", "-1", "nan", "\n", "'", '"', ";", "$(touch altered)", "`id`", "|",
    "../..", "%n", "\\", " ", "\x1b[2J", "jouletune:", "٢٥٠", "\U0001f600", "9" * 400,
)  # fmt: skip


@pytest.fixture
def node(library: Path, tmp_path: Path) -> Iterator[SlurmNode]:
    nvml = FakeNvml(library, tmp_path / "nvml.state", manual=False, root_only=0.0)
    with slurm_node(tmp_path, nvml, slurm=False) as started:
        yield started


def test_a_comment_is_within_its_grants(node: SlurmNode) -> None:
    rng, leased = random.Random(79), 0
    originals = (node.limits(), node.nvml.get("lock_max", 0), node.cpu_mhz)
    comments = ["jouletune:gpu.power_limit_w=200", "jouletune:gpu.power_limit_w=250.5"]
    comments += ["jouletune:" + "".join(rng.choices(PARTS, k=rng.randint(0, 6))) for _ in range(60)]
    for job, comment in enumerate(comments, 1):
        node.script("prolog", comment, job)
        own, other = node.limits()
        assert own == originals[0][0] or 150.0 <= own <= 300.0, repr(comment)
        assert (other, node.nvml.get("lock_max", 0), node.cpu_mhz) == (
            originals[0][1],
            *originals[1:],
        )
        leased += own != originals[0][0]
        node.script("epilog", comment, job)
        assert node.limits() == originals[0], repr(comment)
    assert leased > 0
    assert not list(Path.cwd().glob("altered"))


def test_each_component_of_a_heterogeneous_job_has_a_lease_of_its_own(node: SlurmNode) -> None:
    """Slurm gives each its own job id; on one node alone 22.05 never starts two of them."""
    for job, watts in ((1, 200), (2, 160)):
        ours = {"SLURM_HET_JOB_ID": "1", "SLURM_JOB_GPUS": f"{job - 1}"}
        node.script("prolog", f"jouletune:gpu.power_limit_w={watts}", job, **ours)
    assert node.limits() == (200.0, 160.0)
    node.script("epilog", "", 1, SLURM_HET_JOB_ID="1")
    assert node.limits() == (400.0, 160.0)
    node.script("epilog", "", 2, SLURM_HET_JOB_ID="1")
    assert node.limits() == (400.0, 300.0)


def test_the_energy_of_an_ended_job_goes_to_accounting(tmp_path: Path) -> None:
    (text,) = re.findall(r"```sh\n(#!/bin/sh\nrecord=.*?)```", PAGE.read_text(), re.DOTALL)
    called = tmp_path / "called"
    (tmp_path / "sacctmgr").write_text(f'#!/bin/sh\necho "$@" >>{called}\n')
    (tmp_path / "sacctmgr").chmod(0o755)
    records = JobRecords(tmp_path / "jobs")
    energy = {"GPU-a": {"energy_j": 12.5, "error_j": 1.0}, "cpu": {"energy_j": 3.25}}
    records.note("7-1", state="ended", energy=energy)
    partly = {"GPU-a": {"energy_j": 12.5}, "cpu": {"refused": "the counter was reset"}}
    records.note("9-0", state="ended", energy=partly)
    records.note("8-0", state="refused", reason="it is not granted")
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin", "JOULETUNE_JOBS": str(records.folder)}
    for job, restart in (("7", "1"), ("7", "0"), ("8", "0"), ("9", "0")):
        ours = {"SLURM_JOB_ID": job, "SLURM_JOB_RESTART_COUNT": restart}
        quick = text.replace("sleep 1", ":")
        subprocess.run(["sh", "-c", quick], env=environ | ours, check=True)
    assert called.read_text() == "-i modify job where jobid=7 set comment=energy_j=12.5+3.25\n"


def test_a_prolog_delays_a_job_by_little(node: SlurmNode) -> None:
    """Each: the median of 9. `make bench-job` measures more on a quiet machine."""
    seconds = []
    for job in range(1, 10):
        seconds.append(node.script("prolog", "jouletune:gpu.power_limit_w=200", job))
        assert node.limits()[0] == 200.0
        node.script("epilog", "", job)
    assert statistics.median(seconds) < 2.0
