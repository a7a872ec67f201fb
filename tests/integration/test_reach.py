"""A tuner that others than this machine can reach: what it answers to, and what it warns of."""

from __future__ import annotations

from pathlib import Path

import httpx

from tests.integration.stage import Stage, stage


def addressed_to(found: Stage, name: str) -> int:
    url = f"http://127.0.0.1:{found.tuner_port}/v1/health"
    return httpx.get(url, headers={"Host": name}, timeout=60.0).status_code


def test_a_tuner_that_others_reach_answers_to_its_names_and_warns_that_it_has_no_tls(
    tmp_path: Path,
) -> None:
    with stage(tmp_path, 'host = "0.0.0.0"\nnames = ["Tuner.test"]\n') as found:
        found.start_tuner()
        assert addressed_to(found, f"tuner.test:{found.tuner_port}") == 200
        assert addressed_to(found, "other.test") == 400
        log = found.log("tuner")
        assert f"WARNING there is no TLS on 0.0.0.0:{found.tuner_port}" in log
        assert "INFO it answers to 0.0.0.0, 127.0.0.1, ::1, localhost, tuner.test;" in log


def test_without_names_it_warns_of_those_it_guessed(tmp_path: Path) -> None:
    with stage(tmp_path, 'host = "0.0.0.0"\n') as found:
        found.start_tuner()
        assert "WARNING it answers to " in found.log("tuner")


def test_a_tuner_on_loopback_warns_of_nothing(tmp_path: Path) -> None:
    with stage(tmp_path) as found:
        found.start_tuner()
        assert "WARNING" not in found.log("tuner")
