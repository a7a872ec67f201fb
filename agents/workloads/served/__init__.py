"""A workload behind HTTP: its knobs, and its latency under our load.

The contract: any server that implements it on loopback can be tuned without jouletune's code. Bodies
are JSON; answers have a Content-Length.

`GET /knobs` → 200 `{"name": "…", "version": "…", "knobs": [{"name": "batch_size", "values": [1, 2],
    "default": 1, "cost": {"seconds": 0.1, "restart": false}, "role": "batch"}],
    "only": [{"batch_size": 1}], "setting": {"batch_size": 1}}`. `values` are in their natural order;
    `cost` and `role` (`tuner.core.Role`) are optional; the optional `only` lists the allowed
    combinations; `setting` is the setting in force. A new `version` makes former measurements void.
`PUT /knobs` `{"batch_size": 2}` → 200 `{"setting": {…}}` once it is in force; knobs not named stay.
    4xx `{"error": {"code": "…", "message": "…"}}`: refused, and nothing was changed. 5xx, with the same
    body: the setting was not reached, and `GET /knobs` has the setting in force.
`GET /stats` → 200 `{"cpu_s": 12.3, "items": 45, "failed": 0, "pids": [1, 2]}`: CPU seconds of the
    server and all its processes, ended ones too; items completed and failed; none ever decreases.
    Optional totals: `batches` (the items of a batch share its latency, so they count as one observation
    of a tail), `arrived` requests, and `in_flight_s`, the time in s that all of these have spent in the
    server so far, waiting or served. From `in_flight_s` the agent computes the load between windows,
    and follows a plan by `requests_in_system`. Optional `inside`: the number of requests in the server
    now. With it, `GET /stats?inside=6&within_s=1` returns once six requests are inside, after one second
    at most. Optional `incarnation`: a text that differs after each start, after which the setting is
    applied again.
`POST /infer`, with or without a body → 200 `{"label": 7}` for one synthetic item, or 503 `{"error": …}`.
"""

from agents.workloads.served.adapter import attach
from agents.workloads.served.child import start_reference

__all__ = ["attach", "start_reference"]
