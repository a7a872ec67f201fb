from __future__ import annotations

from pathlib import Path

import pytest

from tuner.cli.run.programs import Program, finished_command, listed_values, write_program
from tuner.core import Value


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("profile=01,02,08", ["01", "02", "08"]),
        ("a=1e999,2", ["1e999", "2"]),
        ("a=nan,1", ["nan", "1"]),
        ("a=+1,2", ["+1", "2"]),
        ("a=\uff11,2", ["\uff11", "2"]),
        ("a=1e-3,-2", [0.001, -2]),
        ("n=1_000,2_000", ["1_000", "2_000"]),
        ("n=0,1,10", [0, 1, 10]),
        ("python=3.9,3.10", ["3.9", "3.10"]),
        ("n=-0,1", ["-0", "1"]),
        ("n=12345678901234567890,1", ["12345678901234567890", "1"]),
        ("n=1.0,-0.05", [1.0, -0.05]),
        ("lr=0.1,0.01", [0.1, 0.01]),
        ("mode=on,off", ["on", "off"]),
    ],
)
def test_words_that_a_number_would_not_give_back_stay_texts(text: str, values: list[Value]) -> None:
    assert listed_values(text)[1] == values


def test_the_finished_command_has_the_setting_s_values(tmp_path: Path) -> None:
    typed = Program("gzip -k '{level}' {threads} my file", knobs=("level=1,9", "threads=2,1"))
    spec = write_program(typed, tmp_path)
    assert finished_command(spec, {"level": 9, "threads": 1}) == "gzip -k 9 1 my file"
    assert finished_command("reference", {"level": 9}) == ""
