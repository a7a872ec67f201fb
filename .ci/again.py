"""Run each test that failed once more, alone in a fresh process; write the flaky ones to build/flaky.json.

`python3 .ci/again.py TARGET ...`, with the make targets that failed, exits with 0 where at most three tests
had failed and all of them pass now. `python3 .ci/again.py hunt N` runs each of build/flaky.json N times.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

TOP = Path(__file__).parents[1]
FAILURES = TOP / "build" / "failures"
FLAKY = TOP / "build" / "flaky.json"
MOST = 3
"""More failed tests than this are not flaky: the run has failed."""
SECONDS = 1200.0


def passes(noted: dict[str, Any]) -> bool:
    """Run one test in a process of its own."""
    environ = {**os.environ, **noted["environ"]}
    try:
        done = subprocess.run(noted["command"], cwd=TOP, env=environ, check=False, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def failed(targets: list[str]) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return the failed tests by their names, and the targets that failed by something else."""
    tests: dict[str, dict[str, Any]] = {}
    broken = []
    for target in targets:
        path = FAILURES / f"{target}.jsonl"
        text = path.read_text() if path.exists() else ""
        lines = [json.loads(line) for line in text.splitlines()]
        found = {line["test"]: line for line in lines if "test" in line}
        tests |= {name: found[name] for name in found.keys() - tests.keys()}
        ends = [line["ended"] for line in lines if "ended" in line]
        began = sum("began" in line for line in lines)
        if not found or len(ends) < began or max(ends) > 1:
            broken.append(target)
    return tests, broken


def again(targets: list[str]) -> int:
    """Run what failed once more. Returns 0 where all of it passes."""
    tests, broken = failed(targets)
    if broken:
        sys.stdout.write(f"ci: failed by something else than a test: {', '.join(broken)}\n")
        return 1
    if len(tests) > MOST:
        sys.stdout.write(f"ci: {len(tests)} tests failed, at most {MOST} are run again:\n")
        sys.stdout.write("".join(f"  {name}\n" for name in tests))
        return 1
    flaky = [noted for noted in tests.values() if passes(noted)]
    FLAKY.parent.mkdir(parents=True, exist_ok=True)
    FLAKY.write_text(json.dumps(flaky, indent=1) + "\n")
    for noted in flaky:
        sys.stdout.write(f"ci: FLAKY, passed alone: {noted['test']}\n{noted['failure']}\n")
    twice = tests.keys() - {noted["test"] for noted in flaky}
    sys.stdout.write("".join(f"ci: failed twice: {name}\n" for name in sorted(twice)))
    return 1 if twice else 0


def hunt(times: int) -> int:
    """Run each flaky test many times. Returns 0 where none of them fails."""
    if not FLAKY.exists():
        sys.stdout.write("no flaky tests are listed in build/flaky.json\n")
        return 0
    worst = 0
    for noted in json.loads(FLAKY.read_text()):
        lost = sum(not passes(noted) for _ in range(times))
        worst = max(worst, lost)
        sys.stdout.write(f"{lost} of {times} runs failed: {noted['test']}\n")
    return 1 if worst else 0


if __name__ == "__main__":
    sys.exit(hunt(int(sys.argv[2])) if sys.argv[1:2] == ["hunt"] else again(sys.argv[1:]))
