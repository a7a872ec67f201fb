"""Each rule finds its fault at every size above its tolerance, and none below it."""

from __future__ import annotations

import math
import runpy
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import window
from tests.errors import raised
from tuner.core import (
    CounterAndPower,
    CounterStep,
    DeviceUse,
    Estimate,
    Fact,
    LastObject,
    Load,
    MeasurementError,
    Origin,
    OwnRequests,
    PrintedNumber,
    Quantity,
    RuleResult,
    Scope,
    Scrapes,
    WorkloadPlace,
    ZoneReads,
    demand,
    implausible,
    in_words,
    judged,
    not_compared,
)
from tuner.core.witnesses import AGREEMENT, LAG_S, REPORT_S, RULES, STEP_S, STILL_S

DOCS = Path(__file__).parents[4] / "docs"
JOULES = st.floats(1.0, 1e7)
SHARE = st.floats(0.0, 0.98)
GPU_1 = "GPU 1 (GPU-b)"


def contradicted(fact: Fact) -> bool:
    return any(one.result is RuleResult.CONTRADICTED for one in judged([fact]))


def test_the_page_is_made_from_the_rules() -> None:
    page = runpy.run_path(str(DOCS / "measurement.py"))["page"]()
    assert (DOCS / "measurement.md").read_text() == page
    assert page.count("\n| ") == 1 + len(RULES)


@given(JOULES, st.floats(0.0, 1000.0), st.floats(0.0, 1.0), st.floats(0.0, 5.0), st.data())
def test_a_counter_is_beside_its_power_up_to_the_tolerance(
    power_j: float, most_w: float, spread: float, gap_s: float, data: st.DataObject
) -> None:
    spread_w = spread * most_w
    slack_j = AGREEMENT * power_j + STEP_S * most_w + (LAG_S + gap_s) * spread_w
    off = data.draw(st.floats(-1.0, 20.0).filter(lambda x: abs(abs(x) - 1.0) > 1e-9))
    counted_j = max(0.0, power_j + off * slack_j)
    fact = CounterAndPower(
        meter="gpu",
        counted_j=counted_j,
        power_j=power_j,
        most_w=most_w,
        spread_w=spread_w,
        gap_s=gap_s,
    )
    assert contradicted(fact) is (abs(counted_j - power_j) > slack_j)


@given(st.floats(0.0, 1e4))
def test_a_stopped_counter_is_found(still_s: float) -> None:
    fact = CounterAndPower(meter="gpu", counted_j=1.0, power_j=1.0, still_s=still_s)
    assert contradicted(fact) is (still_s > STILL_S)


