"""Pages of figures are written by the benches, each its own section."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.tuner.bench.test_score import look, outcome
from tuner.bench.contest import ContestTerms, jobs_of, standings
from tuner.bench.made_up.kinds import made_up
from tuner.cli.output import json_text

TOP = Path(__file__).parents[1]
SCRIPT = TOP / "docs/figures.py"
GAIN = {
    "model": "mobilenet",
    "batch": 1,
    "allocator": "glibc-keep",
    "speedup": 1.4,
    "speedup_stderr": 0.02,
    "glibc_bytes": 100 << 20,
    "own_bytes": 120 << 20,
    "foreign": 0.03,
}
FAT = {"instances": 1, "threads": 2, "batch": 2}
THIN = {"instances": 2, "threads": 1, "batch": 1}
GAINED = {"speedup": 1.25, "stderr": 0.04}


def standing() -> Any:  # noqa: ANN401
    """Return what the benchmark writes of two tuners that always do the same on two surfaces."""
    terms = ContestTerms(
        tuners=("ours", "ours-strict"),
        budgets=(5, 8),
        slacks=(1.1,),
        noise=0.02,
        seeds=1,
        leave_one_out=True,
    )
    captured = {"ours": (0.75, 0.875), "ours-strict": (0.5, 0.625)}
    jobs = jobs_of(made_up(0, 2), terms)
    results = [
        outcome(
            job.task.tuner,
            job.task.problem.source,
            job.task.problem.surface.name,
            job.task.seed,
            *(
                look(share, budget=budget, windows_above=1)
                for budget, share in zip((5, 8), captured[job.task.tuner], strict=True)
            ),
        )
        for job in jobs
    ]
    return json.loads(json_text(standings(jobs, results, terms)))


STANDING = standing()
RESULTS: dict[str, Any] = {
    "surfaces": STANDING,
    "made-up": STANDING,
    "allocators": {"gains": [GAIN, {**GAIN, "batch": 2, "speedup": 1.6}]},
    "packrat": {
        "speedup_mean": 1.1,
        "speedup_max": 1.3,
        "slower_than_fat": 0,
        "prediction_error_median_percent": 4.2,
        "prediction_error_least_percent": -3.0,
        "prediction_error_most_percent": 6.1,
        "models": [
            {
                "model": "bert",
                "rejected_windows": 2,
                "disturbed_windows": 1,
                "batches": [
                    {"batch": 1, "confirming": None, "plan": [FAT], "candidate": [FAT]},
                    {
                        "batch": 2,
                        "confirming": GAINED,
                        "plan": [THIN],
                        "candidate": [THIN],
                        "speedup": 1.3,
                        "speedup_stderr": 0.03,
                    },
                    {"batch": 4, "confirming": GAINED, "plan": [FAT], "candidate": [THIN]},
                ],
            }
        ],
    },
}


def about(mean: float) -> dict[str, float]:
    return {"mean": mean, "stderr": 0.1 * mean}


RESULTS["federated"] = {
    "federations": [
        {
            "title": "digits, IID",
            "target": 0.91,
            "best_fixed": {"participants": 10, "batch_size": 8, "local_epochs": 5},
            "arms": [
                {
                    "name": name,
                    "energy_j": about(12000.0),
                    "seconds": about(7200.0),
                    "rounds": about(40.0),
                    "saving": about(3.0),
                    "faster": about(2.0),
                    "final_accuracy": about(0.95),
                    "reached": 4,
                    "decision_ms": 2.5,
                }
                for name in ("Flower's defaults", "best fixed setting", "fedgpo")
            ],
        }
    ]
}
RESULTS["apart"] = {
    "slack": 1.2,
    "seeds": 3,
    "runs": [
        {
            "surface": "queue",
            "devices": devices,
            "seed": seed,
            "saving": saving,
            "found": [[0.0, 0.0], [3.0, 0.1], [(18.0 + seed) / devices + 2.0, 0.2]],
            "held": 30.0 / devices,
            "tried": 12,
            "above": 1,
            "held_above": False,
        }
        for devices in (1, 4)
        for seed, saving in enumerate((0.2, 0.2, 0.0))
    ],
}
RESULTS["speculation"] = {
    "draft": "wide",
    "table": {"points": 12, "of": 54},
    "batches": [
        {
            "batch": 2,
            "planned": 3,
            "best_fixed": 4,
            "fixed": {"0": [100.0, 2.0], "4": [150.0, 3.0]},
            "adaptive": [149.0, 3.0],
            "adaptive_over_off": [1.49, 0.04],
            "adaptive_over_best": [0.993, 0.03],
        }
    ],
    "moving": {
        "loads": [1, 32],
        "adaptive_over_off": 1.3,
        "adaptive_over_single_best": 1.04,
        "single_best": 2,
    },
    "collapse": {"stopped_after_s": 1.5, "after": 97.0, "plain_after": 100.0},
    "drafts": [{"draft": "wide", "predicted": 151.0, "measured": 150.0, "stderr": 2.0}],
    "misranked": 0,
    "rejected_windows": 1,
    "disturbed_windows": 0,
    "foreign_worst": 0.04,
}
LEVEL = {"mean": 4.0, "stderr": 0.1}
RESULTS["plugins"] = {
    name: {
        "title": name,
        "won": won,
        "saving_percent": 25.0 if won else None,
        "saving_stderr_percent": 0.5 if won else None,
        "baseline": {"setting": {"level": 6}, "metrics": {"cpu_time_ms": LEVEL}, "windows": 5},
        "best": {
            "setting": {"level": 1},
            "metrics": {"cpu_time_ms": {"mean": 3.0, "stderr": 0.1}, "size_kb": {"mean": 9.0}},
            "windows": 4,
        },
        "study": {
            "objective": "minimize cpu_time_ms",
            "constraints": ["size_kb <= 1.2x baseline"],
            "limits": [{"metric": "size_kb", "op": "<=", "value": 12.0}],
            "why": "nothing likely beats the baseline",
        },
        "trials": 9,
        "violations": 1,
        "foreign_share": 0.5,
        "foreign_most": 0.25,
    }
    for name, won in (("nginx", True), ("Redis", False))
}
RESULTS["boards"] = [
    {
        "board": "orin",
        "policy": "polythrottle",
        "seed": seed,
        "saving": 0.25 - 0.01 * seed,
        "possible": 0.25,
        "captured": 1.0 - 0.04 * seed,
        "kept": True,
        "tried": 20,
        "tried_above": seed,
        "trials_to_95": 8 if seed == 0 else None,
    }
    for seed in (0, 1)
]
for own in ("devices", "host", "host-alone"):
    RESULTS[own] = {
        "slack": 1.2,
        "trials": 20,
        "rows": [
            {
                "device": "simulated:tx2",
                "policy": "sobol",
                "settings": 5005,
                "studies": 5,
                "saving": 0.082,
                "saving_stderr": 0.045,
                "possible": 0.264,
                "captured": 0.31,
                "near": 0,
                "trials_to_near": None,
                "violations": 0.67,
                "held_above": 0,
            }
        ],
    }
DEVICES = "| tx2 | `sobol` | 5,005 | 8.2 ± 4.5 | 26.4 | 0.31 | – | 67 % | 0 |"
RESULTS["service"] = [
    {
        "commit": "abc1234",
        "agents": 2000,
        "idle_core": 0.014,
        "core": 0.114,
        "bytes_per_agent": 27_800.0,
        "health_p50_s": 0.001,
        "health_p99_s": 0.006,
        "order_p50_s": 0.06,
        "order_p99_s": 0.3,
        "orders": 100,
        "foreign": 0.02,
    }
]
RESULTS["pages"] = [
    {
        "database": name,
        "devices": 500,
        "studies": 200,
        "trials": 100_000,
        "first_s": {"/": 0.4},
        "p95_s": {"/": 0.2},
        "idle_core": 0.05,
        "viewer_core": 0.015,
    }
    for name in ("SQLite", "PostgreSQL")
]
SURFACES = "| `ours` | 0.75 | 0.88 | 1.00 / 1.00 | 0.0 % / 0.0 % | 0.0 / 0.0 | 0.10 |"
RESULTS["fleet"] = {
    "holding": {
        "commit": "abc1234", "agents": 10_000, "held": 9_700, "trying": 199, "requests_per_s": 251.3,
        "failed_per_s": 0.0, "trials_per_s": 19.5, "windows_per_s": 38.2, "health_p50_s": 0.002,
        "health_p99_s": 0.081, "order_p50_s": 0.2, "order_p99_s": 0.9, "orders": 100, "orders_lost": 0,
        "tuner_core": 0.61, "tuner_bytes": 480_000_000, "tuner_bytes_before": 150_000_000,
        "seconds": 60.0, "load_before": 0.4,
    },
    "replicas": {
        "commit": "abc1234", "minutes": 10.0, "studies": 28, "trials": 1_800, "failed": 500,
        "done": {"tuners killed": 17, "tuners cut off": 17, "database restarts": 3},
        "receipts": {"trials closed": 1_700, "trials duplicate": 3, "holds kept": 9},
    },
    "asking": {
        "commit": "abc1234", "studies": 1_000, "settings": 500, "trials": 20, "same": 1_000,
        "runs": [{"by": b, "seconds": s} for b, s in (("one process", 30.0), ("Ray", 15.0)) * 2],
    },
    "trials": {
        "commit": "abc1234", "devices": 500, "studies": 20_500, "trials": 10_000_000, "bytes": 9e9,
        "first_s": {"the fleet, page": 0.4}, "p95_s": {"the fleet, page": 0.25},
    },
    "upgrade": {
        "commit": "abc1234", "agents": 1_000, "studies": 40, "schemas": ["0002", "0003"],
        "requests_in_vain": 3, "trials": 2_640, "receipts": {"trials closed": 2_640},
    },
}  # fmt: skip
SHOWN = {
    "surfaces": SURFACES,
    "made-up": SURFACES,
    "plugins": "| level 6 → 1 | 4 → 3 | **25.0 ± 0.5 %** | size_kb at 75% |",
    "fleet": "| the tuner | 0.61 of a core, 33.0 kB an agent |",
    "pages": "| `/` | 200 ms | 400 ms | 200 ms | 400 ms |",
    "service": "| abc1234 | 2,000 | 0.114 | 50 | 28 kB | 1.0 and 6 ms | 0.30 s of 100 | 2% |",
    "devices": DEVICES,
    "host": DEVICES,
    "host-alone": DEVICES,
    "boards": "| orin | polythrottle | 24.5 (24.0 to 25.0) | 25.0 | 0.96 | 8 (1 of 2) | 2 % of 40 |",
    "apart": "| queue | 18.5 | 4.6 | 0.25 | 13.3 % | 13.3 % | 12.0 / 12.0 | 1.0 / 1.0 |",
    "federated": "best fixed (K 10, B 8, E 5)",
    "speculation": "| 2 | 3 | 4 | 100 ± 2 | 150 ± 3 | 149 ± 3 | 1.49 ± 0.04 | 0.99 ± 0.03 |",
    "allocators": "| mobilenet | `glibc-keep` | 1.40 ± 0.02 | 1.60 ± 0.02 | 1.50 | 100 → 120 MiB |",
    "packrat": "| bert | 1 | 1.30 ± 0.03: 2 × ⟨1, 1⟩ | 1 (1.25 ± 0.04: fat stays) |",
}


def written(page: Path, name: str, result: object) -> subprocess.CompletedProcess[str]:
    told = page.with_suffix(".json")
    told.write_text(json.dumps(result))
    return subprocess.run(
        [sys.executable, SCRIPT, name, told, page], capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize("name", RESULTS)
def test_a_bench_replaces_its_own_section_and_nothing_else(tmp_path: Path, name: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n\n<!-- figures: {name} -->\nold\n<!-- end: {name} -->\n\nafter\n")
    assert written(page, name, RESULTS[name]).returncode == 0
    text = page.read_text()
    assert text.startswith(f"before\n\n<!-- figures: {name} -->\n") and text.endswith("\n\nafter\n")
    assert SHOWN[name] in text and "old" not in text and "Measured on" in text
    assert written(page, name, RESULTS[name]).returncode == 0
    assert page.read_text() == text


def test_the_optimisers_tables_tell_pairs_sources_and_what_was_left_out(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- figures: surfaces -->\n<!-- end: surfaces -->\n")
    assert written(page, "surfaces", STANDING).returncode == 0
    text = page.read_text()
    assert "| `ours-strict` | +0.25 | +0.25 | +0.25 ± 0.00 | +0.25 ± 0.00 | 1.00 / 1.00 |" in text
    assert "| queue | 1 | 0.75 / 0.88 (1.0) | 0.50 / 0.62 (1.0) |" in text
    assert "| sockets | `ours` | 0.75 / 0.88 | 1.00 / 1.00 |" in text


def test_without_a_page_the_one_that_has_the_section_is_written(tmp_path: Path) -> None:
    script = tmp_path / "figures.py"
    script.write_text(SCRIPT.read_text())
    (tmp_path / "figures.md").write_text("nothing here\n")
    page = tmp_path / "other.md"
    page.write_text("<!-- figures: surfaces -->\n<!-- end: surfaces -->\n")
    told = tmp_path / "told.json"
    told.write_text(json.dumps(STANDING))
    subprocess.run([sys.executable, script, "surfaces", told], check=True, timeout=120)
    assert SURFACES in page.read_text()


def test_a_bench_without_a_section_is_refused_and_the_page_stays(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("nothing here\n")
    ran = written(page, "packrat", RESULTS["packrat"])
    assert ran.returncode != 0 and "has no section for 'packrat'" in ran.stderr
    assert page.read_text() == "nothing here\n"


PAGES = (
    "figures.md", "figures-optimiser.md", "fleet.md", "services.md", "tuned-services.md", "web.md",
)  # fmt: skip


def test_the_page_has_a_section_for_every_bench_that_writes_one() -> None:
    spec = importlib.util.spec_from_file_location("figures", SCRIPT)
    assert spec is not None and spec.loader is not None
    figures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(figures)
    page = "".join((TOP / "docs" / name).read_text() for name in PAGES)
    assert set(figures.SECTIONS) == set(RESULTS)
    for name in figures.SECTIONS:
        assert page.count(f"<!-- figures: {name} -->") == page.count(f"<!-- end: {name} -->") == 1
