"""The answer of a verb, and its output options."""

from __future__ import annotations

import json
from typing import Annotated

import pytest
import typer
from typer.main import get_command

from tuner.cli.answers import Answer, Rows, with_json
from tuner.cli.asking import Api, with_api


def called(verb: object, *given: str) -> object:
    around = typer.Typer(rich_markup_mode=None)
    around.command()(verb)  # type: ignore[type-var]
    return get_command(around)(list(given), standalone_mode=False)


@with_json
def count(upto: Annotated[int, typer.Argument()], odd: bool = False) -> Answer:
    """Count."""
    rows = [(str(n),) for n in range(1, upto + 1, 1 + odd)]
    return Answer(
        [int(n) for (n,) in rows], ["so:", Rows(("number",), rows, "none")], failed=upto > 3
    )


def test_an_answer_is_json_or_lines(capsys: pytest.CaptureFixture[str]) -> None:
    called(count, "3", "--odd")
    assert capsys.readouterr().out.split() == ["so:", "number", "1", "3"]
    called(count, "3", "--odd", "--json")
    assert json.loads(capsys.readouterr().out) == [1, 3]
    called(count, "0")
    assert capsys.readouterr().out == "so:\nnone\n"


def test_failures_are_printed_with_exit_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert called(count, "4", "--json") == 1
    assert json.loads(capsys.readouterr().out) == [1, 2, 3, 4]


def test_a_verb_of_the_api_has_the_shared_options_after_its_own() -> None:
    @with_api(watch=True)
    def look(api: Api, study: Annotated[str, typer.Argument()] = "", as_json: bool = False) -> None:
        """Look."""

    around = typer.Typer()
    around.command()(look)
    names = [p.name for p in get_command(around).params][:6]
    assert names == ["study", "watch", "tuner", "token_file", "db", "as_json"]
