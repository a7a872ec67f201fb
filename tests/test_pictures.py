"""The picture in README is drawn from the output of `jouletune run --json`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "docs/images/study.py"


def window(joules: float, latency_ms: float) -> dict[str, dict[str, float]]:
    return {"energy_j": {"mean": joules}, "latency_p99_ms": {"mean": latency_ms}}


REPORT = {
    "study": {
        "limits": [{"metric": "latency_p99_ms", "op": "<=", "value": 12.0}],
    },
    "baseline": {"metrics": window(0.2, 10.0)},
    "best": {"metrics": window(0.1, 11.0)},
    "board": "a board",
    "saving": {"mean": 0.5, "stderr": 0.01},
    "trials": [
        {"phase": "baseline", "verdict": "feasible", "metrics": window(0.2, 10.0)},
        {"phase": "tuning", "verdict": "feasible", "metrics": window(0.1, 11.0)},
        {"phase": "tuning", "verdict": "infeasible", "metrics": window(0.05, 20.0)},
        {"phase": "tuning", "verdict": None, "metrics": {}},
    ],
}


def drawn(folder: Path, name: str) -> str:
    report, picture = folder / "report.json", folder / name
    report.write_text(json.dumps(REPORT))
    subprocess.run([sys.executable, SCRIPT, report, picture], check=True, timeout=120)
    return picture.read_text()


def test_a_report_becomes_a_picture_and_the_same_one_again(tmp_path: Path) -> None:
    told = drawn(tmp_path, "one.svg")
    for words in ("limit 12.0 ms", "baseline: 200 mJ, 10.0 ms", "best: 100 mJ, 11.0 ms"):
        assert words in told
    assert "tried: feasible (1)" in told and "tried: infeasible (1)" in told
    assert "50.0 ± 1.0 % less energy" in told
    assert drawn(tmp_path, "two.svg") == told