@given(
    st.lists(st.integers(0, 10**6), min_size=2, max_size=20),
    st.integers(0, 2**32 - 1),
    st.integers(0, 50),
    st.integers(1, 10**6),
)
def test_two_zones_are_one_counter_only_where_they_agree(
    steps: list[int], start: int, late: int, apart: int
) -> None:
    """Both are read one after the other, over wraps; a separate zone differs by `apart` once."""
    ring, reads, at = 2**32, [], start
    for step in steps:
        at += step
        reads.append((at % ring, (at + late // 2) % ring, (at + late) % ring))
    one = ZoneReads(first="a", second="b", range_uj=ring - 1, reads=tuple(reads))
    moved = len({a for a, _, _ in reads}) > 1
    assert bool(in_words(judged([one]))) is moved
    a, _, again = reads[-1]
    own = ((again + apart) % ring,)
    other = ZoneReads(
        first="a", second="b", range_uj=ring - 1, reads=(*reads[:-1], (a, *own, again))
    )
    assert not in_words(judged([other]))


def place(
    *,
    ours: bool = False,
    busy: bool = False,
    elsewhere: bool = False,
    items: float = 100.0,
    n: int = 9,
) -> WorkloadPlace:
    there = {"nvidia:1": GPU_1} if elsewhere else {}
    use = DeviceUse(device="nvidia:0", name="GPU 0", ours=ours, busy=busy, looks=n, elsewhere=there)
    return WorkloadPlace((use,), items, whole=True)


def test_a_workload_on_another_device_is_named_with_that_device() -> None:
    with raised(MeasurementError, f"the workload runs on {GPU_1}; use --device nvidia:1"):
        demand(place(elsewhere=True))
    with raised(MeasurementError, "no process and no work in 9 looks", "100 items"):
        demand(place())


@pytest.mark.parametrize(
    ("fact", "noted"),
    [
        (place(ours=True), ""),
        (place(ours=True, elsewhere=True), f"also computes on {GPU_1}"),
        (place(busy=True), "unknown"),
        (place(n=3), "unknown"),
        (place(items=0.0), ""),
    ],
)
def test_the_place_of_a_workload_is_noted_if_it_is_unclear(fact: WorkloadPlace, noted: str) -> None:
    words = in_words(demand(fact))
    assert noted in words
    assert bool(words) is bool(noted)


@given(st.integers(0, 10**6), SHARE, st.integers(0, 64), st.floats(0.5, 600.0))
def test_a_counter_of_requests_is_at_least_our_own(
    completed: int, share: float, in_flight: int, seconds: float
) -> None:
    floor = completed - in_flight - completed * min(1.0, REPORT_S / seconds)
    fact = OwnRequests(
        counter="http_requests_total",
        counted=share * completed,
        completed=completed,
        in_flight=in_flight,
        seconds=seconds,
    )
    assert contradicted(fact) is (share * completed < floor)


@given(
    st.lists(st.integers(0, 50), min_size=24, max_size=24),
    st.integers(2, 4),
    st.data(),
)
def test_one_counter_never_falls_and_several_do(
    steps: list[int], workers: int, data: st.DataObject
) -> None:
    """Answers of one round arrive in any order, and before all answers of the next round."""
    total, answers = 100, []
    for step in steps:
        total += step
        answers.append({"n_total": float(total)})
    rounds = [data.draw(st.permutations(answers[k : k + 8])) for k in (0, 8, 16)]
    honest = Scrapes(url="u", rounds=tuple(map(tuple, rounds)))
    assert not contradicted(honest)
    split = [[{"n_total": 1000.0 * (k % workers)} for k in range(8)] for _ in range(2)]
    assert contradicted(Scrapes(url="u", rounds=tuple(map(tuple, split))))
    assert contradicted(Scrapes(url="u", rounds=honest.rounds, started=frozenset({1.0, 2.0})))


@given(st.floats(0.0, 1e12), st.floats(0.0, 1e12), st.booleans())
def test_a_restart_is_a_smaller_total_or_another_start(
    before: float, now: float, same: bool
) -> None:
    fact = CounterStep("n_total", before, now, "a", "a" if same else "b")
    assert contradicted(fact) is (now < before or not same)


@given(st.floats(allow_nan=False, allow_infinity=False), st.data())
def test_a_part_of_a_number_is_not_read_as_the_number(value: float, data: st.DataObject) -> None:
    text = repr(value)
    cut = data.draw(st.integers(1, len(text)))
    start = data.draw(st.integers(0, cut - 1))
    part = text[start:cut]
    fact = PrintedNumber(text=part, before="loss=" + text[:start], after=text[cut:])
    if part == text:
        assert not contradicted(fact)
    elif part[-1].isdigit() and part[0].isdigit() and text[cut:] != "e":
        assert contradicted(fact)


@pytest.mark.parametrize("text", ["12.5", "950"])
@pytest.mark.parametrize(
    ("after", "unit", "wrong"),
    [
        *(
            (after, unit, False)
            for after in ("", " ", " steps", " k=3", "x", "x16", "/10", ": x", " done", " x 10 px")
            for unit in ("", "ms")
        ),
        *((after, "", True) for after in ("k", "M", "Ki", "ms", "s", "µs", "%", "GiB", "s,")),
        *((after, "ms", True) for after in ("s", " s", " min", "us", "k")),
        *((after, "ms", False) for after in ("ms", " ms", "ms)", " ms, then 3 s")),
        *((after, "", False) for after in (" s", " ms", " k")),
        *(
            (after, "", True)
            for after in (
                *("'000", "’000", "\u202f000", "\u00a0000", ",000", "_000"),
                *("e-07", "e", "e- ", "D-03", "d+03", ":45", ":02:03", "h2m", "m30s", "min5"),
                *("#INF", ".#IND", "*10^-5", " x 10^-5", "×10⁻⁵", " × 10**3"),
            )
        ),
    ],
)
def test_a_number_without_its_unit_or_thousands_gives_no_result(
    text: str, after: str, unit: str, *, wrong: bool
) -> None:
    fact = PrintedNumber(text=text, before="took ", after=after, unit=unit)
    assert contradicted(fact) is wrong
    if (after[:1].isalpha() and after[0] not in "edD") or after[:1] == "%":
        assert not contradicted(replace(fact, delimited=True))


def test_a_broken_object_or_a_later_line_gives_no_result() -> None:
    assert contradicted(LastObject('{"loss": 0.', "cut"))
    assert not contradicted(LastObject("{}", ""))
    assert contradicted(PrintedNumber(text="0.5", before="loss=", after="", later="loss=nan"))


@pytest.mark.parametrize(
    ("before", "after"), [("1h", "m"), ("took 1 min ", "s"), ("3:", ""), ("", "x1F")]
)
def test_a_part_of_a_duration_or_of_a_hexadecimal_gives_no_result(before: str, after: str) -> None:
    assert contradicted(PrintedNumber(text="0", before=before, after=after))


@pytest.mark.parametrize(
    ("before", "text", "after"),
    [
        ("p99:", "12", ""), ("top1:", "76.3", ""), ("GPU0:", "25", ""), ("mAP50:", "0.53", ""),
        ("recall@10:", "61", ""), ("epoch 3:", "0.52", ""), ("loss ", "5", "d"), ("phase 2 d ", "5", ""),
    ],
)  # fmt: skip
def test_a_number_after_a_name_with_digits_is_whole(before: str, text: str, after: str) -> None:
    assert not contradicted(PrintedNumber(text=text, before=before, after=after))


def test_a_pattern_that_matches_the_first_parts_too_takes_the_last() -> None:
    for before in ("epoch 3:", "1h", "3,"):
        fact = PrintedNumber(text="45", before=before, after="")
        assert contradicted(fact) and contradicted(replace(fact, lead=before[-1]))
        assert not contradicted(replace(fact, lead=before))


def test_a_window_without_a_witness_is_noted_by_its_rule() -> None:
    facts = (
        CounterAndPower(meter="gpu", counted_j=1.0, why="no power is reported"),
        Scrapes(url="u", why="not answered"),
    )
    assert in_words(demand(*facts)) == (
        "counter_beside_power: unknown, gpu: no power is reported; one_counter: unknown, u: not answered"
    )


def claim(energy_j: float = 10.0, power_w: float = 500.0) -> dict[str, Estimate]:
    return {
        "energy_j": Estimate.of_mean(energy_j, 0.0),
        "power_w": Estimate.of_mean(power_w, 0.0),
    }


@pytest.mark.parametrize(
    ("energy_j", "power_w", "why"),
    [
        (0.0, 500.0, "energy_j is 0 J"),
        (1e-300, 500.0, "energy_j is 1e-300 J"),
        (9e99, 500.0, "energy_j is 9e+99"),
        (10.0, 0.0, "power_w is 0 W"),
        (10.0, 1e12, "power_w is 1e+12"),
        (2.0, 500.0, "more than 3 times apart"),
        (40.0, 500.0, "more than 3 times apart"),
    ],
)
def test_an_impossible_value_is_reported_with_its_number(
    energy_j: float, power_w: float, why: str
) -> None:
    assert why in implausible(window(extra=claim(energy_j, power_w)))


def test_a_part_of_the_joules_may_be_none() -> None:
    part = Quantity("J")
    seen = window(extra={**claim(), "waiting_j": Estimate.of_mean(0.0, 0.0)})
    assert implausible(seen, {"waiting_j": part}) == ""


@given(st.floats(0.4, 2.5), st.floats(1e-3, 1e3), st.floats(0.1, 1e4))
def test_an_honest_window_is_believed_in_any_size(
    factor: float, energy_j: float, rate: float
) -> None:
    seen = replace(
        window(extra=claim(energy_j, factor * energy_j * rate)),
        seconds=100.0,
        load=Load(completed=max(1, round(100.0 * rate))),
    )
    assert implausible(seen) == ""


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"scope": Scope.PROCESS}, "scope differs"),
        ({"origin": Origin.ESTIMATED}, "origin differs"),
    ],
)
def test_energy_and_power_of_other_meters_are_not_compared(
    changed: dict[str, object], why: str
) -> None:
    both = claim(2.0)
    apart = window(extra={**both, "power_w": replace(both["power_w"], **changed)})  # type: ignore[arg-type]
    assert implausible(apart) == ""
    assert why in not_compared(apart)


def test_a_window_without_items_is_not_compared() -> None:
    blind = replace(window(extra=claim(2.0)), load=Load())
    assert implausible(blind) == ""
    assert not_compared(blind)


@pytest.mark.parametrize("name", ["seconds", "overhead_s"])
@pytest.mark.parametrize("length_s", [1e7, 1e308])
def test_no_window_lasts_for_months(name: str, length_s: float) -> None:
    assert name in implausible(replace(window(), **{name: length_s}))  # type: ignore[arg-type]


@given(
    st.floats(allow_nan=False, min_value=-9e99, max_value=9e99),
    st.floats(min_value=0.0, max_value=9e99),
    st.sampled_from(["", "J", "W", "ms", "s", "1/s", "tokens"]),
    st.booleans(),
)
def test_predictions_can_be_squared_and_divided(
    mean: float, stderr: float, unit: str, signed: bool
) -> None:
    declared = {"score": Quantity(unit, signed=signed)}
    seen = replace(window(), estimates={"score": Estimate.of_mean(mean, stderr)})
    if not implausible(seen, declared):
        for number in (mean, stderr):
            assert number == 0.0 or math.isfinite(1.0 / number**2 + number**2 * 1e15)
