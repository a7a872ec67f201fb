"""The names we own, and what is light to import."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

OURS = ["tuner", "agents", "policies", "db"]


@pytest.mark.parametrize("name", OURS)
def test_we_alone_own_our_import_names(name: str) -> None:
    assert set(packages_distributions()[name]) == {"jouletune"}


def test_no_two_classes_share_a_name() -> None:
    top = Path(__file__).parents[1]
    trees = [ast.parse(p.read_text()) for name in OURS for p in (top / name).rglob("*.py")]
    classes = Counter(n.name for t in trees for n in ast.walk(t) if isinstance(n, ast.ClassDef))
    assert [name for name, count in classes.items() if count > 1] == []


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("tuner", {"pydantic", "torch"}),
        ("tuner.core", {"pydantic", "torch", "numpy"}),
        ("tuner.cli.app", {"torch", "numpy", "sqlalchemy", "fastapi", "pydantic", "httpx"}),
        ("agents.main", {"torch", "numpy", "sqlalchemy", "fastapi"}),
        ("db", {"sqlalchemy", "alembic"}),
        ("policies", {"torch", "numpy"}),
        ("tuner.client", {"torch", "numpy", "sqlalchemy", "fastapi", "pandas", "matplotlib"}),
        ("tuner.exports.mlflow", {"mlflow", "sqlalchemy", "torch"}),
        ("tuner.exports.optuna", {"optuna", "sqlalchemy", "torch"}),
    ],
)
def test_importing_a_module_does_not_import_what_it_may_not_need(
    module: str, heavy: set[str]
) -> None:
    probe = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert loaded & heavy == set()
    assert module.partition(".")[0] in loaded
