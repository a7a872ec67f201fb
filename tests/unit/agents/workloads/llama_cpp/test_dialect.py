"""Start options, by what a build says it understands."""

from __future__ import annotations

import pytest

from agents.workloads.llama_cpp.dialect import DRAFT, SPEC, Dialect, dialect_of, owned
from tests.errors import raised
from tests.unit.agents.workloads.llama_cpp.stand_in import HELP
from tuner.core import InvalidInput


@pytest.mark.parametrize(("build", "dialect"), [("0.3.36", SPEC), ("0.3.16", DRAFT)])
def test_a_builds_help_tells_its_options(build: str, dialect: Dialect) -> None:
    assert dialect_of(HELP[build], "llama-server") is dialect


def test_a_build_without_speculation_is_refused_by_name() -> None:
    with raised(InvalidInput, "/opt/llama-server", "--help"):
        dialect_of(HELP["0.2.0"], "/opt/llama-server")


@pytest.mark.parametrize("dialect", [SPEC, DRAFT])
def test_off_loads_no_draft(dialect: Dialect) -> None:
    assert "d.gguf" not in dialect.options(0, "d.gguf")
    options = dialect.options(5, "d.gguf")
    assert options[options.index(dialect.draft) + 1] == "d.gguf"
    assert options[options.index(dialect.length) + 1] == "5"


def test_options_that_the_proxy_sets_are_named() -> None:
    command = ["-m", "t.gguf", "--port", "80", "--spec-type=none", "-md", "d.gguf", "-np", "4"]
    assert owned(command) == ["--port", "--spec-type=none", "-md"]
