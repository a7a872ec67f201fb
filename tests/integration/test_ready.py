"""A tuner that ends on a signal, and one that is not ready while its disk refuses writes."""

from __future__ import annotations

import resource
import signal
from pathlib import Path

import httpx2
import pytest

from tests.integration.stage import Stage, stage
from tests.processes import until


def ask(site: Stage, path: str) -> httpx2.Response:
    return httpx2.get(f"http://127.0.0.1:{site.tuner_port}/v1/{path}", timeout=60.0)


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_a_tuner_that_is_ended_has_finished_its_requests(
    tmp_path: Path, ending: signal.Signals
) -> None:
    with stage(tmp_path) as site:
        site.start_tuner()
        tuner = site.processes["tuner"]
        tuner.send_signal(ending)
        assert tuner.wait(timeout=60.0) == 0
        log = site.log("tuner")
        assert "error" not in log
        assert f"trials are kept in {site.db}" in log and str(site.token_file) in log


@pytest.mark.promise("the database fails, stops answering or fills up")
@pytest.mark.slow
def test_a_tuner_on_a_disk_that_takes_nothing_is_not_ready_until_it_does(tmp_path: Path) -> None:
    with stage(tmp_path) as site:
        site.start_tuner()
        tuner = site.processes["tuner"].pid
        soft, hard = resource.prlimit(tuner, resource.RLIMIT_FSIZE)
        resource.prlimit(tuner, resource.RLIMIT_FSIZE, (1, hard))
        until(lambda: ask(site, "ready").status_code == 503, "it says that it is ready")
        problem = ask(site, "ready").json()
        assert (problem["code"], str(tmp_path) in problem["message"]) == ("store", False)
        assert ask(site, "health").status_code == 200
        resource.prlimit(tuner, resource.RLIMIT_FSIZE, (soft, hard))
        until(lambda: ask(site, "ready").status_code == 200, "it does not recover")
