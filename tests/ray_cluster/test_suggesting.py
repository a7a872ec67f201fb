"""Suggestions computed on a real Ray cluster of two workers: `make test-ray`."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from policies import load_policy
from tests.integration.stage import stage
from tests.integration.test_suggesting import tuned
from tests.processes import command_line, kill, processes
from tests.ray_cluster.conftest import Cluster
from tests.unit.tuner.suggesting.test_workers import pasts
from tuner.core import ConfigError
from tuner.suggesting.questions import ask, read
from tuner.suggesting.workers import WorkerLost

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

LONG_S = 300.0


@pytest.fixture
def place(cluster: Cluster) -> Iterator[str]:
    yield f"ray://127.0.0.1:{cluster.clients}"


def test_ray_suggests_the_same_as_this_process_and_a_lost_worker_is_reported(place: str) -> None:
    from tuner.suggesting.cluster import RayCluster

    opened = RayCluster(place)
    try:
        assert opened.cpus == 2
        worker = opened.worker()
        here = [load_policy("polythrottle").suggest(one) for one in pasts()]
        answers = read(worker.answer(ask("polythrottle", pasts()), LONG_S), 3)
        assert [one.suggestion() for one in answers] == here

        ended = threading.Event()
        killer = threading.Thread(target=kill_at_work, args=(ended,))
        killer.start()
        try:
            with pytest.raises(WorkerLost, match="lost"):
                while not ended.is_set():
                    worker.answer(ask("polythrottle", pasts() * 20), LONG_S)
        finally:
            ended.set()
            killer.join()
        again = read(worker.answer(ask("polythrottle", pasts()), LONG_S), 3)
        assert [one.suggestion() for one in again] == here
        with pytest.raises(WorkerLost, match="no suggestion after"):
            worker.answer(ask("polythrottle", pasts() * 20), 0.05)
    finally:
        opened.close()


def kill_at_work(ended: threading.Event) -> None:
    """Kill the Ray process that computes a suggestion."""
    while not ended.wait(0.05):
        for pid in processes():
            if any("ray::answer" in word for word in command_line(pid)):
                kill(pid)
                return


def test_a_study_is_tuned_by_a_tuner_with_ray(place: str, tmp_path: Path) -> None:
    with stage(tmp_path, f'suggest = "{place}"\n') as played:
        tuned(played)


def test_a_cluster_that_is_not_there_is_a_clear_refusal() -> None:
    from tuner.suggesting.cluster import RayCluster

    with pytest.raises(ConfigError, match="no Ray cluster answers"):
        RayCluster("ray://127.0.0.1:1")
