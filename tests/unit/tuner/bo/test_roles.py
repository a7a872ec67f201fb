"""What names tell of knobs and metrics."""

from __future__ import annotations

import pytest

from tuner.bo.roles import Quantity, Role, is_ceiling, quantity, role

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
    Role.BATCH: ("batch_size bs bsz micro_batch max_num_seqs max_concurrency max_running_requests"),
    Role.CPU_CORES: "num_cpus cpu.cores cpu_cores CPUs cpus_per_task online_cpus cpu_threads",
    Role.PARALLEL: (
        "threads nthreads processes num_gpus cores instances n_jobs nproc OMP_NUM_THREADS tp "
        "tensor_parallel world_size ranks streams sm_count sockets "
        "n_shards n_threads_batch"
    ),
    Role.NONE: (
        "fan fan_speed absolute precision attention k0 gpu_mem_util n_gpu_layers "
        "core_voltage_mv clock_offset_mhz sampling_rate_hz refresh_rate_hz worker_memory_mb "
        "thread_affinity batch_timeout_ms dynamic_batching prefetch"
    ),
}


@pytest.mark.parametrize(
    ("name", "expected"), [(name, does) for does, names in NAMES.items() for name in names.split()]
)
def test_a_knobs_name_tells_what_it_does(name: str, expected: Role) -> None:
    assert role(name) is expected


@pytest.mark.parametrize(
    ("name", "ceiling"),
    [("max_num_seqs", True), ("Max_Concurrency", True), ("batch_size", False), ("bs", False)],
)
def test_a_ceiling_is_not_what_is_under_way(name: str, ceiling: bool) -> None:
    assert role(name) is Role.BATCH
    assert is_ceiling(name) is ceiling


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("latency_p99_ms", Quantity.TIME),
        ("makespan_s", Quantity.TIME),
        ("throughput_per_s", Quantity.RATE),
        ("power_w", Quantity.POWER),
        ("energy_j", Quantity.ENERGY),
        ("accuracy", Quantity.NONE),
        ("dropped", Quantity.NONE),
    ],
)
def test_a_metrics_name_tells_what_it_is(metric: str, expected: Quantity) -> None:
    assert quantity(metric) is expected


@pytest.mark.parametrize("metric", ["tokens_per_j", "throughput_per_w"])
def test_work_per_energy_is_no_energy(metric: str) -> None:
    assert quantity(metric) not in (Quantity.ENERGY, Quantity.POWER)
