"""A Prolog's environment, and the GPUs behind its gres ids."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.job.slurm import has_node, job_of, require_alloc, seen, uuids_of
from tests.errors import raised
from tuner.errors import ConfigError, InvalidInput, NotFound, TuningError

PROLOG = {
    "SLURM_JOB_ID": "12",
    "SLURM_JOB_UID": "1000",
    "SLURM_JOB_RESTART_COUNT": "1",
    "SLURM_JOB_COMMENT": 'x y; $(id) "z"',
    "SLURM_JOB_GPUS": "0,2",
}
"""The variables that we read, as Slurm 22.05.8 sets them."""


def tree(root: Path, minors: Mapping[int, str]) -> None:
    for minor, uuid in minors.items():
        shown = root / f"proc/driver/nvidia/gpus/0000:{minor:02}:00.0/information"
        shown.parent.mkdir(parents=True)
        shown.write_text(
            f"Model: \t A100\nIRQ: \t 9\nGPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n"
        )


def uuids(folder: Path, gres: str, conf: str = "", **environ: str) -> list[str]:
    (folder / "gres.conf").write_text(gres)
    (folder / "slurm.conf").write_text(conf)
    ours = {"SLURM_CONF": str(folder / "slurm.conf"), "JOULETUNE_ROOT": str(folder)}
    return uuids_of(job_of({**PROLOG, **ours, **environ}))


@pytest.fixture
def node(tmp_path: Path) -> Path:
    tree(tmp_path, {0: "GPU-a0", 1: "GPU-a1", 2: "GPU-a2", 3: "GPU-a3", 10: "GPU-aa"})
    return tmp_path


def test_a_job_is_read_from_the_prologs_environment() -> None:
    job = job_of(PROLOG)
    assert (job.key, job.uid, job.gpus) == ("12-1", 1000, (0, 2))
    assert job.comment == 'x y; $(id) "z"'


@pytest.mark.parametrize(
    "changed",
    [
        {"SLURM_JOB_ID": ""}, {"SLURM_JOB_ID": "../1"}, {"SLURM_JOB_ID": "-1"}, {"SLURM_JOB_ID": "١"},
        {"SLURM_JOB_UID": "root"}, {"SLURM_JOB_RESTART_COUNT": "1\n"},
    ],
)  # fmt: skip
def test_an_environment_of_no_prolog_is_refused(changed: dict[str, str]) -> None:
    with raised(InvalidInput):
        job_of(PROLOG | changed)


@pytest.mark.parametrize("listed", ["0-3", "a100:1", "0:1", "0,"])
def test_gpus_of_another_form_are_refused_where_they_count(listed: str) -> None:
    job = job_of({**PROLOG, "SLURM_JOB_GPUS": listed})
    with raised(InvalidInput, listed):
        uuids_of(job)


@pytest.mark.parametrize(
    ("gres", "expected"),
    [
        ("Name=gpu File=/dev/nvidia[0-3]\n", ["GPU-a0", "GPU-a2"]),
        ("Name=gpu Type=a100 File=/dev/nvidia[1-3,10] # all\n", ["GPU-a1", "GPU-a3"]),
        ("name=gpu file=/dev/nvidia0\n\nName=gpu \\\n File=/dev/nvidia2\nName=gpu File=/dev/nvidia10",
         ["GPU-a0", "GPU-aa"]),
        ("AutoDetect=nvml\n", ["GPU-a0", "GPU-a2"]),
        ("Name=scratch Count=100\nName=gpu File=/dev/nvidia[1,2-3]\n", ["GPU-a1", "GPU-a3"]),
    ],
)  # fmt: skip
def test_ids_number_the_files_of_gres_conf(node: Path, gres: str, expected: list[str]) -> None:
    assert uuids(node, gres) == expected


@pytest.mark.parametrize(
    ("gres", "kind"),
    [
        ("Name=gpu File=/dev/nvidia[3,1,2]\n", ConfigError),
        ("Name=gpu Count=2\nName=gpu File=/dev/nvidia[1-3]\n", ConfigError),
        ("Name=gpu MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap21\n", ConfigError),
        ("NodeName=n1 Name=gpu File=/dev/nvidia[0-3]\n", ConfigError),
        ("Name=gpu File=/dev/gpu-a,/dev/gpu-b\n", ConfigError),
        ("Name=gpu File=/dev/nvidia1,/dev/nvidia2\n", ConfigError),
        ("Name=gpu File=/dev/nvidia1-3\n", ConfigError),
        ("Name=gpu File=/dev/dri/card[0-3]\n", ConfigError),
        ("Name=gpu File=/dev/nvidia0\nName=gpu File=/dev/dri/card2\n", ConfigError),
        ("Name=gpu MultipleFile=/dev/nvidia[0-3]\n", ConfigError),
        ("Name=gpu File=/dev/nvidia[-1]\n", ConfigError),
        ("Name=gpu File=/dev/nvidia[1,,2]\n", ConfigError),
        ("Name=gpu Count=4\n", ConfigError),
        ("AutoDetect=off\n", ConfigError),
        ("AutoDetect=off Name=gpu File=/dev/nvidia[0-1]\n", NotFound),
        ("Name=gpu File=/dev/nvidia[0-1]\n", NotFound),
        ("Name=gpu File=/dev/nvidia[0,1,7]\n", NotFound),
    ],
)
def test_an_environment_without_the_gpus_identity_is_refused(
    node: Path, gres: str, kind: type[TuningError]
) -> None:
    with raised(kind):
        uuids(node, gres)


def test_another_drivers_gpu_is_refused_by_name(node: Path) -> None:
    with raised(ConfigError, "/dev/dri/card1", "/dev/nvidiaN"):
        uuids(node, "Name=gpu File=/dev/nvidia[0-1]\nName=gpu File=/dev/dri/card1\n")


def test_gpus_that_are_found_in_another_order_than_their_files_are_refused(node: Path) -> None:
    gpus = node / "proc/driver/nvidia/gpus"
    (gpus / "0000:00:00.0").rename(gpus / "0000:ff:00.0")
    with raised(ConfigError, "in order"):
        uuids(node, "AutoDetect=nvml\n")


@given(st.text(alphabet="Namegpu=Fil/dv[]-,0123 \n\\#", max_size=80))
def test_any_gres_conf_gives_a_job_gpus_of_this_host_or_none(text: str) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        tree(folder, {0: "GPU-a0", 1: "GPU-a1", 2: "GPU-a2"})
        try:
            assert {*uuids(folder, text)} <= {"GPU-a0", "GPU-a1", "GPU-a2"}
        except TuningError:
            return


def test_a_file_that_includes_itself_is_refused(node: Path) -> None:
    with raised(ConfigError, "included"):
        uuids(node, "Name=gpu File=/dev/nvidia[0-3]\n", "Include slurm.conf\n")


@pytest.mark.parametrize(
    ("more", "conf", "shared"),
    [
        ("", "NodeName=n[1-9] Gres=gpu:4\n", False),
        ("", "NodeName=m1,n[1-9] gres=gpu:a100:4,shard:8\n", True),
        ("", "NodeName=DEFAULT Gres=shard:8\nNodeName=n[1-9] CPUs=2\n", True),
        ("", "NodeName=m[1-9] Gres=mps:8\n", False),
        ("Name=mps Count=400\n", "", True),
        ("Name=mps Count=400\n", "PartitionName=p OverSubscribe=EXCLUSIVE\n", False),
        ("NodeName=m1 Name=shard Count=8\n", "", False),
        ('Name = "shard" Count = 8\n', "", True),
        ("", 'NodeName = "n2" Gres = "shard:8,gpu:4"\n', True),
        ("", "NodeName=n[1-9] Gres+=shard:8\n", True),
        ("Include more.conf\n", "", True),
        ("", "include more.conf\n", True),
    ],
)
def test_a_gpu_that_may_be_shared_is_refused_by_name(
    node: Path, more: str, conf: str, shared: bool
) -> None:
    gres = f"Name=gpu File=/dev/nvidia[0-3]\n{more}"
    (node / "more.conf").write_text("NodeName=n2 Name=shard Gres=gpu:4,shard:8\n")
    assert uuids(node, gres, conf, SLURM_JOB_GPUS="") == []
    environ = {"SLURMD_NODENAME": "n2", "SLURM_JOB_PARTITION": "p"}
    if not shared:
        assert uuids(node, gres, conf, **environ) == ["GPU-a0", "GPU-a2"]
        return
    with raised(InvalidInput, "may be shared: its node has Gres="):
        uuids(node, gres, conf, **environ)


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("PrologFlags=Alloc\n", True),
        ("prologflags = NoHold,alloc\n", True),
        ('PrologFlags="Alloc"\n', True),
        ("PrologFlags=Contain # implies Alloc\n", True),
        ("PrologFlags=Serial\n", False),
        ("#PrologFlags=Alloc\n", False),
        ("", False),
    ],
)
def test_prologflags_are_looked_at(tmp_path: Path, text: str, fits: bool) -> None:
    file = tmp_path / "slurm.conf"
    file.write_text(text)
    job = job_of({**PROLOG, "SLURM_CONF": str(file)})
    if fits:
        return require_alloc(job)
    with raised(ConfigError, "PrologFlags=Alloc"):
        require_alloc(job)
    require_alloc(job_of({**PROLOG, "SLURM_CONF": str(file), "JOULETUNE_JOB_GPUS": "GPU-a0"}))


@pytest.mark.parametrize(
    ("lines", "environ", "whole"),
    [
        ("PartitionName=all OverSubscribe=EXCLUSIVE Nodes=n[1-9]", {}, True),
        ("partitionname=all Nodes=n1 \\\n oversubscribe=exclusive # all of it", {}, True),
        ("PartitionName=all Nodes=n1", {}, False),
        ("PartitionName=all Nodes=n1", {"SLURM_JOB_OVERSUBSCRIBE": "NO"}, True),
        ("PartitionName=all Nodes=n1", {"SLURM_JOB_OVERSUBSCRIBE": "OK"}, False),
        ("PartitionName=all2 OverSubscribe=EXCLUSIVE\nPartitionName=all", {}, False),
        ("PartitionName=al. OverSubscribe=EXCLUSIVE", {}, False),
        ("PartitionName=all OverSubscribe=EXCLUSIVELY", {}, False),
        ("PartitionName=all OverSubscribe=FORCE", {}, False),
    ],
)
def test_a_whole_node_is_the_partitions_or_the_jobs_own_word(
    tmp_path: Path, lines: str, environ: dict[str, str], whole: bool
) -> None:
    (tmp_path / "slurm.conf").write_text(f"{lines}\n")
    conf = {"SLURM_CONF": str(tmp_path / "slurm.conf"), "SLURM_JOB_PARTITION": "all"}
    assert has_node(job_of(PROLOG | conf | environ)) is whole


@pytest.mark.parametrize(
    "folder",
    [
        "system.slice/slurmstepd.scope/job_12/step_batch",
        "system.slice/n1_slurmstepd.scope/job_12",
        "system.slice/slurmstepd.scope/s5K1KKYAYG5D00/step_batch",
        "memory/slurm/uid_1000/job_12",
        "freezer/slurm_n1/uid_1000/job_12",
        "../../../spool/n1/n1_12.4294967291",
    ],
)
def test_a_job_that_is_on_the_node_is_seen(tmp_path: Path, folder: str) -> None:
    (tmp_path / "slurm.conf").write_text("SlurmdSpoolDir=/spool/%n\n")
    conf = str(tmp_path / "slurm.conf")
    job = job_of(
        PROLOG | {"SLURMD_NODENAME": "n1", "SLURM_CONF": conf, "JOULETUNE_ROOT": str(tmp_path)}
    )
    top = tmp_path / "sys/fs/cgroup"
    top.mkdir(parents=True)
    (top / folder.replace("12", "123").replace("/s5", "/system/5")).mkdir(parents=True)
    assert not seen(job)
    (top / folder).mkdir(parents=True)
    assert seen(job)


def test_a_job_is_seen_where_a_folder_vanishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def vanishes(self: Path, pattern: str) -> Iterator[Path]:
        raise FileNotFoundError(pattern)

    monkeypatch.setattr(Path, "glob", vanishes)
    assert seen(job_of({**PROLOG, "JOULETUNE_ROOT": str(tmp_path)}))
