"""A workload behind HTTP: its knobs, and its latency under our load.

The contract. Any server that speaks it on loopback can be tuned; it need not know us. Bodies are
JSON, answers carry a Content-Length.

`GET /knobs` → 200 `{"name": "…", "version": "…", "knobs": [{"name": "batch_size", "values": [1, 2],
    "default": 1, "cost": {"seconds": 0.1, "restart": false}, "role": "batch"}],
    "only": [{"batch_size": 1}], "setting": {"batch_size": 1}}`. `values` in natural order; `cost` and
    `role` (what it does: `tuner.core.Role`) may be left out; `only`, where given, lists the allowed
    combinations; `setting` is what is in force. A new `version` makes former measurements void.
`PUT /knobs` `{"batch_size": 2}` → 200 `{"setting": {…}}` once it is in force; knobs not named stay.
    4xx `{"error": {"code": "…", "message": "…"}}`: refused, and nothing was changed. 5xx likewise:
    it could not be reached, and `GET /knobs` says what is in force.
`GET /stats` → 200 `{"cpu_s": 12.3, "items": 45, "failed": 0, "pids": [1, 2]}`: CPU seconds of the
    server and all its processes, ended ones too; items completed and failed; none ever decreases.
    It may also tell, of totals: `batches` run (the items of a batch share its latency, so they count as
    one observation of a tail), `arrived` requests, and `in_flight_s`, the seconds that all of these
    have spent in the server so far, waiting or served: from it the agent knows the load while nothing
    is measured, and follows a plan by `requests_in_system`. `inside` is how many are in it now; a
    server that reports it lets `GET /stats?inside=6&within_s=1` wait for six, a second at most. And
    `incarnation`, another word after each start: a server that was started again gets the setting in
    force again.
`POST /infer`, any body or none → 200 `{"label": 7}` for one synthetic item, or 503 `{"error": …}`.
"""

from agents.workloads.served.adapter import attach
from agents.workloads.served.child import start_reference

__all__ = ["attach", "start_reference"]
