"""The application of the tests on Ray: a batch takes 5 ms plus 1 ms per item. Ray imports this file."""

# Ray's decorators change what they decorate in ways that mypy cannot follow.
# mypy: ignore-errors

from __future__ import annotations

import os
import time

from ray import serve
from starlette.requests import Request


@serve.deployment(max_ongoing_requests=8)
class Model:
    def reconfigure(self, config: dict[str, int]) -> None:
        if config["max_batch_size"] == config.get("too_much"):
            raise ValueError("there is no memory for such a batch")
        self.infer.set_max_batch_size(config["max_batch_size"])

    @serve.batch(max_batch_size=2, batch_wait_timeout_s=0.005)
    async def infer(self, requests: list[bytes]) -> list[int]:
        time.sleep(0.005 + 0.001 * len(requests))
        return [len(requests)] * len(requests)

    async def __call__(self, request: Request) -> dict[str, object]:
        batch = await self.infer(await request.body())
        return {"batch": batch, "threads": os.environ.get("OMP_NUM_THREADS")}


@serve.deployment
class Bystander:
    def __call__(self, request: Request) -> str:
        return "here"


app = Model.bind()
bystander = Bystander.bind()
