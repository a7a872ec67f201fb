"""The code of docs/client.md, run against a real tuner with a real agent."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.integration.stage import stage

PAGE = Path(__file__).parents[2] / "docs" / "client.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_every_example_of_the_page_runs_in_its_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for extra in ("matplotlib", "pandas", "pyarrow"):
        pytest.importorskip(extra)
    monkeypatch.chdir(tmp_path)
    known: dict[str, object] = {}
    with stage(tmp_path) as here:
        here.start_tuner()
        here.start_agent("simulated:orin")
        here.device()
        outputs = []
        for number, block in enumerate(BLOCKS):
            text = block.replace("127.0.0.1:8790", f"127.0.0.1:{here.tuner_port}")
            exec(compile(text, f"client.md, example {number + 1}", "exec"), known)
            outputs.append(capsys.readouterr().out)
        (study,) = here.call("GET", "/studies")
    assert all(outputs), "an example prints nothing"
    assert study["phase"] == "stopped" and study["trials"]["completed"] > 4
    assert study["constraints"] == ["latency_p99_ms <= 1.5x baseline"]
    assert "study " in Path("study.svg").read_text()
    assert Path("trials.parquet").stat().st_size > 0
    assert "1 studies paused" in outputs[-2]
    assert "not_found" in outputs[-1]
