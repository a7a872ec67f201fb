"""A mistake in a file is refused with its file, line and key."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agents.config import NoDevice, load_agent_config
from tuner import toml
from tuner.config import load_tuner_config
from tuner.core import ConfigError
from tuner.typed_toml import Filled, Table, line_of, load, to_toml

KEYS = st.sampled_from(["a", "b", "c.d", '"e f"', "g"])
VALUES = st.sampled_from(
    [
        "1",
        '"x # [y]"',
        "[\n  1,\n  2, # ]\n]",
        '"""\na = 1\n[b]\n"""',
        "{ x = 1, y = [2] }",
        "'''\n'''",
    ]
)
BETWEEN = st.sampled_from(["", "\n", "# a = 1\n", "\n# [[t]]\n\n"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner(Table):
    name: Filled
    seconds: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole(Table):
    port: int = 1
    on: bool = False
    path: Path | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    inner: Inner | None = None
    rows: tuple[Inner, ...] = ()


def refused(folder: Path, text: str) -> str:
    file = folder / "x.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(file, Whole)
    return str(caught.value).removeprefix(str(file))


@given(
    st.lists(
        st.tuples(
            st.lists(st.tuples(KEYS, VALUES, BETWEEN), unique_by=lambda s: s[0], max_size=4),
            BETWEEN,
        ),
        max_size=4,
    )
)
def test_every_statement_is_found_at_its_line(
    tables: list[tuple[list[tuple[str, str, str]], str]],
) -> None:
    text = "top = 0\n"
    places: dict[tuple[str | int, ...], int] = {("top",): 1}
    for n, (statements, between) in enumerate(tables):
        text += f"{between}[[t]]\n"
        places["t", n] = text.count("\n")
        for key, value, before in statements:
            text += before
            way = [json.loads(key)] if key[0] == '"' else key.split(".")
            places["t", n, *way] = text.count("\n") + 1
            text += f"{key} = {value}\n"
    assert {way: line_of(text, way) for way in places} == places


def test_a_missing_key_has_the_line_of_its_table() -> None:
    text = "\n[[rows]]\nname = 'a'\n\n[[rows]]\nseconds = 2\n"
    assert line_of(text, ("rows", 1, "name")) == 5
    assert line_of(text, ("port",)) == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\nport = true", ", line 2: port must be an integer, not True"),
        ("port = 1.0", ", line 1: port must be an integer, not 1.0"),
        ('port = "1"', ", line 1: port must be an integer, not '1'"),
        ("on = 1", ", line 1: on must be a boolean, not 1"),
        ("path = 3", ", line 1: path must be a string, not 3"),
        ("labels = 3", ", line 1: labels must be a table, not 3"),
        ("[labels]\na = 1", ", line 2: labels: a must be a string, not 1"),
        ("inner = 3", ", line 1: inner must be a table, not 3"),
        ("[inner]\nnme = 'x'", ", line 2: inner: unknown key 'nme'; did you mean name?"),
        ("[[rows]]\nseconds = 1", ", line 1: rows 1 has no name; add name = …"),
        ("[[rows]]\nname = ''", ", line 2: rows 1 has no name; add name = …"),
        ("rows = [\n3]", ", line 1: rows 1 must be a table, not 3"),
        (
            "[[rows]]\nname = 'x'\nseconds = false",
            ", line 3: rows 1: seconds must be a number, not",
        ),
        (
            "[[rows]]\nxyz = 1\nname = 'x'",
            ", line 2: rows 1: unknown key 'xyz'; known keys: name, sec",
        ),
        ("path = 2026-01-01", ", line 1: path cannot be a date or a time; write it as a string"),
        ("port = ", " is not valid TOML"),
    ],
)
def test_an_unfitting_value_is_named(tmp_path: Path, text: str, message: str) -> None:
    assert message in refused(tmp_path, text)


def test_an_integer_is_a_number_and_a_list_a_tuple(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text("path = 'p'\nrows = [{ name = 'a', seconds = 2 }]\n")
    assert load(file, Whole) == Whole(path=Path("p"), rows=(Inner(name="a", seconds=2.0),))


def test_an_unrecognised_limit_names_the_file_and_the_line(tmp_path: Path) -> None:
    file = tmp_path / "tuner.toml"
    file.write_text("# here\nport = 99999\n")
    with pytest.raises(ConfigError, match=re.escape(f"{file}, line 2: port cannot be 99999")):
        load_tuner_config(file)


def test_an_error_keeps_its_kind(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text("seed = 1\n")
    with pytest.raises(NoDevice, match=re.escape(str(file))):
        load_agent_config(file)


@example("\x7f")
@given(st.text(st.characters(exclude_categories=["Cs"])) | st.lists(st.integers(-9, 9)))
def test_every_written_value_is_read_back(value: object) -> None:
    assert toml.loads(f"key = {to_toml(value)}") == {"key": value}
