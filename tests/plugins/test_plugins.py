"""The documented examples, tuned for real: the file works, and nothing is held above its limit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.plugins.bench import TERMS, started
from tests.plugins.servers import SERVERS, Running
from tests.plugins.studies import jouletune, studied

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module", params=list(SERVERS))
def example(request: pytest.FixtureRequest) -> Iterator[tuple[str, Running]]:
    with started(request.param) as running:
        yield request.param, running


def test_everything_in_its_file_works(example: tuple[str, Running]) -> None:
    _, running = example
    folder = running.file.parent
    done = jouletune(running, folder, "workload", "check", str(running.file), "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    findings = json.loads(done.stdout)["findings"]
    assert findings and all(one["there"] for one in findings)


def test_a_study_of_an_example_holds_nothing_above_a_limit(example: tuple[str, Running]) -> None:
    name, running = example
    before = {path: path.read_text() for path in running.file.parent.rglob("*.conf")}
    result = studied(running, running.file.parent, *TERMS[name], "--foreign-share", "1")
    assert result["limit_kept"] is True
    best, limits = result["best"], result["study"]["limits"]
    assert result["won"] == (result["why"].startswith("confirmed"))
    if result["won"]:
        assert result["saving"]["mean"] > 0.0 and result["alternating"]
        for limit in limits:
            mean = best["metrics"][limit["metric"]]["mean"]
            sign = 1 if limit["op"] == "<=" else -1
            assert sign * mean <= sign * limit["value"]
    tried = {json.dumps(t["setting"], sort_keys=True) for t in result["trials"]}
    assert len(tried) > 1
    assert {path: Path(path).read_text() for path in before} == before, "it was not put back"
