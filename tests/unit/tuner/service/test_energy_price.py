"""Series that are read again, and money and carbon as objectives and in the bill."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import httpx2
import pytest

from tests.builders import START, Time
from tests.errors import raised
from tests.unit.tuner.core.test_evidence import BASE, HELD, held_at, history
from tuner.config import SeriesTable, TunerConfig
from tuner.core import Estimate, HourRow, InvalidInput, TimeSeries, draw_up
from tuner.service.energy_price import RETRY_S, EnergyPrice, SeriesFeed, in_energy
from tuner.wire import StudyDraft

PRICED = EnergyPrice.of(TunerConfig(price_per_kwh=SeriesTable(constant=0.25)))


def test_a_source_is_read_when_due_and_a_failure_keeps_the_last_values() -> None:
    time, answers = Time(), [200, 500, 200]
    asked: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        items = [{"time": START.timestamp() - 60.0, "value": float(len(asked))}]
        return httpx2.Response(answers.pop(0), json=items)

    table = SeriesTable(url="https://example.org/prices", every_s=600.0)
    feed = SeriesFeed("price", table, time.monotonic, httpx2.MockTransport(answer))
    assert feed.series.at(START) is None
    seen = []
    for seconds in (0.0, 1.0, 599.0, 1.0, RETRY_S):
        time.sleep(seconds)
        feed.refresh()
        seen.append(feed.series.at(START))
    assert seen == [1.0, 1.0, 1.0, 1.0, 3.0]


def test_a_source_gets_the_token_of_its_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("secret\n")
    shown = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        shown.append(request.headers["Authorization"])
        return httpx2.Response(200, content=json.dumps([{"time": 0, "value": 1}]))

    table = SeriesTable(url="https://example.org/prices", token_file=file)
    SeriesFeed("price", table, Time().monotonic, httpx2.MockTransport(answer)).refresh()
    assert shown == ["Bearer secret"]


def test_a_csv_is_read_again(tmp_path: Path) -> None:
    time, file = Time(), tmp_path / "prices.csv"
    file.write_text(f"time,value\n{START.isoformat()},1\n")
    feed = SeriesFeed("price", SeriesTable(csv=file, every_s=60.0), time.monotonic)
    feed.refresh()
    file.write_text(f"time,value\n{START.isoformat()},2\n")
    time.sleep(60.0)
    feed.refresh()
    assert feed.series.at(START) == 2.0


@pytest.mark.parametrize("objective", ["cost", "minimize cost"])
def test_cost_is_energy_at_the_price_of_its_hour(objective: str) -> None:
    draft = StudyDraft(devices=("sim",), objective=objective)
    assert in_energy(draft, PRICED, ["energy_j"]).objective == "energy_j"


def test_a_device_that_measures_its_grams_is_tuned_for_them() -> None:
    draft = StudyDraft(devices=("fl",), objective="carbon_g")
    assert in_energy(draft, PRICED, ["energy_j", "carbon_g"]) == draft


def test_an_objective_without_its_series_is_refused_by_name() -> None:
    with raised(InvalidInput, "carbon_g", "co2e_g_per_kwh"):
        in_energy(StudyDraft(devices=("sim",), objective="carbon_g"), PRICED, ["energy_j"])
    with raised(InvalidInput, "cost"):
        in_energy(StudyDraft(devices=("sim",), objective="maximize cost"), PRICED, ["energy_j"])


def test_the_bill_values_each_window_at_its_own_hour_and_names_the_series() -> None:
    turn = (START + timedelta(minutes=2)).timestamp()
    price = TimeSeries(name="price of x.csv", points=((turn - 3600.0, 0.1), (turn, 0.4)))
    held = held_at(1, 2, 3)
    bill = draw_up(
        [BASE],
        {"energy_j": Estimate(10.0)},
        {"energy_j": Estimate(6.0)},
        held,
        history((0, HELD)),
        prices={"cost": price, "co2e_g": TimeSeries(name="grid", rows=(HourRow(400.0, "0-1"),))},
    )
    saved_j = [4.0 * 50.0 * s for s in (10, 60, 60)]
    worth = saved_j[0] * 0.1 + saved_j[1] * 0.4 + saved_j[2] * 0.4
    assert bill.whole is not None and bill.whole.cost == pytest.approx(worth / 3.6e6)
    assert bill.whole.co2e_g is None, "not known at noon"
    assert bill.priced_by == ("price of x.csv", "grid")
    assert bill.whole.ascribed(0.5).cost == pytest.approx(0.5 * worth / 3.6e6)
