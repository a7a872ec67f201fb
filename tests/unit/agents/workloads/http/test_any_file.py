"""Every text of a service's file is either read, or refused as a mistake of the file."""

from __future__ import annotations

import copy
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.workloads.http.config import load_service_config
from tests.plugins.examples import documented
from tests.profiles import examples
from tuner.core import ConfigError

TITLES = ("pack", "nginx", "postgresql", "redis", "triton", "torchserve", "vllm", "sglang")
ANYTHING = st.recursive(
    st.one_of(
        st.booleans(),
        st.integers(-3, 10**9),
        st.floats(allow_nan=True),
        st.sampled_from(["", "{value}", "/", "http://127.0.0.1:1/x", "(", "a b", "\0", "HUP"]),
        st.text(max_size=4),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.text("abc", min_size=1), inner, max_size=2)
    ),
    max_leaves=4,
)


EXAMPLES = {title: tomllib.loads(documented(title)) for title in TITLES}


def places(table: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:  # noqa: ANN401
    """Yield the path to each value within a table."""
    inner = table.items() if isinstance(table, dict) else enumerate(table)
    for key, value in inner:
        yield (*at, key)
        if isinstance(value, dict | list):
            yield from places(value, (*at, key))


def toml_of(value: Any) -> str:  # noqa: ANN401
    """Return a value as TOML on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {toml_of(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml_of, value))}]"
    if isinstance(value, str):
        return json.dumps(value).replace("\x7f", "\\u007f")
    return repr(value).lower() if isinstance(value, bool | float) else repr(value)


def written(folder: Path, table: dict[str, Any]) -> Path:
    file = folder / "any.toml"
    file.write_text("".join(f"{json.dumps(k)} = {toml_of(v)}\n" for k, v in table.items()))
    return file


def local(folder: Path, table: dict[str, Any]) -> dict[str, Any]:
    """Return an example whose body files exist."""
    load = table.get("load", {})
    for key in ("bodies", "body_file"):
        if key in load:
            (folder / key).write_text('{"prompt": "a"}\n')
            load[key] = str(folder / key)
    return table


@pytest.mark.parametrize("name", TITLES)
def test_a_documented_file_is_read(tmp_path: Path, name: str) -> None:
    config = load_service_config(written(tmp_path, local(tmp_path, copy.deepcopy(EXAMPLES[name]))))
    assert config.name == name and config.knobs


@settings(max_examples=examples(4))
@given(data=st.data())
def test_a_file_with_one_wrong_value_is_refused_or_read(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.getbasetemp()
    name = data.draw(st.sampled_from(TITLES))
    table = local(folder, copy.deepcopy(EXAMPLES[name]))
    *way, last = data.draw(st.sampled_from(list(places(table))))
    inner: Any = table
    for step in way:
        inner = inner[step]
    if data.draw(st.booleans()):
        inner[last] = data.draw(ANYTHING)
    else:
        del inner[last]
    try:
        config = load_service_config(written(folder, table))
    except ConfigError as refused:
        assert "any.toml" in refused.message and "\n" not in str(refused)
    else:
        assert config.name
