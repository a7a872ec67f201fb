"""Workers that compute suggestions on a Ray cluster. Imports ray: import this only if ray is installed.

Tuner and cluster talk over Ray's transport, within one trusted network. Questions and answers are the
same JSON as for local workers.
"""

from __future__ import annotations

import logging
import warnings
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError

from tuner.core import ConfigError
from tuner.suggesting.questions import answer
from tuner.suggesting.workers import WorkerLost


class RayCluster:
    """A connection to a Ray cluster whose nodes have jouletune installed.

    Raises:
        ConfigError: no cluster answers at the address.
    """

    def __init__(self, address: str) -> None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # its error reports the same
                ray.init(address, log_to_driver=False, logging_level=logging.WARNING)
        except (ConnectionError, RayError, RuntimeError, ValueError) as error:
            raise ConfigError(
                f"no Ray cluster answers at {address}: {error}",
                hint="start one with `ray start --head`; its client port is 10001",
            ) from error
        self.cpus = max(1, int(ray.cluster_resources().get("CPU", 1)))
        self._remote: Any = ray.remote(max_retries=0)(answer)

    def worker(self) -> RayWorker:
        """Return a worker of the cluster; it answers one question at a time."""
        return RayWorker(self._remote)

    def close(self) -> None:
        """Disconnect from the cluster; its nodes keep running."""
        ray.shutdown()


class RayWorker:
    """A worker of the cluster: Ray chooses a node for each question."""

    def __init__(self, remote: Any) -> None:  # noqa: ANN401  ray declares no type
        self._remote = remote

    def answer(self, question: bytes, within_s: float) -> bytes:
        """Return the answers to a question. Raises WorkerLost."""
        pending = self._remote.remote(question)
        try:
            reply: bytes = ray.get(pending, timeout=within_s)
        except GetTimeoutError:
            ray.cancel(pending, force=True)
            raise WorkerLost(f"no suggestion after {within_s:g} s") from None
        except (RayError, ConnectionError) as error:
            first = next(iter(str(error).splitlines()), type(error).__name__)
            raise WorkerLost(f"the Ray worker of a suggestion was lost: {first}") from error
        return reply

    def close(self) -> None:
        """Do nothing: the cluster owns its processes."""
