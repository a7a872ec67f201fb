"""Seed faults in the product, one at a time in a copy of the tree, and count those that tests find.

`make mutants ROOM=tuner/guard.py NUMBER=12 SEED=0` prints JSON. A room's judges are its own unit tests and
the contract tests that import it. Tests that fail without a fault, or none at all, are refused: they would
find each. A run that takes longer than SECONDS, 60 by default, has found nothing.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

TOP = Path(__file__).parents[1]
PAIRS = ["Lt GtE", "Gt LtE", "Eq NotEq", "Is IsNot", "In NotIn"]
TURNED = {a: b for pair in PAIRS for a, b in (pair.split(), pair.split()[::-1])}
JUDGE = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider"]
Fault = tuple[Path, str, ast.expr, str]
"""The file, the operator, the expression that it replaces, and the replacement."""


def faults(tree: ast.AST) -> Iterator[tuple[str, ast.expr, str]]:
    """Yield each operator with the expression that it replaces, and the replacement."""
    formatted = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    within = {part for node in formatted for part in ast.walk(node)}  # has no place of its own
    for node in ast.walk(tree):
        if node in within:
            continue
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            turned = [getattr(ast, TURNED[type(node.ops[0]).__name__])()]
            text = ast.unparse(ast.Compare(node.left, turned, node.comparators))
            yield "comparison turned", node, text
        elif isinstance(node, ast.BoolOp):
            other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield "and/or exchanged", node, ast.unparse(ast.BoolOp(other, node.values))
        elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
            yield "constant + 1", node, f"{ast.unparse(node)} + 1"
            yield "constant - 1", node, f"{ast.unparse(node)} - 1"
        elif isinstance(node, ast.Return) and node.value is not None:
            yield "return dropped", node.value, "None"
        if isinstance(node, ast.If | ast.While | ast.IfExp):
            yield "boolean negated", node.test, f"not ({ast.unparse(node.test)})"
        if isinstance(node, ast.If):
            yield "branch removed", node.test, f"({ast.unparse(node.test)}) and False"


def picked(room: Path, number: int, seed: int) -> list[Fault]:
    """Pick `number` faults of a room, each operator as often as the others where it can be."""
    files = [path.relative_to(TOP) for path in sorted((TOP / room).rglob("*.py"))] or [room]
    by_operator: dict[str, list[Fault]] = {}
    for file in files:
        for operator, node, text in faults(ast.parse((TOP / file).read_text())):
            if ast.unparse(node) != "TYPE_CHECKING":
                by_operator.setdefault(operator, []).append((file, operator, node, text))
    pick = random.Random(f"{seed} {room}")
    for rows in by_operator.values():
        pick.shuffle(rows)
    ranked = [row[rank] for rank in range(number) for row in by_operator.values() if row[rank:]]
    return ranked[:number]


def judges(room: Path, file: Path) -> list[str]:
    """Return the tests of a room, those of the changed file first."""
    unit = TOP / "tests/unit"
    own = unit / file.parent
    tests = [own / f"test_{file.stem.lstrip('_')}.py", own, unit / room]
    tests.append((unit / room).with_name(f"test_{room.stem}.py"))
    name = ".".join(room.with_suffix("").parts)
    for test in sorted(unit.rglob("test_*.py")):
        text = test.read_text()
        if "tests.contracts" in text and name in text:
            tests.append(test)
    return [str(test.relative_to(TOP)) for test in dict.fromkeys(tests) if test.exists()]


def judged(copy: Path, tests: list[str], seconds: float) -> str:
    """Run tests in the copy; return found if one fails, else missed, or late."""
    environ = os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        run = subprocess.run(
            [*JUDGE, *tests], cwd=copy, env=environ, capture_output=True, timeout=seconds
        )
    except subprocess.TimeoutExpired:
        return "late"
    return "found" if run.returncode else "missed"


def tried(copy: Path, fault: Fault, tests: list[str], seconds: float) -> str:
    """Apply a fault in the copy, run the tests, take it back; return what they say."""
    file, _, node, new = fault
    whole = (copy / file).read_bytes()
    rows = whole.splitlines(keepends=True)
    first = sum(map(len, rows[: node.lineno - 1])) + node.col_offset
    last = sum(map(len, rows[: (node.end_lineno or 0) - 1])) + (node.end_col_offset or 0)
    (copy / file).write_bytes(whole[:first] + f"({new})".encode() + whole[last:])
    try:
        return judged(copy, tests, seconds)
    finally:
        (copy / file).write_bytes(whole)


def main() -> None:
    """Print each fault of the rooms with its result, and the sums, as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rooms", type=Path, nargs="+")
    for option, usual in (("--number", 12), ("--seed", 0), ("--seconds", 60)):
        parser.add_argument(option, type=int, default=usual)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="jouletune-mutants-") as folder:
        copy = Path(folder, "tree")
        leave = shutil.ignore_patterns(".git", ".venv*", "build", "__pycache__", ".*_cache")
        shutil.copytree(TOP, copy, symlinks=True, ignore=leave)
        for room in asked.rooms:
            rows = []
            chosen = picked(room, asked.number, asked.seed)
            tests = judges(room, chosen[0][0])
            if not tests or judged(copy, tests, asked.seconds) == "found":
                sys.exit(f"{room}: its tests fail without a fault, or there are none: {tests}")
            for fault in chosen:
                file, operator, node, new = fault
                result = tried(copy, fault, judges(room, file), asked.seconds)
                rows.append([f"{file}:{node.lineno}", operator, new, result])
            sums = Counter(row[-1] for row in rows)
            print(json.dumps({"room": str(room), **sums, "faults": rows}, indent=1))


if __name__ == "__main__":
    main()
