"""The kernel's files on processors: parsed whole, or refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.host.machine import CPUS, busy_seconds, core_breaks, model_name
from tests.errors import raised
from tuner.core import MeasurementError

HZ = os.sysconf("SC_CLK_TCK")


def put(root: Path, cpu: int, **files: str | int) -> None:
    """Write the kernel's files of one CPU; `node` is a folder."""
    places = {
        "package": "topology/physical_package_id",
        "core": "topology/core_cpus_list",
        "siblings": "topology/thread_siblings_list",
        "cache": "cache/index3/shared_cpu_list",
    }
    folder = root / CPUS / f"cpu{cpu}"
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        if name == "node":
            (folder / f"node{content}").mkdir()
            continue
        file = folder / places[name]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{content}\n")


def server(root: Path, sockets: int, cores: int, cache: int) -> None:
    """Write a server with two threads a core: first all cores, socket by socket, then second threads."""
    total = sockets * cores
    for cpu in range(2 * total):
        core = cpu % total
        shared = core // cache * cache
        put(
            root,
            cpu,
            package=core // cores,
            core=f"{core},{core + total}",
            cache=f"{shared}-{shared + cache - 1}",
            node=core // cores,
        )


def test_sockets_and_second_threads_are_breaks(tmp_path: Path) -> None:
    server(tmp_path, sockets=2, cores=4, cache=4)
    assert core_breaks(range(16), tmp_path) == (4.0, 8.0)
    assert core_breaks(range(4), tmp_path) == ()


def test_each_level_3_cache_is_a_break(tmp_path: Path) -> None:
    server(tmp_path, sockets=1, cores=8, cache=2)
    assert core_breaks(range(16), tmp_path) == (2.0, 4.0, 6.0, 8.0)


def test_only_the_cpus_in_use_and_their_order_determine_the_breaks(tmp_path: Path) -> None:
    server(tmp_path, sockets=2, cores=4, cache=4)
    assert core_breaks([2, 3, 6, 7], tmp_path) == (2.0,)
    assert core_breaks([0, 4, 1, 5], tmp_path) == (1.0,)
    assert core_breaks([0, 1, 8, 9], tmp_path) == (2.0,)


def test_threads_beside_their_core_are_not_a_second_half(tmp_path: Path) -> None:
    """Performance cores with two threads each, then efficient cores with one: a hybrid CPU."""
    for cpu in range(8):
        core = f"{cpu // 2 * 2}-{cpu // 2 * 2 + 1}" if cpu < 4 else str(cpu)
        put(tmp_path, cpu, package=0, core=core, cache="0-7")
    assert core_breaks(range(8), tmp_path) == ()


def test_the_older_file_that_lists_the_threads_of_a_core_is_read_too(tmp_path: Path) -> None:
    for cpu in range(4):
        put(tmp_path, cpu, package=0, siblings=f"{cpu % 2},{cpu % 2 + 2}")
    assert core_breaks(range(4), tmp_path) == (2.0,)


def test_a_guest_with_one_node_and_no_caches_has_no_breaks(tmp_path: Path) -> None:
    for cpu in range(4):
        put(tmp_path, cpu, package=-1 if cpu % 2 else 0, core=cpu, node=0)
    assert core_breaks(range(4), tmp_path) == ()


def test_an_unreported_machine_opens_no_release(tmp_path: Path) -> None:
    server(tmp_path, sockets=2, cores=4, cache=4)
    offline = tmp_path / CPUS / "cpu3"
    for file in sorted(offline.rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    assert core_breaks([0, 1, 2, *range(4, 16)], tmp_path) == (3.0, 11.0)
    assert core_breaks([3, 0, 1], tmp_path) == ()
    assert core_breaks(range(4), tmp_path / "nothing") == ()
    assert core_breaks([], tmp_path) == ()


@given(st.lists(st.integers(0, 10**12), min_size=7, max_size=10), st.integers(1, 3))
def test_user_nice_system_and_interrupts_are_work(ticks: list[int], gap: int) -> None:
    text = f"cpu{' ' * gap}{' '.join(map(str, ticks))}\ncpu0 9 9 9 9\n"
    worked = ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6]
    assert busy_seconds(text) == pytest.approx(worked / HZ)


@given(st.text(max_size=80).filter(lambda text: not text.startswith("cpu ")))
def test_text_in_another_form_is_a_measurement_error(text: str) -> None:
    with raised(MeasurementError, "/proc/stat"):
        busy_seconds(text)


@pytest.mark.parametrize("text", ["", "cpu", "cpu 1 2 3", "cpu 1 2 3 4 5 6 -7", "cpu0 1 2 3 4"])
def test_too_little_is_refused(text: str) -> None:
    with pytest.raises(MeasurementError):
        busy_seconds(text)


def test_an_arm_kernel_names_no_model() -> None:
    assert model_name("processor\t: 0\nBogoMIPS\t: 50.00\nmodel name\t:\n") == "unknown CPU"
