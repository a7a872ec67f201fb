"""Random laws have the properties of every law of physics, for all constants."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from jouletune_bench.replay.names import roles_of
from tuner.bo.physics import Laws, draw_laws
from tuner.core import Kind, Role

EVERY = (
    "gpu.clock_mhz", "gpu.mem_clock_mhz", "cpu.clock_mhz", "gpu.power_limit_w", "batch_size",
    "threads", "fan",
)  # fmt: skip
RISING = torch.linspace(0.2, 2.0, 19, dtype=torch.float64)


def laws_of(names: Sequence[str], ratios: Tensor) -> Laws:
    """Return the laws of knobs whose roles follow from their names."""
    roles = roles_of(names)
    return draw_laws([roles[name] for name in names], ratios)


def alone(name: str, values: Tensor = RISING) -> Laws:
    """Return the laws over one knob, from its least to its greatest value."""
    return laws_of([name], values[:, None])


def rises(laws: Tensor) -> bool:
    return bool((laws.diff(dim=1) >= -1e-9).all())


@pytest.mark.parametrize("names", [*((n,) for n in EVERY), EVERY, ("threads", "num_gpus")])
def test_at_the_baseline_every_law_is_one(names: tuple[str, ...]) -> None:
    laws = laws_of(names, torch.ones(1, len(names), dtype=torch.float64))
    for part in (laws.work, laws.step, laws.power):
        assert float(part.abs().max()) < 1e-9


@pytest.mark.parametrize(
    "name", ["gpu.clock_mhz", "gpu.mem_clock_mhz", "cpu.clock_mhz", "power_limit_w"]
)
def test_more_clock_or_power_never_makes_work_slower(name: str) -> None:
    laws = alone(name)
    assert rises(-laws.work)
    assert rises(-laws.step)


@pytest.mark.parametrize("name", ["gpu.clock_mhz", "gpu.mem_clock_mhz", "power_limit_w"])
def test_more_clock_or_allowance_never_draws_less_power(name: str) -> None:
    assert rises(alone(name).power)


def test_a_clock_that_is_halved_costs_every_law_time_and_some_of_them_little() -> None:
    half = alone("gpu.clock_mhz", torch.tensor([0.5], dtype=torch.float64)).work.exp()
    assert float(half.max()) <= 2.0 + 1e-9
    assert float(half.min()) >= 1.0 - 1e-9
    assert float(half.min()) < 1.1
    assert float(half.max()) > 1.9
    assert float(half.median()) > 1.5, "most of the time follows the clock"


def test_laws_disagree_where_half_a_clock_saves_energy() -> None:
    half = alone("gpu.clock_mhz", torch.tensor([0.5], dtype=torch.float64))
    energy = half.of(Kind.ENERGY, stepwise=False)
    assert bool((energy < 0.0).any())
    assert bool((energy > 0.0).any())


def test_where_the_clock_binds_a_power_limit_is_not_felt() -> None:
    """A device runs at the lower of the two: at a quarter of the clock a high power limit never binds."""
    ratios = torch.tensor([[c, w] for c in (1.0, 0.25) for w in (1.0, 0.7)], dtype=torch.float64)
    laws = laws_of(["gpu.clock_mhz", "gpu.power_limit_w"], ratios)
    fast, slow = ((laws.work[:, i + 1] - laws.work[:, i]).abs() > 1e-9 for i in (0, 2))
    assert bool((fast | ~slow).all()), "what is felt at a low clock is felt at a high one"
    assert float(slow.sum()) < 0.5 * float(fast.sum())
    unfelt = ~slow
    assert torch.allclose(laws.power[unfelt, 2], laws.power[unfelt, 3])


def test_a_larger_batch_never_shortens_its_step() -> None:
    assert rises(alone("batch_size").step)


def test_a_batchs_time_is_shared_by_its_items() -> None:
    laws = alone("batch_size")
    assert torch.allclose(laws.work, laws.step - RISING.log())


def test_without_a_batch_an_item_takes_one_step() -> None:
    laws = laws_of(["gpu.clock_mhz", "threads"], torch.rand(5, 2, dtype=torch.float64) + 0.5)
    assert torch.equal(laws.work, laws.step)


def test_some_laws_gain_nothing_from_more_threads_and_some_are_slowed_down() -> None:
    work = alone("threads", torch.tensor([0.25, 0.5], dtype=torch.float64)).work
    assert bool((work > 0.5).any())
    assert bool((work < 0.05).any())
    assert bool((work < -0.01).any())


def test_the_effect_of_an_unknown_knob_is_uncertain() -> None:
    laws = alone("k0", torch.tensor([2.0], dtype=torch.float64))
    for part in (laws.work, laws.power):
        assert 0.3 < float((part > 0.0).double().mean()) < 0.7


def test_a_little_of_an_unknown_knob_may_be_better_than_much() -> None:
    work = alone("block_size_x", torch.tensor([2.0, 32.0], dtype=torch.float64)).work
    liked = work[:, 0] < 0.0
    assert float((work[liked, 1] > work[liked, 0]).double().mean()) > 0.2
    assert float(work.abs().max()) <= 3.0 + 1e-9


def test_a_quantity_follows_from_time_and_power() -> None:
    laws = laws_of(EVERY, torch.rand(6, len(EVERY), dtype=torch.float64) + 0.5)
    energy = laws.power + laws.work
    assert torch.equal(laws.of(Kind.ENERGY, stepwise=True), energy)
    assert torch.equal(laws.of(Kind.POWER, stepwise=False), laws.power)
    assert torch.equal(laws.of(Kind.RATE, stepwise=True), -laws.work)
    assert torch.equal(laws.of(Kind.TIME, stepwise=False), laws.work)
    assert torch.equal(laws.of(Kind.TIME, stepwise=True), laws.step)


ratio = st.floats(0.02, 50.0)


@given(
    st.lists(st.sampled_from([*EVERY, "num_gpus", "emc.freq_khz"]), min_size=1, max_size=5).flatmap(
        lambda names: st.tuples(
            st.just(names), st.lists(st.tuples(*[ratio] * len(names)), min_size=1, max_size=4)
        )
    )
)
def test_laws_are_finite_and_each_setting_has_its_own(
    drawn: tuple[list[str], list[tuple[float, ...]]],
) -> None:
    names, rows = drawn
    ratios = torch.tensor(rows, dtype=torch.float64)
    laws = laws_of(names, ratios)
    first = laws_of(names, ratios[:1])
    for part, own in ((laws.work, first.work), (laws.step, first.step), (laws.power, first.power)):
        assert bool(torch.isfinite(part).all())
        assert torch.allclose(part[:, :1], own, atol=1e-12)


def test_laws_are_always_the_same_and_other_draws_stay_unchanged() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first, again = alone("gpu.clock_mhz"), alone("gpu.clock_mhz")
    assert torch.equal(torch.rand(3), expected)
    assert torch.equal(first.work, again.work)
    assert torch.equal(first.power, again.power)


def test_a_cpus_clock_beside_a_gpu_without_a_clock_is_not_the_gpus() -> None:
    """Most laws lose little at a lower clock of a CPU that only feeds a GPU."""
    slow = torch.tensor([[1.0, 1.0], [0.5, 1.0]], dtype=torch.float64)
    feeding = laws_of(["cpu_freq_mhz", "gpu_power_cap_w"], slow).work[:, 1]
    working = laws_of(["cpu_freq_mhz", "power_cap_w"], slow).work[:, 1]
    assert float(feeding.median()) < 0.5 * float(working.median())


def test_cores_of_a_cpu_beside_a_gpu_do_not_do_the_gpus_work() -> None:
    """With half of the cores that only feed a GPU most laws lose little, and no law loses power."""
    fewer = torch.tensor([[1.0, 1.0], [0.5, 1.0]], dtype=torch.float64)
    feeding = laws_of(["cpu_cores", "gpu_clock_mhz"], fewer)
    assert bool((feeding.power[:, 1] <= 1e-9).all())
    for working in (["threads", "gpu_clock_mhz"], ["cpu_cores", "clock_mhz"]):
        slower = laws_of(working, fewer).work[:, 1]
        assert float(feeding.work[:, 1].median()) < 0.2 * float(slower.median())


def test_no_law_slows_down_above_the_limit_that_is_there() -> None:
    ratios = torch.tensor([[0.5], [1.0], [1.5]], dtype=torch.float64)
    work = laws_of(["power_limit_w"], ratios).work
    assert bool((work[:, 0] >= -1e-9).all())
    assert bool((work[:, 2] <= 1e-9).all())
    assert bool((work[:, 0] > 0.05).any())
    assert bool((work[:, 0].abs() < 1e-9).any())


def test_some_laws_know_that_requests_queue_under_too_low_a_ceiling() -> None:
    """Half the ceiling changes nothing under many laws; a tenth causes long waits under many laws."""
    lower = torch.tensor([[1.0], [0.5], [0.1]], dtype=torch.float64)
    step = laws_of(["max_num_seqs"], lower).step
    assert 0.1 < float((step[:, 1].abs() < 1e-9).double().mean()) < 0.5
    assert 0.1 < float((step[:, 2] > 1.0).double().mean()) < 0.5


def test_each_cpu_clock_speeds_up_its_own_part_of_the_work() -> None:
    """Two clusters at half their clocks are twice as slow, not four times; one alone is less."""
    slower = torch.tensor([[1.0, 1.0], [0.5, 1.0], [1.0, 0.5], [0.5, 0.5]], dtype=torch.float64)
    both = laws_of(["big_mhz", "little_mhz"], slower).work
    assert float(both[:, 3].max()) <= math.log(2.0) + 1e-9
    assert bool((both[:, 1:3] <= both[:, 3:] + 1e-9).all())
    assert bool((both[:, 1] > both[:, 2]).any())
    assert bool((both[:, 1] < both[:, 2]).any())


def test_settings_that_are_alike_are_worked_out_once() -> None:
    ratios = torch.tensor([[0.5, 1.0], [1.0, 2.0], [0.5, 1.0]], dtype=torch.float64)
    roles = (Role.CORE_CLOCK, Role.BATCH)
    laws, few = draw_laws(roles, ratios), draw_laws(roles, ratios[:2])
    for mine, theirs in ((laws.work, few.work), (laws.step, few.step), (laws.power, few.power)):
        assert torch.equal(mine[:, :2], theirs)
        assert torch.equal(mine[:, 0], mine[:, 2])
