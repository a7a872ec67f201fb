"""Each bench writes its own section of the pages of figures."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.bench.contest.contest import ContestTerms, jobs_of, standings
from tests.bench.contest.test_score import look, outcome
from tests.bench.made_up.kinds import made_up
from tests.bench.result import changed, header, machine
from tests.processes import run_to_end
from tuner.cli.output import json_text

TOP = Path(__file__).parents[1]
SCRIPT = TOP / "docs/figures.py"


def standing() -> Any:  # noqa: ANN401
    """Return the bench's output for two deterministic tuners on two surfaces."""
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
    return {**of_a_commit(), **json.loads(json_text(standings(jobs, results, terms)))}


def of_a_commit(name: str = "0123456789ab") -> dict[str, Any]:
    """Return a header as of a clean checkout, whatever this one has changed."""
    return {"measured": {**header()["measured"], "commit": name}}


STANDING = standing()
SURFACES = "| `ours` | 0.75 | 0.88 | 1.00 / 1.00 | 0.0 % / 0.0 % | 0.0 / 0.0 | 0.10 |"


def written(page: Path, name: str, result: object) -> subprocess.CompletedProcess[str]:
    told = page.with_suffix(".json")
    told.write_text(json.dumps(result))
    return run_to_end([sys.executable, SCRIPT, name, told, page], timeout=120)


@pytest.mark.parametrize("name", ["surfaces", "made-up"])
def test_a_bench_replaces_its_own_section_and_nothing_else(tmp_path: Path, name: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n\n<!-- figures: {name} -->\nold\n<!-- end: {name} -->\n\nafter\n")
    assert written(page, name, STANDING).returncode == 0
    text = page.read_text()
    assert text.startswith(f"before\n\n<!-- figures: {name} -->\n") and text.endswith("\n\nafter\n")
    assert SURFACES in text and "old" not in text
    assert f"Measured on {machine()}, {STANDING['measured']['at'][:10]}, commit " in text
    assert written(page, name, STANDING).returncode == 0
    assert page.read_text() == text


def test_figures_of_a_changed_tree_are_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- figures: surfaces -->\nold\n<!-- end: surfaces -->\n")
    refused = written(page, "surfaces", {**STANDING, **of_a_commit("0123456789ab-dirty")})
    assert refused.returncode == 1 and "commit, then run the bench again" in refused.stderr
    assert "old" in page.read_text()


def test_a_bench_that_wrote_its_figures_leaves_the_next_one_clean(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    pages = ("docs/figures.md", "README.md")
    for path in (*pages, "code.py"):
        (tmp_path / path).write_text("before\n")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "First"]):
        subprocess.run([*git, *command], check=True)
    assert not changed(tmp_path)
    for path in pages:
        (tmp_path / path).write_text("after\n")
    assert not changed(tmp_path)
    (tmp_path / "code.py").write_text("after\n")
    assert changed(tmp_path)


def test_the_optimisers_tables_list_pairs_sources_and_sources_left_out(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- figures: surfaces -->\n<!-- end: surfaces -->\n")
    assert written(page, "surfaces", STANDING).returncode == 0
    text = page.read_text()
    assert "| `ours-strict` | +0.25 | +0.25 | +0.25 ± 0.00 | +0.25 ± 0.00 | 1.00 / 1.00 |" in text
    assert "| queue | 1 | 0.75 / 0.88 (1.0) | 0.50 / 0.62 (1.0) |" in text
    assert "| sockets | `ours` | 0.75 / 0.88 | 1.00 / 1.00 |" in text


def test_the_packages_table_has_each_release_beside_the_others(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- figures: release -->\n<!-- end: release -->\n")
    judged = {"errors": {}, "warnings": {"a-tag": 2, "b-tag": 1}, "overridden": {"c-tag": 40}}
    done = {"result": "ok", "seconds": 61.4}
    steps = [
        {"step": "tag equals version", "root": "", "not_run": "this commit has no tag"},
        {"step": "1.0 waits for", "root": "", **done, "missing": ["an Orin"]},
        {"step": "unit", "root": "Ubuntu 22.04", **done, "result": "failed"},
        {"step": "build", "root": "Debian 12", **done, "mb": {"a.deb": 14.9, "b.deb": 375.6}},
        {"step": "lintian", "root": "Debian 12", **done, "lintian": judged},
        {"step": "build", "root": "Debian 13", "result": "failed", "seconds": 2.0, "mb": 269},
        {"step": "lintian", "root": "Debian 13", "not_run": "no lintian"},
    ]
    ran = written(page, "release", {**of_a_commit(), "steps": steps})
    assert ran.returncode == 0, ran.stderr
    text = page.read_text()
    for row in (
        "| step | Debian 12 | Debian 13 |",
        "| build | 61 s, 14.9 + 375.6 MB | failed, 2 s, 269 MB |",
        "| lintian | 61 s, 0 errors, 3 warnings, 40 overridden | not run (no lintian) |",
        "\ntag equals version: not run (this commit has no tag). Ubuntu 22.04 unit: failed, 61 s.\n",
    ):
        assert row in text


def test_by_default_the_page_with_the_section_is_written(tmp_path: Path) -> None:
    script = tmp_path / "figures.py"
    script.write_text(SCRIPT.read_text())
    script.with_suffix(".txt").write_text(SCRIPT.with_suffix(".txt").read_text())
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
    ran = written(page, "surfaces", STANDING)
    assert ran.returncode != 0 and "has no section for 'surfaces'" in ran.stderr
    assert page.read_text() == "nothing here\n"


def test_a_result_without_its_machine_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- figures: surfaces -->\n<!-- end: surfaces -->\n")
    ran = written(page, "surfaces", {k: v for k, v in STANDING.items() if k != "measured"})
    assert ran.returncode != 0 and "run the bench again" in ran.stderr


def script() -> Any:  # noqa: ANN401
    """Return docs/figures.py as a module."""
    spec = importlib.util.spec_from_file_location("figures", SCRIPT)
    assert spec is not None and spec.loader is not None
    figures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(figures)
    return figures


def test_every_block_names_commits_of_this_history() -> None:
    blocks = [(name, text, commits) for _, name, text, commits in script().measured()]
    assert {name for name, _, _ in blocks} == set(script().SECTIONS)
    assert [name for name, text, commits in blocks if text.strip() and not commits] == []
    named = {commit for _, _, commits in blocks for commit in commits}
    assert [commit for commit in named if commit.endswith("-dirty")] == []
    git = ["git", "-C", str(TOP)]
    known = run_to_end([*git, "log", "--format=%H"])
    if known.returncode or (TOP / ".git/shallow").exists():
        pytest.skip("there is no history here to find the commits in")
    history = known.stdout.split()
    assert [c for c in named if not any(full.startswith(c) for full in history)] == []


def test_the_queue_of_make_runs_every_bench_of_a_page() -> None:
    command = ["make", "--dry-run", "--always-make", "figures"]
    ran = run_to_end(command, cwd=TOP, timeout=120)
    assert ran.returncode == 0, ran.stderr
    loops = re.findall(r"for one in ([\w -]+);", ran.stdout)
    written = re.findall(r"docs/figures\.py ([\w-]+)", ran.stdout) + " ".join(loops).split()
    assert set(script().SECTIONS) - {"release"} <= set(written)


def test_the_page_has_a_section_for_every_bench_that_writes_one() -> None:
    figures = script()
    page = "".join(file.read_text() for file in sorted((TOP / "docs").rglob("*.md")))
    for name in figures.SECTIONS:
        assert page.count(f"<!-- figures: {name} -->") == page.count(f"<!-- end: {name} -->") == 1
