"""The contest: the escape, the staircase, the results of a study, and the rule."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from jouletune_bench.llm import CLOCK, Request
from jouletune_bench.llm.requests import poisson
from tests.bench.load import contest, schemes
from tests.bench.load.contest import read, share, tables, winner
from tests.bench.load.escape import Escaping, escaping, queue_of
from tests.bench.load.judge import Task
from tests.bench.load.kept import KeptRuns
from tests.bench.load.made import LEVELS, gusts, levels
from tests.bench.load.play import Fixed, play
from tests.bench.load.schemes import ONE, PLAN, STAIRS
from tests.bench.load.servers import Limits, opener
from tests.bench.load.staircase import Staircase, Stairs, Step

SERVER = "simulated:h100-llm"
SLOW = {CLOCK: 720}


def asked(rate_per_s: float, seconds: float) -> list[Request]:
    return list(itertools.takewhile(lambda r: r.arrival_s < seconds, poisson(rate_per_s, 1)))


def burst() -> list[Request]:
    return [Request(float(k), 200, 50) for k in range(60)] + [
        Request(60.0 + k / 100.0, 2000, 50) for k in range(60)
    ]


def test_requests_that_wait_bring_the_default_and_then_the_setting_again() -> None:
    inner = opener(SERVER)(burst(), 1)
    server = Escaping(inner, 2.0)
    server.apply(SLOW)
    server.sleep(50.0)
    assert inner.read() == server.read() == SLOW
    server.sleep(12.0)
    assert inner.read() == server.space.default and server.read() == SLOW
    server.sleep(200.0)
    assert inner.read() == SLOW
    assert len(server.take()) == len(server.answered) == 120


def test_a_setting_that_is_applied_in_an_escape_waits_for_its_end() -> None:
    inner = opener(SERVER)(burst(), 1)
    server = Escaping(inner, 2.0)
    server.sleep(62.0)
    server.apply(SLOW)
    assert inner.read() == server.space.default
    server.sleep(200.0)
    assert inner.read() == SLOW


def test_a_rate_above_the_confirmed_one_holds_the_default() -> None:
    inner = opener(SERVER)(asked(4.0, 400.0), 1)
    server = Escaping(inner, 1000.0, 2.0)
    server.apply(SLOW)
    server.sleep(300.0)
    assert inner.read() == server.space.default and server.top > 2.0
    server.sleep(400.0)
    assert inner.read() == SLOW


def test_the_queue_that_the_default_seldom_has_is_two_at_least() -> None:
    assert queue_of(opener(SERVER), asked(0.5, 300.0), 1, 300.0) == 2.0
    assert queue_of(opener(SERVER), asked(60.0, 300.0), 1, 300.0) > 20.0


def test_an_escape_shortens_a_burst() -> None:
    def tail(queue: float) -> float:
        return play(escaping(opener(SERVER), queue), burst(), Fixed(SLOW), 1, 65.0).ttft_p99_s

    assert tail(2.0) < 0.8 * tail(1e9)


def step(cost: float, p99: float, seconds: float = 200.0, requests: int = 400) -> Step:
    return Step(seconds, cost * 1000.0, 1000.0, [p99] * requests)


@pytest.mark.parametrize(
    ("tried", "held", "ended"),
    [
        (step(0.9, 0.7), 8, False),
        (step(0.9, 0.95), 10, True),
        (step(0.9, 0.7, requests=100), 10, False),
    ],
)
def test_a_band_steps_down_while_energy_falls_and_the_limit_holds(
    tried: Step, held: int, ended: bool
) -> None:
    stairs = Stairs(10, steps={10: step(1.0, 0.5)})
    assert stairs.tried() == 8
    stairs.steps[8] = tried
    stairs.judge(8)
    assert (stairs.place, stairs.ended) == (held, ended)


def test_a_band_ends_once_two_steps_need_more_energy_and_holds_the_best() -> None:
    stairs = Stairs(7, steps={10: step(1.0, 0.5), 8: step(1.1, 0.5), 7: step(1.2, 0.7)})
    stairs.steps[6] = step(1.3, 0.8)
    stairs.judge(6)
    assert (stairs.place, stairs.ended) == (10, True)


def test_a_staircase_goes_down_under_a_low_load_and_then_holds() -> None:
    server = Escaping(opener(SERVER)(asked(3.0, 5000.0), 1), 5.0)
    learnt = Staircase(Limits(5.0, 1.0))
    learnt.begin(server)
    while server.monotonic() < 4000.0:
        server.sleep(1.0)
        learnt.tick(server, server.take())
    low = min(s.place for s in learnt.stairs.values())
    assert low < 15
    learnt.held = True
    before = {band: s.place for band, s in learnt.stairs.items()}
    for _ in range(300):
        server.sleep(1.0)
        learnt.tick(server, server.take())
    assert {band: s.place for band, s in learnt.stairs.items()} == before


def test_the_made_up_traces_have_their_rate_and_their_bursts() -> None:
    for made in (gusts, levels):
        assert made(1.0, 1, 4000.0) == made(1.0, 1, 4000.0) != made(1.0, 2, 4000.0)
        assert min(LEVELS) * 3000 < len(made(1.0, 1, 4000.0)) < max(LEVELS) * 4000
    gaps = [b.arrival_s - a.arrival_s for a, b in itertools.pairwise(gusts(1.0, 1, 20_000.0))]
    mean = sum(gaps) / len(gaps)
    spread = (sum((g - mean) ** 2 for g in gaps) / len(gaps)) ** 0.5
    assert spread / mean == pytest.approx(2.0, rel=0.15)


def row(scheme: str, trace: str = "a", **other: object) -> dict[str, Any]:
    known: dict[str, Any] = {
        "single": 0.1,
        "oracle": 0.2,
        "possible": 0.1,
        "saving": 0.15,
        "way": 0.5,
    }
    known |= {"above": 0.0, "worst": 0.9, "tuning_above": 0.0, "tuning_worst": 0.9, "hours": 3.0}
    known |= {"cpu_s": 5.0, "seed": 0, "keeps": True}
    return {"server": "s", "trace": trace, "scheme": scheme, **known, **other}


def test_a_captured_share_is_between_0_and_1_and_0_with_a_broken_limit() -> None:
    assert share(row(ONE, way=1.4)) == 1.0
    assert share(row(ONE, way=-0.2)) == 0.0
    assert share(row(ONE, keeps=False)) == 0.0


def test_the_highest_share_wins_unless_a_scheme_of_fewer_lines_is_as_good() -> None:
    clear = [row(s, t, way=w) for t in "abc" for s, w in ((ONE, 0.3), (STAIRS, 0.8), (PLAN, 0.5))]
    assert tables(clear)["winner"] == STAIRS
    near = [row(ONE, t, way=w) for t, w in zip("abc", (0.9, 0.6, 0.8), strict=True)]
    assert tables([*near, *(r for r in clear if r["scheme"] != ONE)])["winner"] == ONE


def test_a_scheme_that_breaks_a_limit_or_lacks_a_cell_cannot_win() -> None:
    rows = [row(ONE, t, way=0.2) for t in "ab"]
    rows += [row(STAIRS, t, way=0.9, keeps=t == "a") for t in "ab"]
    rows += [row(PLAN, "a", way=0.9)]
    assert tables(rows)["winner"] == ONE
    assert winner([{"scheme": ONE, "everywhere": False, "share": 1.0, "shares": {}}]) == PLAN


def test_cells_where_little_is_possible_do_not_count() -> None:
    rows = [row(s, t) for s in (ONE, STAIRS) for t in "ab"]
    rows += [row(s, "c", possible=0.02, way=w) for s, w in ((ONE, 0.0), (STAIRS, 1.0))]
    assert {s["scheme"]: s["share"] for s in tables(rows)["standing"]}[STAIRS] == 0.5


@pytest.mark.slow
def test_studies_are_judged_and_none_is_run_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schemes, "LONGEST_S", 5400.0)
    monkeypatch.setattr(schemes, "LONG_S", 60.0)
    monkeypatch.setattr(schemes, "QUEUE_S", 300.0)
    task = Task(
        server=SERVER,
        trace="flat",
        tuning=asked(3.0, 900.0),
        judged=asked(3.0, 400.0),
        tuned_s=900.0,
        until_s=400.0,
        slacks=(2.0,),
        least_windows=2,
        least_seeds=2,
        searched=2,
        share=1,
    )
    output = tmp_path / "contest.jsonl"
    contest.contest([task], {ONE: 1, STAIRS: 1}, output, KeptRuns(None))
    rows = read(output)
    assert [r["scheme"] for r in rows] == [ONE, STAIRS]
    assert all(0.02 < r["saving"] < 0.6 and r["hours"] <= 1.5 for r in rows), rows
    monkeypatch.setattr(contest, "study", lambda *_: pytest.fail("run twice"))
    contest.contest([task], {ONE: 1, STAIRS: 1}, output, KeptRuns(None))
    assert read(output) == rows
