"""A Ray Serve deployment as a workload, through Ray's HTTP interface; Ray is not imported.

`ray:http://127.0.0.1:8265/APPLICATION/DEPLOYMENT` names one deployment of one application at the
address of Ray's dashboard. The application must have been deployed from a config file (`serve
deploy`, or `PUT /api/serve/applications/`): only such a config can be read, changed and restored.

Knobs: `replicas` (`num_replicas`; absent if Ray autoscales them), `num_cpus` (of `ray_actor_options`;
it sets a replica's number of threads, so a change restarts the replicas), and `batch_size`, if the
deployment's `user_config` has a number `max_batch_size`, which its `reconfigure` gives to
`set_max_batch_size` of its `@serve.batch` method.

Figures: Ray's own HTTP latency histogram and CPU time, for requests of any sender. With `#callers:4`
after the address, our load generator sends POST requests to the application's route, with the content
of FILE (JSON) as the body for `#callers:4,body:FILE`.
"""

from agents.workloads.ray.attach import attach

__all__ = ["attach"]
