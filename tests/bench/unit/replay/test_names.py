"""The roles of a foreign table's knobs, from their names."""

from __future__ import annotations

import pytest

from jouletune_bench.replay.names import roles_of
from tuner.core import Role

NAMES = {
    Role.MEMORY_CLOCK: (
        "gpu.mem_clock_mhz mem_mhz emc.freq_khz EMC_freq ddr_freq_mhz vram_clock_mhz mclk_mhz "
        "fclk_mhz uncore_freq_mhz ram_freq_mhz bus_freq_khz ddr_mts mclk mem_clk lmc"
    ),
    Role.CPU_CLOCK: (
        "cpu.clock_mhz cpu_freq_khz scaling_max_freq big_freq_khz a53_freq_mhz policy0_khz"
    ),
    Role.CORE_CLOCK: (
        "gpu.clock_mhz gpu_clock_mhz sm_mhz clock_mhz gpu.freq_khz sclk gfxclk clocks_sm "
        "clock_speed core_clk gpu_clock_limit ghz fmax lgc processing_clock_mhz"
    ),
    Role.POWER_LIMIT: (
        "gpu.power_limit_w power_cap_w tdp_w cap_w pl pl1 pcap watts power_budget ppt_limit "
        "rapl_limit_uw"
    ),
    Role.BATCH: "batch_size bs bsz micro_batch",
    Role.CEILING: "max_num_seqs Max_Concurrency max_running_requests",
    Role.PARALLEL: (
        "num_cpus cpu.cores cpu_cores CPUs cpus_per_task online_cpus cpu_threads "
        "threads nthreads processes num_gpus cores instances n_jobs nproc OMP_NUM_THREADS tp "
        "tensor_parallel world_size ranks streams sm_count sockets "
        "n_shards n_threads_batch"
    ),
    Role.UNKNOWN: (
        "fan fan_speed absolute precision attention k0 gpu_mem_util n_gpu_layers "
        "core_voltage_mv clock_offset_mhz sampling_rate_hz refresh_rate_hz worker_memory_mb "
        "thread_affinity batch_timeout_ms dynamic_batching prefetch"
    ),
}


@pytest.mark.parametrize(
    ("name", "expected"), [(name, does) for does, names in NAMES.items() for name in names.split()]
)
def test_a_knobs_role_follows_from_its_name(name: str, expected: Role) -> None:
    assert roles_of([name]) == {name: expected}


@pytest.mark.parametrize("beside", ["sm_mhz", "gpu.power_limit_w"])
def test_a_cpu_beside_a_gpu_is_its_host(beside: str) -> None:
    assert roles_of(["cpu_freq_khz", beside])["cpu_freq_khz"] is Role.HOST_CLOCK


def test_cores_are_a_hosts_only_where_a_gpu_is_named() -> None:
    assert roles_of(["num_cpus", "num_gpus"])["num_cpus"] is Role.HOST_CORES
    assert roles_of(["num_cpus", "clock_mhz"])["num_cpus"] is Role.PARALLEL
