"""Files that spreadsheets and editors of other systems write: with a byte order mark and CR LF."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agents.load.arrivals import read_arrivals
from agents.workloads.engine.attach import prompt_load
from agents.workloads.http.llm.requests import _of_trace
from agents.workloads.http.load_config import _lines
from tuner import toml
from tuner.config import SeriesTable
from tuner.profiling.packrat.profiles import read_profile

READERS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "arrivals": (read_arrivals, "arrival_s\n0\n1\n2\n"),
    "lengths": (_of_trace, "prompt_tokens,output_tokens\n3,4\n"),
    "prices": (
        lambda file: SeriesTable(csv=file).from_csv("price").rows,
        "time,value\n2026-01-01,3\n",
    ),
    "profile": (read_profile, "model,threads,batch_size,latency_s\nm,1,1,5\nm,1,1,6\nm,1,1,7\n"),
    "bodies": (_lines, '{"prompt": "a"}\n{"prompt": "b"}\n'),
    "prompts": (
        lambda file: prompt_load(f"prompts:{file}").prompts,
        json.dumps([f"prompt {n}" for n in range(64)]) + "\n",
    ),
    "toml": (lambda file: toml.parsed(file)[1], 'name = "a"\n'),
}


@pytest.mark.parametrize("kind", READERS)
def test_a_mark_and_other_ends_of_lines_change_nothing(kind: str, tmp_path: Path) -> None:
    read, text = READERS[kind]
    plain, marked = tmp_path / "plain", tmp_path / "marked"
    plain.write_bytes(text.encode())
    marked.write_bytes(text.replace("\n", "\r\n").encode("utf-8-sig"))
    assert read(plain) == read(marked)


def test_a_body_may_have_any_character_that_json_may_have(tmp_path: Path) -> None:
    file = tmp_path / "bodies.jsonl"
    file.write_text('{"prompt": "a\u2028b\x85c"}\n', encoding="utf-8")
    assert len(_lines(file)) == 1
