"""Series of tuner.toml: one source each, read by column or path, refused by name."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.errors import raised
from tuner.config import TunerConfig, load_tuner_config
from tuner.core import ConfigError
from tuner.series import SeriesTable

NOON = datetime(2026, 3, 23, 12, 30, tzinfo=UTC)


def config(folder: Path, text: str) -> TunerConfig:
    path = folder / "tuner.toml"
    path.write_text(text)
    return load_tuner_config(path)


def test_a_number_is_a_constant_series(tmp_path: Path) -> None:
    table = config(tmp_path, "price_per_kwh = 0.25").price_per_kwh
    assert table is not None
    assert table.series("price_per_kwh").at(NOON) == 0.25


def test_hours_in_the_configuration_make_a_series(tmp_path: Path) -> None:
    text = '[price_per_kwh]\nrows = [{ hours = "8-20", value = 0.3 }, { value = 0.1 }]\n'
    table = config(tmp_path, text).price_per_kwh
    assert table is not None
    series = table.series("price_per_kwh")
    assert (series.at(NOON), series.at(NOON.replace(hour=3))) == (0.3, 0.1)
    assert "by hour" in series.name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("price_per_kwh = inf", "price_per_kwh.*inf"),
        ("[price_per_kwh]", "none of constant, rows, csv, url"),
        ('[price_per_kwh]\ncsv = "a"\nurl = "https://b"', "csv and url"),
        ('[price_per_kwh]\nurl = "http://example.org"', "http://example.org"),
        ('[price_per_kwh]\nrows = [{ hours = "8-99", value = 1 }]', "8-99"),
        ("[price_per_kwh]\nrow = []", "unknown key 'row'.*did you mean rows"),
        ('[series.grid]\nconstant = 5\ntime_zone = "Moon"', "Moon"),
    ],
)
def test_an_unfitting_value_is_refused_with_its_place(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        config(tmp_path, text)


def test_a_csv_is_read_by_its_columns(tmp_path: Path) -> None:
    file = tmp_path / "prices.csv"
    file.write_text("from,eur_per_mwh\n2026-03-23T12:00Z,80\n2026-03-23T13:00Z,90\n")
    table = SeriesTable(csv=file, time="from", value="eur_per_mwh", scale=0.001)
    series = table.from_csv("price_per_kwh")
    assert series.at(NOON) == pytest.approx(0.08)
    assert str(file) in series.name


def test_an_answer_is_read_by_its_paths() -> None:
    table = SeriesTable(
        url="https://example.org/prices", items="data.list", time="start", value="price.total"
    )
    items = [{"start": NOON.timestamp(), "price": {"total": "0.5"}}]
    series = table.from_json("price_per_kwh", json.dumps({"data": {"list": items}}))
    assert series.at(NOON) == 0.5


@pytest.mark.parametrize(
    ("answer", "names"),
    [
        ("no JSON", "data.list"),
        ('{"data": {"list": 5}}', "data.list"),
        ('{"data": {"list": []}}', "0 values"),
        ('{"data": {"list": [{"time": "then", "value": 1}]}}', "time"),
        ('{"data": {"list": [{"time": 5, "value": "much"}]}}', "much"),
        ('{"data": {"list": [{"time": 5, "value": 1e999}]}}', "inf"),
    ],
)
def test_an_unfit_answer_names_the_missing_part(answer: str, names: str) -> None:
    table = SeriesTable(url="https://example.org/prices", items="data.list")
    with raised(ConfigError, names):
        table.from_json("price_per_kwh", answer)


def test_a_csv_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"prices\.csv"):
        SeriesTable(csv=tmp_path / "prices.csv").from_csv("price_per_kwh")
