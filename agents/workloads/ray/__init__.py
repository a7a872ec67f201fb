"""A Ray Serve deployment as a workload, by way of Ray's own HTTP interface; Ray is not imported.

`ray:http://127.0.0.1:8265/APPLICATION/DEPLOYMENT` names one deployment of one application at the
address of Ray's dashboard. The application must have been deployed from a config file (`serve
deploy`, or `PUT /api/serve/applications/`): only such a config can be read, changed and restored.

Knobs: `replicas` (`num_replicas`; absent where Ray autoscales them), `num_cpus` (of
`ray_actor_options`; Ray starts a replica's threads by it, so a change restarts the replicas), and
`batch_size`, where the deployment's `user_config` has a number `max_batch_size`, which its
`reconfigure` hands to `set_max_batch_size` of its `@serve.batch` method.

Figures: Ray's own HTTP latency histogram and CPU time, for requests of any sender. With `#callers:4`
after the address, our load generator sends them instead: POST to the application's route, with the
content of FILE as the body where `#callers:4,body:FILE` names one, JSON presumably.
"""

from agents.workloads.ray.attach import attach

__all__ = ["attach"]
