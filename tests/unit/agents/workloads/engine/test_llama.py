"""Start options by the help text of a build, and whether a requested length takes effect."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.workloads.engine.figures import Timings
from agents.workloads.engine.llama import (
    DRAFT_MAX,
    SPEC,
    Dialect,
    Draft,
    dialect_of,
    has_length,
    owned,
)
from tests.errors import raised
from tests.unit.agents.workloads.engine.stand_in import HELP
from tuner.core import InvalidInput


@pytest.mark.parametrize(("build", "dialect"), [("0.3.36", SPEC), ("0.3.16", DRAFT_MAX)])
def test_the_options_of_a_build_follow_from_its_help(build: str, dialect: Dialect) -> None:
    assert dialect_of(HELP[build], "llama-server") is dialect


def test_a_build_without_speculation_is_refused_by_name() -> None:
    with raised(InvalidInput, "/opt/llama-server", "--help"):
        dialect_of(HELP["0.2.0"], "/opt/llama-server")


@pytest.mark.parametrize("dialect", [SPEC, DRAFT_MAX])
def test_without_drafting_no_draft_is_loaded(dialect: Dialect) -> None:
    draft = Draft(file=Path("d.gguf"))
    assert "d.gguf" not in dialect.options(0, draft)
    options = dialect.options(5, draft)
    assert options[options.index(dialect.draft) + 1] == "d.gguf"
    assert options[options.index(dialect.length) + 1] == "5"


@pytest.mark.parametrize("method", SPEC.methods)
def test_each_method_gets_its_length_by_its_own_option(method: str) -> None:
    options = SPEC.options(5, Draft(method))
    assert options[:2] == ["--spec-type", method]
    assert options[-1] == "5"
    assert SPEC.draft not in options


def test_an_n_gram_is_never_longer_than_its_draft() -> None:
    for length, lookup in ((4, "4"), (48, "12")):
        options = SPEC.options(length, Draft("ngram-simple"))
        assert options[options.index("--spec-ngram-simple-size-n") + 1] == lookup


def test_only_methods_that_the_build_lists_and_whose_length_can_be_set_are_known() -> None:
    help_text = "--spec-type none,draft-simple,ngram-mod,ngram-cache\n"
    assert SPEC.methods_in(help_text) == ["draft-simple", "ngram-mod"]
    assert SPEC.methods_in("--spec-type [none|ngram-simple]") == ["ngram-simple"]
    assert DRAFT_MAX.methods_in(HELP["0.3.16"]) == ["draft-simple"]


def test_options_that_the_proxy_sets_are_named() -> None:
    command = ["-m", "t.gguf", "--port", "80", "--spec-type=none", "-md", "d.gguf", "-np", "4"]
    command += ["--spec-ngram-mod-n-max", "8"]
    assert owned(command) == ["--port", "--spec-type=none", "-md", "--spec-ngram-mod-n-max"]


@pytest.mark.parametrize(
    ("shown", "length", "dialect", "fits"),
    [
        (Timings(24, 1.0, drafted=54, accepted=8), 4, SPEC, True),  # recorded, 0.3.36
        (Timings(24, 1.0, drafted=36, accepted=3), 4, DRAFT_MAX, True),  # recorded, 0.3.16
        (Timings(24, 1.0), 0, SPEC, True),
        (Timings(24, 1.0), 4, SPEC, False),
        (Timings(24, 1.0, drafted=1), 0, SPEC, False),
        (Timings(24, 1.0, drafted=54, accepted=8), 3, SPEC, False),
        (Timings(24, 1.0, drafted=54, accepted=8), 8, SPEC, False),
        (Timings(36, 1.0, drafted=32, accepted=31), 8, SPEC, True),  # accepts nearly all
        (Timings(1, 1.0, drafted=0), 4, SPEC, False),
    ],
)
def test_a_length_is_checked_by_the_drafted_tokens(
    shown: Timings, length: int, dialect: Dialect, fits: bool
) -> None:
    assert has_length(shown, length, dialect) is fits


def test_a_method_that_drafts_repeats_may_draft_less_but_not_more() -> None:
    for drafted, fits in ((0, True), (92, True), (93, False)):
        shown = Timings(24, 1.0, drafted=drafted)
        assert has_length(shown, 4, SPEC, always=False) is fits
