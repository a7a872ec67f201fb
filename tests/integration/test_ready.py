"""A tuner whose disk takes nothing any more: it lives, says that it is not ready, and recovers."""

from __future__ import annotations

import resource
from pathlib import Path

import httpx

from tests.integration.stage import Stage, stage, until


def ask(found: Stage, path: str) -> httpx.Response:
    return httpx.get(f"http://127.0.0.1:{found.tuner_port}/v1/{path}", timeout=60.0)


def test_a_tuner_on_a_disk_that_takes_nothing_is_not_ready_until_it_does(tmp_path: Path) -> None:
    with stage(tmp_path) as found:
        found.start_tuner()
        tuner = found.processes["tuner"].pid
        soft, hard = resource.prlimit(tuner, resource.RLIMIT_FSIZE)
        resource.prlimit(tuner, resource.RLIMIT_FSIZE, (1, hard))
        until(lambda: ask(found, "ready").status_code == 503, "it says that it is ready")
        told = ask(found, "ready").json()
        assert (told["code"], str(tmp_path) in told["message"]) == ("store", True)
        assert ask(found, "health").status_code == 200
        resource.prlimit(tuner, resource.RLIMIT_FSIZE, (soft, hard))
        until(lambda: ask(found, "ready").status_code == 200, "it does not recover")
