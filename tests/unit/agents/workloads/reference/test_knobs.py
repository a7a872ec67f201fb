from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agents.host.http.knob_messages import knobs_reply
from agents.workloads.reference.knobs import knob_space
from tuner.core import Part


@given(cores=st.integers(1, 256))
def test_no_setting_oversubscribes_and_all_cores_can_be_used(cores: int) -> None:
    space = knob_space(cores)
    used = [int(s["instances"]) * int(s["threads"]) for s in space.grid()]
    assert max(used) == cores
    assert min(used) == 1
    assert space.default == {"instances": 1, "threads": cores, "batch_size": 1}
    assert all(k.part is Part.WORKLOAD for k in space.knobs)
    assert all(list(k.values) == sorted(k.values, key=int) for k in space.knobs)


def test_two_cores_have_two_ways_to_use_both() -> None:
    both = [
        (s["instances"], s["threads"])
        for s in knob_space(2).grid()
        if s["batch_size"] == 1 and int(s["instances"]) * int(s["threads"]) == 2
    ]
    assert both == [(1, 2), (2, 1)]


def test_the_first_allocator_is_the_default_and_each_is_combined_with_all() -> None:
    space = knob_space(2, ("glibc-keep", "glibc", "tcmalloc"))
    assert space.default["allocator"] == "glibc-keep"
    assert space.size == 3 * knob_space(2).size


def test_one_allocator_offers_no_choice() -> None:
    assert knob_space(2, ("glibc",)) == knob_space(2)


def test_threads_have_the_breaks_of_the_host_and_a_client_reads_them() -> None:
    space = knob_space(8, breaks=(4.0,))
    assert [k.breaks for k in space.knobs] == [(), (4.0,), ()]
    assert knobs_reply("r", "1", space, space.default).space() == space
