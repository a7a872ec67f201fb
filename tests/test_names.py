"""Names: our packages, plain terms; and cheap imports."""

from __future__ import annotations

import ast
import functools
import sys
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests.processes import run_to_end
from tuner import core

OURS = {
    **dict.fromkeys(("tuner", "agents", "policies", "db"), "jouletune"),
    "jouletune_bench": "jouletune-bench",
}
"""Our import packages, each with its distribution."""
TOP = Path(__file__).parents[1]

DIALECT = {
    "asked": "requested, query",
    "asks": "requests",
    "found": "the thing: estimate, matches, original",
    "got": "the thing: reply, row",
    "known": "registered, measured, cached",
    "said": "message, refusal",
    "stands": "status",
    "tells": "reports, has_",
    "told": "reported, reply",
    "untold": "unreported",
    "vain": "failed, without result",
    "wanted": "requested, target",
}
"""Words that name nothing of the field, and what does. `known` alone is one; `known_metrics` is plain."""
ALONE = {"known", "wanted"}
EXCEPTIONS = {
    ("agents/devices/jetson/board.py", "known"): "an adjective: a known board",
    ("agents/devices/jetson/rails.py", "known"): "an adjective: a known board",
    ("agents/devices/simulated/__init__.py", "known"): "public: the true values of a device",
    ("agents/devices/nvidia/nvml.py", "FUNCTION_NOT_FOUND"): "NVML's name",
    ("agents/devices/nvidia/nvml.py", "LIBRARY_NOT_FOUND"): "NVML's name",
    ("agents/holding/hold.py", "told"): "a key of the hold on the disk",
    ("agents/speculation/messages.py", "untold"): "a field of the proxy's statistics",
    ("agents/workloads/engine/figures.py", "untold"): "a field of the proxy's statistics",
    ("tuner/wire/fleet.py", "told_s"): "a field on the wire",
}
"""Names that stay, with the reason. An unneeded exception fails."""


@functools.cache
def parsed() -> tuple[tuple[str, ast.AST], ...]:
    """Return each of our files, parsed."""
    bench = TOP / "tests/bench/src"
    tops = [bench / room if (bench / room).is_dir() else TOP / room for room in OURS]
    paths = (path for top in tops for path in sorted(top.rglob("*.py")))
    return tuple((str(path.relative_to(TOP)), ast.parse(path.read_text())) for path in paths)


def defined(tree: ast.AST) -> Iterator[str]:
    """Yield the names that a file defines: of variables, parameters, attributes, functions, classes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.id if isinstance(node, ast.Name) else node.attr
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name


def dialect(name: str) -> set[str]:
    """Return the words of the dialect in a name."""
    bare = name.strip("_").lower()
    words = {bare, *bare.split("_")}
    return {word for word in words & DIALECT.keys() if word == bare or word not in ALONE}


@pytest.mark.parametrize(("name", "distribution"), OURS.items())
def test_one_distribution_owns_each_import_name(name: str, distribution: str) -> None:
    assert set(packages_distributions()[name]) == {distribution}


def test_no_two_classes_share_a_name() -> None:
    trees = [tree for _, tree in parsed()]
    classes = Counter(n.name for t in trees for n in ast.walk(t) if isinstance(n, ast.ClassDef))
    assert [name for name, count in classes.items() if count > 1] == []


def test_no_name_is_in_the_projects_former_dialect() -> None:
    names = {
        (file, name.strip("_")): [DIALECT[word] for word in dialect(name)]
        for file, tree in parsed()
        for name in defined(tree)
        if dialect(name)
    }
    assert not {at: better for at, better in names.items() if at not in EXCEPTIONS}
    assert set(names) == set(EXCEPTIONS), "drop an exception that is not needed any more"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("_found", {"found"}),
        ("told_here", {"told"}),
        ("known", {"known"}),
        ("known_metrics", set()),
    ],
)
def test_words_of_the_dialect_in_a_name_are_found(name: str, words: set[str]) -> None:
    assert dialect(name) == words


def test_a_name_of_the_vocabulary_has_one_meaning() -> None:
    for name, module in sys.modules.items():
        if name.startswith("tuner.core."):
            public = {k: v for k, v in vars(module).items() if not k.startswith("_")}
            assert {k: v for k, v in public.items() if getattr(core, k) is not v} == {}


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("tuner", {"pydantic", "torch"}),
        ("tuner.core", {"pydantic", "torch", "numpy"}),
        ("tuner.cli.app", {"torch", "numpy", "sqlalchemy", "fastapi", "pydantic", "httpx2"}),
        ("agents.main", {"torch", "numpy", "sqlalchemy", "fastapi"}),
        ("db", {"sqlalchemy", "alembic"}),
        ("policies", {"torch", "numpy"}),
        ("tuner.client", {"torch", "numpy", "sqlalchemy", "fastapi", "pandas", "matplotlib"}),
        ("tuner.exports.mlflow", {"mlflow", "sqlalchemy", "torch"}),
    ],
)
def test_importing_a_module_does_not_import_optional_packages(module: str, heavy: set[str]) -> None:
    probe = f"import sys, {module}; print(*sys.modules)"
    done = run_to_end([sys.executable, "-c", probe], check=True, timeout=60)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert loaded & heavy == set()
    assert module.partition(".")[0] in loaded
